# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Sourced by check.sh and many.sh, at the top of the tree: the pack that pack.sh made, and commands of which each leaves its log in
# OUT (default build-gpu/out) and a line of the table that ends the script.
pack=build-gpu
out=${OUT:-$pack/out}
mkdir -p "$out"
export LD_LIBRARY_PATH="$PWD/$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
lathe="$pack/lathe"
: >"$out/verdicts"

# note NAME STATUS TOOK TEXT: a line of the table.
note() {
    printf '%-28s exit %d  %6s  %s\n' "$@" >>"$out/verdicts"
}

# check NAME COMMAND...: runs it for LIMIT seconds at most, keeps its log, notes verdict and seconds.
check() {
    name=$1
    shift
    began=$(date +%s)
    timeout "${LIMIT:-240}" "$@" >"$out/$name.log" 2>&1
    status=$?
    note "$name" "$status" "$(($(date +%s) - began)) s" "$(tail -n 1 "$out/$name.log")"
}

# run NAME LAYOUT-tpN OPTIONS...: `lathe run` of that directory on the GPU.
run() {
    name=$1
    directory=$2
    shift 2
    check "$name" "$lathe" run "$pack/generated/$directory-sm_90a" --device cuda --cache "$pack/cache" "$@"
}

# Prints the table; false where something failed.
conclude() {
    cat "$out/verdicts"
    ! grep -qv ' exit 0 ' "$out/verdicts"
}
