#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On a machine with an H200, after tests/gpu/pack.sh: every launch of the tiny, the mini and the full-width layouts against its
# reference, whole steps, replays of the captured graph, and the sanitizers on the tiny layout. OUT (default build-gpu/out)
# receives the logs; the last lines are a table of verdicts.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/gpu/verdicts.sh

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for part in ${PARTS:-tiny mini pair slice sanitizers}; do
    case $part in
    tiny)
        run tiny-calm muse_spark_tiny-tp1 --check --weights calm:1 --replays 1000
        run tiny-unkind muse_spark_tiny-tp1 --check --weights unkind:1 --failures --context 1,17,41,128
        ;;
    mini)
        run mini mini-tp1 --check --weights tests/golden/mini/checkpoint --replays 1000
        ;;
    pair) # two ranks as threads; on one GPU both take turns there
        run pair-calm attention_block-tp2 --check --weights calm:1 --replays 1000
        run pair-unkind attention_block-tp2 --check --weights unkind:1 --failures --context 1,23,24,25,96
        ;;
    slice)
        # Pages for one request of 33000 tokens beside shorter ones: a larger cache only makes every check slower.
        LIMIT=480 run slice muse_spark_slice-tp1 --check --weights unkind:1 --failures --context 16,2047,2049,33000 --pages 2240 --timing
        ;;
    sanitizers)
        for tool in memcheck racecheck synccheck; do
            check "tiny-$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$lathe" run \
                "$pack/generated/muse_spark_tiny-tp1-sm_90a" --device cuda --cache "$pack/cache" --weights calm:1
        done
        ;;
    esac
done
conclude
