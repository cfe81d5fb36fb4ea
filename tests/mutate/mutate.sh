#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Removes every call of a barrier, wait, fence or store to a peer in templates/ in turn and demands that a test fails.
#   tests/mutate/mutate.sh [-n COUNT] [-s SEEDS] [-w FOLDER] [PATTERN]
# PATTERN: a part of the site's name ("gemm/", "attention/paged.cuh:182"); default all. COUNT: at most so many sites.
# SEEDS: schedules tried on what three do not catch (default 50). FOLDER: where to copy and build, kept and used again;
# default one that goes at the end. Prints a line a site: file:line, prim, and
#   killed by TEST (seed N)   that test fails without the call (or "exit status 139": it crashes)
#   justified                 none fails; a comment `keep: reason` on the line or the line above says why it stays
#   SURVIVED                  none fails and nothing says why
#   UNTESTED                  no test includes the header
#   DOES NOT COMPILE          the mutation proves nothing
# Exit 0: no survivor; 1: some; 2: the tests fail without any mutation, or cannot be built.
#
# The source tree is copied and built aside, so that a mutated header rebuilds just the tests that include it.
set -eu

seeds=50
limit=1000000
work=
while getopts n:s:w: option; do
    case $option in
    n) limit=$OPTARG ;;
    s) seeds=$OPTARG ;;
    w) work=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
pattern=${1:-}

source=$(cd "$(dirname "$0")/../.." && pwd)
jobs=$(nproc)
if [ -z "$work" ]; then
    work=$(mktemp -d "${TMPDIR:-/tmp}/lathe-mutate-XXXXXX")
    trap 'rm -rf "$work"' EXIT
fi
trap 'exit 2' INT TERM
mkdir -p "$work/tree"
work=$(cd "$work" && pwd)
tree=$work/tree
build=$work/build
log=$work/log
: >"$work/verdicts"

# Makes the tree the source's, and touches no file that is so already. A mutation left by an interrupted run goes too.
copy_sources() {
    (cd "$source" && find CMakeLists.txt codegen layouts runtime templates tests tools -type f) | LC_ALL=C sort >"$work/files"
    (cd "$tree" && find . -type f | sed 's,^\./,,') | LC_ALL=C sort | LC_ALL=C comm -13 "$work/files" - |
        while read -r file; do rm "$tree/$file"; done
    while read -r file; do
        cmp -s "$source/$file" "$tree/$file" && continue
        mkdir -p "$tree/$(dirname "$file")"
        cp "$source/$file" "$tree/$file"
    done <"$work/files"
}

configure() {
    copy_sources
    cmake -G Ninja -S "$tree" -B "$build" -DCMAKE_BUILD_TYPE=None "-DCMAKE_C_FLAGS=-O1 -w" "-DCMAKE_CXX_FLAGS=-O1 -w" \
        -DLATHE_SCAN=OFF -DLATHE_EMULATED_SANITIZE=OFF >"$log" 2>&1 && ninja -C "$build" mutate >>"$log" 2>&1
}

list_sites() {
    grep -r --include='*.cuh' --include='*.cpp' --include='*.h' '^#include "' templates tests/emulated >"$work/includes"
    find templates -name '*.cuh' -not -path 'templates/prims/*' | LC_ALL=C sort | xargs -r "$build/mutate" list |
        awk -F '\t' -v pattern="$pattern" 'index($1 ":" $2, pattern)' | head -n "$limit" >"$work/sites"
}

# Runs a test under the first so many seeds; a test that hangs fails. The log ends with its exit status.
run_test() { # TEST SEEDS
    status=0
    { (cd "$build" && LATHE_SEEDS=$2 timeout 900 "./$1" >"$log" 2>&1) || status=$?; } 2>/dev/null
    echo "status $status" >>"$log"
    return "$status"
}

# The tests that include a header, directly or not.
tests_of() { # FILE
    awk -F '[:"]' -v file="$1" '
        function shorten(path) { sub("^(templates|tests/emulated)/", "", path); return path }
        { users[$3] = users[$3] " " $1 }
        END {
            todo[1] = file; count = 1
            for (at = 1; at <= count; at++) {
                if (todo[at] ~ /^tests\/emulated\/test_.*\.cpp$/) {
                    sub(".*/", "", todo[at]); sub("[.]cpp$", "", todo[at]); print "emulated_" todo[at]
                }
                n = split(users[shorten(todo[at])], list, " ")
                for (i = 1; i <= n; i++)
                    if (!seen[list[i]]++) todo[++count] = list[i]
            }
        }' "$work/includes" | sort
}

# The tests that will judge are built, and must pass as long as nothing is removed.
baseline() {
    tests=$(cut -f 1 "$work/sites" | uniq | while read -r file; do tests_of "$file"; done | sort -u)
    build_tests || { complain "the tests cannot be built"; exit 2; }
    for target in $tests; do
        run_test "$target" 3 || { complain "$target fails without any mutation"; exit 2; }
    done
}

complain() { # WHAT
    echo "mutate: $1:" >&2
    tail -n 20 "$log" >&2
}

# What a failing test says of its seed, else how it ended.
describe() {
    sed -n 's/.*seed \([0-9]*\).*/seed \1/p; s/^status 124$/it hangs/p; s/^status \([0-9]*\)$/exit status \1/p' "$log" |
        head -n 1
}

build_tests() {
    # shellcheck disable=SC2086
    ninja -C "$build" -j "$jobs" $tests >"$log" 2>&1
}

# Runs the tests under the first so many seeds; true if one fails, which `verdict` then names.
is_killed() { # SEEDS
    for target in $tests; do
        run_test "$target" "$1" && continue
        verdict="killed by $target ($(describe))"
        return 0
    done
    return 1
}

# Sets `verdict` for one removal. A test that fails only under many seeds must pass them without the removal.
judge() { # FILE OFFSET REASON
    tests=$(tests_of "$1")
    cp "$1" "$work/original"
    "$build/mutate" apply "$work/original" "$2" >"$1"
    if [ -z "$tests" ]; then
        verdict=UNTESTED
    elif ! build_tests; then
        verdict="DOES NOT COMPILE"
    elif ! is_killed 3; then
        verdict=SURVIVED
        if [ -n "$3" ]; then
            verdict="justified: $3"
        elif is_killed "$seeds"; then
            late=$verdict
            cp "$work/original" "$1"
            build_tests
            is_killed "$seeds" && verdict="FAILS WITHOUT REMOVAL: $verdict" || verdict=$late
        fi
    fi
    cp "$work/original" "$1"
}

configure || { complain "the build cannot be configured"; exit 2; }
cd "$tree"
list_sites
[ -s "$work/sites" ] || { echo "mutate: no site matches '$pattern'" >&2; exit 2; }
baseline

tab=$(printf '\t')
while IFS="$tab" read -r file line offset prim reason; do
    judge "$file" "$offset" "$reason"
    printf '%-44s %-18s %s\n' "$file:$line" "$prim" "$verdict"
    printf '%s\n' "$verdict" >>"$work/verdicts"
done <"$work/sites"

total=$(wc -l <"$work/verdicts")
killed=$(grep -c '^killed' "$work/verdicts" || true)
justified=$(grep -c '^justified' "$work/verdicts" || true)
echo "$total sites, $killed killed, $justified justified, $((total - killed - justified)) neither"
[ "$((killed + justified))" = "$total" ]
