#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On a machine with an H200, after tests/gpu/pack.sh: every launch of the tiny, the mini and the full-width layouts against its
# reference, whole steps, replays of the captured graph, and the sanitizers on the tiny layout. OUT (default build-gpu/out)
# receives the logs; the last lines are a table of verdicts.
set -u
cd "$(dirname "$0")/../.."
pack=build-gpu
out=${OUT:-$pack/out}
mkdir -p "$out"
export LD_LIBRARY_PATH=$PWD/$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
lathe="$pack/lathe"
cache=$pack/cache
: >"$out/verdicts"

# check NAME COMMAND...: runs it, keeps its log, notes verdict and seconds.
check() {
    name=$1
    shift
    began=$(date +%s)
    timeout "${LIMIT:-240}" "$@" >"$out/$name.log" 2>&1
    status=$?
    printf '%-24s exit %d  %4d s  %s\n' "$name" "$status" $(($(date +%s) - began)) "$(tail -n 1 "$out/$name.log")" >>"$out/verdicts"
}

# run NAME LAYOUT-tpN OPTIONS...
run() {
    name=$1
    directory=$2
    shift 2
    check "$name" "$lathe" run "$pack/generated/$directory-sm_90a" --device cuda --cache "$cache" --check "$@"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for part in ${PARTS:-tiny mini pair slice sanitizers}; do
    case $part in
    tiny)
        run tiny-calm muse_spark_tiny-tp1 --weights calm:1 --replays 1000
        run tiny-unkind muse_spark_tiny-tp1 --weights unkind:1 --failures --context 1,17,41,128
        ;;
    mini)
        run mini mini-tp1 --weights tests/golden/mini/checkpoint --replays 1000
        ;;
    pair) # two ranks as threads; on one GPU both take turns there
        run pair-calm attention_block-tp2 --weights calm:1 --replays 1000
        run pair-unkind attention_block-tp2 --weights unkind:1 --failures --context 1,23,24,25,96
        ;;
    slice)
        # Pages for one request of 33000 tokens beside shorter ones: a larger cache only makes every check slower.
        LIMIT=480 run slice muse_spark_slice-tp1 --weights unkind:1 --failures --context 16,2047,2049,33000 --pages 2240 --timing
        ;;
    sanitizers)
        for tool in memcheck racecheck synccheck; do
            check "tiny-$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$lathe" run \
                "$pack/generated/muse_spark_tiny-tp1-sm_90a" --device cuda --cache "$cache" --weights calm:1
        done
        ;;
    esac
done
cat "$out/verdicts"
! grep -qv ' exit 0 ' "$out/verdicts"
