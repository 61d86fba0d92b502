#!/bin/sh
# Checks the files that deployments are made of, without an engine or a cluster:
#   sh deploy/check.sh VENV   a virtual environment with deploy/requirements.txt
set -eu
tools=$(cd "$1/bin" && pwd)
cd "$(dirname "$0")"

"$tools/hadolint" container/Dockerfile
"$tools/kubernetes-validate" --quiet --strict kubernetes/*.yaml
# Prometheus' own tool, where there is one; that the metrics exist is a test of `party/metrics.rs`.
if command -v promtool >/dev/null; then promtool check rules observability/alerts.yaml; fi

# The unit names a program that is installed later.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sed 's#/usr/local/bin/megrez#/bin/true#' systemd/megrez-party.service >"$folder/megrez-party.service"
systemd-analyze verify "$folder/megrez-party.service"
# 1.6 of 10: what a party does not need it cannot do.
systemd-analyze security --offline=true --threshold=20 --no-pager "$folder/megrez-party.service" | tail -n 1
echo "Dockerfile, manifests and unit are sound"
