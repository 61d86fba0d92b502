#!/bin/sh
# Compiles every kernel file for sm_80 and sm_90a without a GPU: warnings and spills are errors, registers are printed.
# Takes nvcc from the path, or makes a virtual environment with NVIDIA's wheels in $MEGREZ_CUDA_VENV (by default
# target/cuda-venv). Usage: check.sh [architecture ...]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
if ! command -v nvcc >/dev/null; then
    venv=${MEGREZ_CUDA_VENV:-$root/target/cuda-venv}
    if [ ! -x "$venv/bin/pip" ]; then python3 -m venv "$venv"; fi
    for tool in "$venv"/lib/python3*/site-packages/nvidia/cu13/bin; do PATH=$tool:$PATH; done
    if ! command -v nvcc >/dev/null; then
        "$venv/bin/pip" install -q "nvidia-cuda-nvcc==13.0.*" "nvidia-cuda-crt==13.0.*" "nvidia-nvvm==13.0.*" \
            "nvidia-cuda-cccl==13.0.*" "nvidia-cuda-runtime==13.0.*"
        for tool in "$venv"/lib/python3*/site-packages/nvidia/cu13/bin; do PATH=$tool:$PATH; done
    fi
fi
units=$(mktemp -d)
trap 'rm -rf "$units"' EXIT
cargo run -q --manifest-path "$root/Cargo.toml" -p megrez-cuda --example units -- "$units"

one() {
    name=$(basename "$1" .cu)
    case $name,$2 in
        *-groups,sm_90a) ;;
        *-groups,*) return 0 ;;
    esac
    if ! nvcc -gencode "arch=compute_${2#sm_},code=$2" -std=c++17 --Werror all-warnings -Xptxas -v,-warn-spills -cubin -o "$1.$2" "$1" >"$1.$2.log" 2>&1; then
        echo "FAILED $2 $name"
        cat "$1.$2.log"
        return 1
    fi
    awk -v unit="$2 $name" '
        /Compiling entry function/ { split($0, part, "\047"); kernel = part[2] }
        /spill stores/ { spills = $5 }
        / Used [0-9]+ registers/ {
            for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1)
            printf "%-36s %-24s %3d registers, %d bytes spilled\n", unit, kernel, registers, spills
        }' "$1.$2.log"
}

failed=0
[ $# -gt 0 ] || set -- sm_80 sm_90a
# As many at a time as there are cores, each lot to its end.
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
running=
count=0
finish() {
    for job in $running; do wait "$job" || failed=1; done
    running=
    count=0
}
for arch in "$@"; do
    for unit in "$units"/*.cu; do
        one "$unit" "$arch" &
        running="$running $!"
        count=$((count + 1))
        [ "$count" -lt "$cores" ] || finish
    done
done
finish
exit $failed
