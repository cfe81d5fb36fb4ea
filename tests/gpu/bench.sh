#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On a machine with an H200, after tests/gpu/pack.sh: the table of figures in one call of less than 8 minutes. First every launch
# against its reference, then one rank of TP 8 in loop-back, its peers in PyTorch, and with two GPUs the boundary by mailboxes and
# by NCCL. OUT (default build-gpu/out) receives records and logs; the last lines are Lathe beside its peers.
# What is wrong is not timed: the script ends with the check's status.
set -u
cd "$(dirname "$0")/../.."
pack=build-gpu
out=${OUT:-$pack/out}
mkdir -p "$out"
export LD_LIBRARY_PATH=$PWD/$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
lathe="$pack/lathe"
cache=$pack/cache
slice=$pack/generated/muse_spark-tp8-sm_90a

# run SECONDS NAME COMMAND...: keeps the log; the command's status.
run() {
    limit=$1
    name=$2
    shift 2
    began=$(date +%s)
    timeout "$limit" "$@" >"$out/$name.log" 2>&1
    status=$?
    echo "$name: exit $status, $(($(date +%s) - began)) s"
    [ "$status" -eq 0 ] || tail -n 3 "$out/$name.log"
    return "$status"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for part in ${PARTS:-check slice peers pair}; do
    case $part in
    check)
        # Kernels of the same sources and tactics at full width, other shapes: a slice alone has no ranks to be checked against.
        run 60 check-tiny "$lathe" run "$pack/generated/muse_spark_tiny-tp1-sm_90a" --device cuda --cache "$cache" --check \
            --weights calm:1 || exit
        run 150 check-slice "$lathe" run "$pack/generated/muse_spark_slice-tp1-sm_90a" --device cuda --cache "$cache" --check \
            --weights unkind:1 --failures --context 2049 || exit
        ;;
    slice)
        run 150 bench-slice "$lathe" bench "$slice" --rank-slice --cache "$cache" --samples "${SAMPLES:-200}" \
            --record "$out/bench.json" || exit
        cat "$out/bench-slice.log"
        ;;
    peers)
        run 120 peers python3 tools/peers/layer.py --out "$out/peers.json" || exit
        cat "$out/peers.log"
        ;;
    pair)
        [ "$(nvidia-smi --list-gpus | wc -l)" -ge 2 ] || continue
        run 60 boundary "$lathe" bench layouts/boundary_chain.lua --tp 2 --layers 0 --cache "$cache" || exit
        run 60 boundary-nccl python3 tools/peers/boundary.py --out "$out/boundary.json" || exit
        cat "$out/boundary.log" "$out/boundary-nccl.log"
        ;;
    esac
done
[ ! -f "$out/bench.json" ] || [ ! -f "$out/peers.json" ] || python3 tools/peers/compare.py "$out/bench.json" "$out/peers.json"
