#!/bin/sh
# Writes what compose.yaml mounts: certificates, cluster.toml and party.toml of three parties and of
# the client alice, below run/ beside this file. Needs the `megrez` command.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir run
megrez certs --folder run/all --parties 3 --clients alice
for who in party0 party1 party2 alice; do
    mkdir -p "run/$who/certs"
    cp run/all/ca.pem "run/all/$who.pem" "run/all/$who.key" "run/$who/certs/"
    echo 'parties = ["party0:7700", "party1:7700", "party2:7700"]' >"run/$who/cluster.toml"
done
for party in 0 1 2; do
    cat >"run/party$party/party.toml" <<TOML
party = $party
listen = "0.0.0.0:7700"
cluster = "cluster.toml"
certs = "certs"
data = "/var/lib/megrez"
TOML
done
# The image's user reads them.
chown -R 65532:65532 run/party0 run/party1 run/party2 run/alice 2>/dev/null ||
    echo "make run/ readable for user 65532, as whom the containers run" >&2
echo "keep run/all/ca.key off the parties' machines"
