#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Removes every call of a barrier, wait or fence in templates/ in turn and demands that a test fails.
#   tests/mutate/mutate.sh [-n COUNT] [-s SEEDS] [-k] [PATTERN]
# PATTERN: a part of the path below templates/ ("gemm/", "attention/paged"); default all. COUNT: at most so many sites.
# SEEDS: schedules tried per site (default 5). -k: keep the work folder. Prints a line a site: file:line, prim, and
#   killed by TEST (seed N)   that test fails without the call
#   justified                 none fails; a comment `keep: reason` on the line or the line above says why it stays
#   SURVIVED                  none fails and nothing says why
#   DOES NOT COMPILE          the mutation proves nothing
# Exit 0: no survivor; 1: some; 2: the tests fail without any mutation, or cannot be built.
#
# The source tree is copied and built aside, so that a mutated header rebuilds just the tests that include it.
set -eu

seeds=5
limit=1000000
keep=0
while getopts n:s:k option; do
    case $option in
    n) limit=$OPTARG ;;
    s) seeds=$OPTARG ;;
    k) keep=1 ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
pattern=${1:-}

source=$(cd "$(dirname "$0")/../.." && pwd)
jobs=$(nproc)
work=$(mktemp -d "${TMPDIR:-/tmp}/lathe-mutate-XXXXXX")
tree=$work/tree
build=$work/build
log=$work/log

cleanup() {
    [ "$keep" = 1 ] && echo "work folder: $work" || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 2' INT TERM

prepare() {
    mkdir "$tree"
    for entry in CMakeLists.txt codegen layouts runtime templates tests tools; do
        cp -R "$source/$entry" "$tree/"
    done
    cmake -G Ninja -S "$tree" -B "$build" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O1 -DCMAKE_CXX_FLAGS=-O1 \
        -DLATHE_SCAN=OFF >"$log" 2>&1 || return 1
    targets=$(ninja -C "$build" -t targets all | sed -n 's/^\(emulated_[A-Za-z0-9_]*\): phony$/\1/p' | sort -u)
    [ -n "$targets" ] || { echo "no emulated tests are built here" >>"$log"; return 1; }
    # shellcheck disable=SC2086
    ninja -C "$build" -j "$jobs" mutate $targets >>"$log" 2>&1
}

# Runs a test under a seed; a test that hangs fails.
run_test() { # TEST SEED
    (cd "$build" && LATHE_SEED=$2 timeout 300 "./$1" >"$log" 2>&1)
}

# The tests built since the stamp, fastest first as the baseline has measured them.
rebuilt() {
    for target in $targets; do
        [ "$build/$target" -nt "$work/stamp" ] && printf '%s\n' "$target"
    done
}

baseline() {
    for target in $targets; do
        for seed in $(seq 1 "$seeds"); do
            if ! run_test "$target" "$seed"; then
                printf 'mutate: %s fails without any mutation (seed %s):\n' "$target" "$seed" >&2
                tail -n 20 "$log" >&2
                exit 2
            fi
        done
    done
}

# Says what became of the mutation in place.
judge() { # REASON
    touch "$work/stamp"
    sleep 0.02
    # shellcheck disable=SC2086
    if ! ninja -C "$build" -j "$jobs" $targets >"$log" 2>&1; then
        echo "DOES NOT COMPILE"
        return
    fi
    for seed in $(seq 1 "$seeds"); do
        for target in $(rebuilt); do
            if ! run_test "$target" "$seed"; then
                echo "killed by $target (seed $seed)"
                return
            fi
        done
    done
    [ -n "$1" ] && echo "justified: $1" || echo "SURVIVED"
}

if ! prepare; then
    echo "mutate: the tests cannot be built:" >&2
    tail -n 20 "$log" >&2
    exit 2
fi
baseline

cd "$tree"
find templates -name '*.cuh' -not -path 'templates/prims/*' | LC_ALL=C sort | grep -F -- "$pattern" |
    xargs -r "$build/mutate" list | head -n "$limit" >"$work/sites"
[ -s "$work/sites" ] || { echo "mutate: no site matches '$pattern'" >&2; exit 2; }

tab=$(printf '\t')
while IFS="$tab" read -r file line offset length prim reason; do
    cp "$file" "$work/original"
    "$build/mutate" apply "$work/original" "$offset" "$length" >"$file"
    verdict=$(judge "$reason")
    printf '%-44s %-18s %s\n' "$file:$line" "$prim" "$verdict"
    printf '%s\n' "$verdict" >>"$work/verdicts"
    cp "$work/original" "$file"
done <"$work/sites"

total=$(wc -l <"$work/verdicts")
bad=$(grep -c -e '^SURVIVED' -e '^DOES NOT' "$work/verdicts" || true)
printf '%s sites, %s killed, %s justified, %s neither\n' "$total" "$(grep -c ^killed "$work/verdicts" || true)" \
    "$(grep -c ^justified "$work/verdicts" || true)" "$bad"
[ "$bad" = 0 ]
