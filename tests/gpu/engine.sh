#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On a machine with an H200 and PyTorch, after tests/gpu/pack.sh: lathe generate with and without proposals against an independent
# model and against itself, the Python package, a step in PyTorch's graph and on PyTorch's memory, the C example, the time to enqueue
# a step, and loading 21 GB. OUT (default build-gpu/out) receives the logs; the last lines are a table of verdicts.
set -u
cd "$(dirname "$0")/../.." || exit 2
pack=$PWD/build-gpu
out=${OUT:-$pack/out}
mkdir -p "$out"
export LD_LIBRARY_PATH="$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LATHE_CACHE="$pack/cache" LATHE_LIBRARY="$pack/lib/liblathe.so" LATHE_PROGRAM="$pack/lathe" PYTHONPATH="$PWD/tools/python"
export LATHE_DEVICE=cuda LATHE_HEADER="$PWD/runtime/lathe.h" LATHE_LAYOUT='' PYTHONDONTWRITEBYTECODE=1
lathe=$pack/lathe
tiny=$pack/generated/muse_spark_tiny-tp1
prompt=7,91,3,500,64,2,2,311,8,10
: >"$out/verdicts"

bounded() { timeout "${LIMIT:-60}" "$@"; }

# check NAME COMMAND...: runs it, keeps its log, notes verdict and seconds.
check() {
    name=$1
    shift
    began=$(date +%s)
    ("$@") >"$out/$name.log" 2>&1
    status=$?
    printf '%-22s exit %d  %3d s  %s\n' "$name" "$status" $(($(date +%s) - began)) \
        "$(tail -n 1 "$out/$name.log" | cut -c1-160)" >>"$out/verdicts"
}

# The tokens of the host device with and without proposals; of an invariant deployment the bits as well.
drafts() {
    echo 14,18,99,26,30,34 >"$out/draft"
    for kind in plain drafted; do
        # shellcheck disable=SC2046
        bounded "$lathe" generate "$1" --device cuda --weights calm:3 --tokens $prompt --steps 6 --logits "$out/$kind.npy" \
            $([ $kind = drafted ] && echo --draft "$out/draft") >"$out/$kind.txt" || return 1
        [ "$(cat "$out/$kind.txt")" = 14,18,22,26,30,34 ] || return 1
    done
    [ "$2" = tokens ] || cmp "$out/plain.npy" "$out/drafted.npy" || return 1
    echo "14,18,22,26,30,34 with and without proposals, the same $2"
}

example() {
    found=$(bounded "$pack/step" "$tiny-sm_90a" calm:3 7 91 10) && [ "$found" = 14,18,22,26,30,34 ] && echo "$found"
}

# Where 22 GB fit in memory.
memory_folder() {
    if mkdir -p /tmp/lathe-memory && mount -t tmpfs -o size=28g tmpfs /tmp/lathe-memory 2>/dev/null; then
        echo /tmp/lathe-memory
    elif [ "$(df -k --output=avail /dev/shm | tail -n 1)" -gt 24000000 ]; then
        mkdir -p /dev/shm/lathe-memory && echo /dev/shm/lathe-memory
    else
        echo /tmp/lathe-memory # the page cache, from the second pass on
    fi
}

# Runs a step from the checkpoint and notes the most memory of its own, anonymous pages; pinned ones (128 MiB) are not among them.
load() {
    timeout 60 "$lathe" run "$pack/generated/loading-tp1-sm_90a" --device cuda --weights "$1" --steps 20 --timing >"$2" 2>&1 &
    waiter=$!
    most=0
    while kill -0 $waiter 2>/dev/null; do
        process=$(cat "/proc/$waiter/task/$waiter/children" 2>/dev/null)
        now=$(awk '/^RssAnon/ { sum += $2 } END { print sum + 0 }' "/proc/${process%% *}/status" 2>/dev/null)
        [ "${now:-0}" -gt "$most" ] && most=$now
        sleep 0.05
    done
    wait $waiter || return 1
    cat "$2"
    echo "$(grep -o 'loaded .* GB/s' "$2"), at most $((most / 1024)) MiB of its own beside 128 MiB pinned"
}

loading() {
    folder=$(memory_folder)
    began=$(date +%s)
    bounded "$lathe" checkpoint "$pack/generated/loading-tp1-sm_90a" --synthetic 1 --out "$folder" || return 1
    echo "written to $folder in $(($(date +%s) - began)) s: $(du -sh "$folder" | cut -f1)"
    load "$folder" "$out/load-1" && load "$folder" "$out/load-2"
    status=$?
    rm -rf "${folder:?}"/*
    return $status
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for part in ${PARTS:-generate model python torch example enqueue loading}; do
    case $part in
    generate)
        check generate drafts "$tiny-sm_90a" tokens
        check generate-invariant drafts "$tiny-invariant-sm_90a" bits
        ;;
    model) LATHE_DIRECTORIES="$pack/generated/muse_spark_tiny-tp{tp}{name}-sm_90a" check model bounded python3 tests/python/test_generate.py ;;
    python) LATHE_TINY="$tiny-sm_90a" LATHE_INVARIANT="$tiny-invariant-sm_90a" check python bounded python3 tests/python/test_lathe.py ;;
    torch) check torch bounded python3 tools/python/example/torch_step.py "$tiny-bf16-sm_90a" ;;
    example) check example example ;;
    enqueue)
        check enqueue-tiny bounded "$lathe" run "$tiny-sm_90a" --device cuda --steps 1000 --variant 1x8
        check enqueue-deep bounded "$lathe" run "$pack/generated/deep-tp1-sm_90a" --device cuda --steps 1000 --variant 1x8
        ;;
    loading) LIMIT=100 check loading loading ;;
    esac
done
cat "$out/verdicts"
! grep -qv ' exit 0 ' "$out/verdicts"
