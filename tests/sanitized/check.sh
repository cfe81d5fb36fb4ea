#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh SOURCE BUILD: configures BUILD with ASan and UBSan, builds the command line there and checks a few steps. The
# kernels of the host device are then compiled with the sanitizers too; the check that this is so comes first.
set -eu
source=$1
build=$2
cache=$build/cache

"${CMAKE:-cmake}" -S "$source" -B "$build" -DLATHE_SANITIZE=ON -DLATHE_TESTS=OFF -DLATHE_SCAN=OFF \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g1" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
"${CMAKE:-cmake}" --build "$build" --target lathe >"$build.log" 2>&1 || { tail -n 40 "$build.log"; exit 1; }

# check LAYOUT OPTION...
check() {
    layout=$1
    shift
    echo "$layout $*"
    "$build/lathe" run "$source/layouts/$layout.lua" --check --failures --cache "$cache" "$@"
}

for schedule in 1 2 3; do
    check toy --schedule $schedule
    check muse_spark_tiny --variant 1x8 --schedule $schedule
    check muse_spark_tiny --variant 4x8 --schedule $schedule
    check attention_block --tp 2 --schedule $schedule
done

# A kernel without the sanitizer would have checked nothing.
for kernel in "$cache"/*/kernel.so; do
    nm -D --undefined-only "$kernel" | grep -q __asan_ || { echo "$kernel is not sanitized"; exit 1; }
done
