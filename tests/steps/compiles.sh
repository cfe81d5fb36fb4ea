#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles the generated directories FOLDER/*-ARCH: of every kernel the first tactic builds, and none spills a register.
#   compiles.sh LATHE CACHE FOLDER ARCH        exit 77: no NVRTC that knows the architecture
set -eu

lathe=$1 cache=$2 generated=$3 arch=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
found=0
for directory in "$generated"/*-"$arch"; do
    status=0
    "$lathe" build "$directory" --cache "$cache" 2>"$folder/said" || status=$?
    cat "$folder/said"
    ! grep -q 'NVRTC is \(missing\|too old\)' "$folder/said" || exit 77
    [ "$status" = 0 ] || exit 1
    [ ! -s "$folder/said" ] || { echo "$directory: a warning, so some first tactic does not build"; exit 1; }
    "$lathe" inspect "$directory" --cache "$cache" --json >"$folder/facts"
    kernels=$(grep -c '"spill_bytes":' "$folder/facts")
    whole=$(grep -c '"spill_bytes": 0,' "$folder/facts") || true
    [ "$kernels" = "$whole" ] || { echo "$directory: $((kernels - whole)) of $kernels kernels spill, or are not known"; exit 1; }
    found=$((found + 1))
done
[ "$found" -ge 1 ] || { echo "$generated has nothing for $arch"; exit 1; }
