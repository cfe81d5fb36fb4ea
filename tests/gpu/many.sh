#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On a machine of several GPUs, after `PARTS=many tests/gpu/pack.sh`: RANKS ranks (2 by default; the pack must be of as many) as
# threads of one process and as processes of their own, by mailboxes and by NCCL: first what exchanges and the step cost, while
# nothing else runs, then checks, 10,000 steps whose bits must stay and be alike on all ranks, memcheck, a rank that is killed, and
# faults on purpose with steps after them. OUT (default build-gpu/out) receives the logs; the last lines are a table of verdicts.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/gpu/verdicts.sh
steps=${STEPS:-10000}
ranks=${RANKS:-2}
tp=tp$ranks
LIMIT=${LIMIT:-200}
# NCCL sums in the order of its algorithm, so that is pinned; multicast is never used.
export NCCL_ALGO=${NCCL_ALGO:-Ring} NCCL_PROTO=${NCCL_PROTO:-LL128} NCCL_NVLS_ENABLE=0
# A Python environment brings NCCL where the system does not.
if [ -z "${LATHE_NCCL:-}" ]; then
    LATHE_NCCL=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib")' 2>/dev/null)
    if [ -d "$LATHE_NCCL" ]; then export LATHE_NCCL; else unset LATHE_NCCL; fi
fi

# both NAME DIRECTORY OPTIONS...: the references, then steps in either way.
both() {
    name=$1
    directory=$2
    shift 2
    [ -d "$pack/generated/$directory-sm_90a" ] || return 0
    both_name=$name
    run "$both_name-check" "$directory" --check --failures --weights calm:1 --replays 100 "$@"
    run "$both_name-threads" "$directory" --steps "$steps" "$@"
    run "$both_name-processes" "$directory" --steps "$steps" --processes "$@"
}

# Rank 1 of two processes is killed in the middle: rank 0 must say so and end.
kill_one() {
    [ -d "$pack/generated/$2-sm_90a" ] || return 0
    "$lathe" run "$pack/generated/$2-sm_90a" --device cuda --cache "$pack/cache" --steps 10000000 --variant 1x1 --processes \
        >"$out/$1.log" 2>&1 &
    whole=$!
    sleep 15
    began=$(date +%s%N)
    for file in /proc/[0-9]*/cmdline; do
        process=${file#/proc/}
        process=${process%/cmdline}
        [ "$(awk '/^PPid/ { print $2 }' "/proc/$process/status" 2>/dev/null)" = "$whole" ] || continue
        tr '\0' ' ' <"$file" | grep -q -- '--rank 1 ' && kill -9 "$process"
    done
    wait "$whole"
    status=$?
    verdict=1
    [ "$status" = 3 ] && grep -q 'rank 0: .*rank' "$out/$1.log" && verdict=0
    note "$1" "$verdict" "$((($(date +%s%N) - began) / 1000000)) ms" \
        "$(grep '^rank 0' "$out/$1.log" | tail -n 2 | tr '\n' ' ')"
}

# fault NAME DIRECTORY FAULT PATTERN STATUS OPTIONS...: ends in that status, and says what matches the pattern.
fault() {
    [ -d "$pack/generated/$2-sm_90a" ] || return 0
    fault_name=$1
    directory=$2
    what=$3
    pattern=$4
    wanted=$5
    shift 5
    began=$(date +%s)
    timeout "$LIMIT" "$lathe" run "$pack/generated/$directory-sm_90a" --device cuda --cache "$pack/cache" --steps 5 \
        --variant 1x1 --timeout 300 --inject "$what" "$@" >"$out/$fault_name.log" 2>&1
    status=$?
    verdict=1
    [ "$status" = "$wanted" ] && grep -q "$pattern" "$out/$fault_name.log" && verdict=0
    note "$fault_name" "$verdict" "$(($(date +%s) - began)) s" "$(grep "$pattern" "$out/$fault_name.log" | tail -n 1)"
}

# Each kind of fault on mailboxes: rank, layer and operation are named, and the steps after the rejoin have the bits of before.
faults() {
    fault "$1-lost" "$2" lost:1@2 'rank 0: \(layer [0-9]*\|prologue\), .*: rank 1 did not come in time' 0 --rejoin
    fault "$1-late" "$2" late:0@1:1000 'rank 1: \(layer [0-9]*\|prologue\), .*: rank 0 did not come in time' 0 --rejoin
    fault "$1-late-within" "$2" late:0@1:50 'outputs identical, ' 0
    fault "$1-skew" "$2" skew:1 '\(layer [0-9]*\|prologue\), .*: ranks [01] and [01] are not at the same exchange' 0 --rejoin
    fault "$1-nan" "$2" nan:1@2 'outputs identical, .* NaN on every rank after step 2' 0
}

# bench NAME DIRECTORY OPTIONS...: its table stands in the output too.
bench() {
    bench_name=$1
    directory=$2
    shift 2
    [ -d "$pack/generated/$directory-sm_90a" ] || return 0
    check "$bench_name" "$lathe" bench "$pack/generated/$directory-sm_90a" --cache "$pack/cache" "$@"
    cat "$out/$bench_name.log"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
nvidia-smi topo -m 2>/dev/null
echo "NCCL: ${LATHE_NCCL:-where the loader finds it}"
for part in ${PARTS:-exchange step block publish nccl tiny ep tiny-nccl slice lost inject memcheck}; do
    case $part in
    exchange) # the boundary in a chain of its own; the tail and all others as what the layer by NCCL takes more
        bench exchange-chain "boundary_chain-$tp" --layers 0 --step
        bench exchange-chain-nccl "boundary_chain-$tp-nccl" --layers 0 --step
        bench exchange-slice "muse_spark_slice-$tp" --layers 0 --kernel moe_route_sum
        bench exchange-slice-nccl "muse_spark_slice-$tp-nccl" --layers 0 --step
        ;;
    step) # as many layers as fit with the weights that the experts' slices were cut from; then one rank of the same in loop-back
        for loop in "" --rank-slice; do
            bench "step$loop" "muse_spark-$tp" --layers "${LAYERS:-$((ranks * 6))}" --step --replays 300 --sets 3 $loop
        done
        ;;
    block) both block attention_block-$tp ;;
    publish) both publish attention_block-$tp-publish ;;
    nccl) both nccl attention_block-$tp-nccl ;;
    tiny) both tiny muse_spark_tiny-$tp ;;
    ep) both tiny-ep muse_spark_tiny-$tp-ep ;;
    tiny-nccl) both tiny-nccl muse_spark_tiny-$tp-nccl ;;
    slice) # full width; a cache of fewer tokens than the step allows
        LIMIT=400 both slice muse_spark_slice-$tp --variant 1x8 --context 2049 --pages 520
        ;;
    lost)
        kill_one lost-mailbox attention_block-$tp
        kill_one lost-nccl attention_block-$tp-nccl
        ;;
    inject)
        faults inject attention_block-$tp
        faults inject-publish attention_block-$tp-publish
        faults inject-tiny muse_spark_tiny-$tp
        fault inject-nccl attention_block-$tp-nccl lost:1@2 'rank 0: .*did not come within 0.3 s' 3
        ;;
    memcheck) # everything is slow under it, so the ranks wait longer for each other
        for directory in attention_block-$tp muse_spark_tiny-$tp; do
            [ -d "$pack/generated/$directory-sm_90a" ] || continue
            check "memcheck-$directory" compute-sanitizer --tool memcheck --error-exitcode 9 "$lathe" run \
                "$pack/generated/$directory-sm_90a" --device cuda --cache "$pack/cache" --timeout 60000
        done
        ;;
    esac
done
conclude
