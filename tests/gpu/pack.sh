#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds, on a machine without a GPU, all that tests/gpu/check.sh, pair.sh and bench.sh need on one with a GPU but without Lua,
# jansson, xxHash and Boost: the program without libclang, its shared libraries, generated directories and their cubins, in
# build-gpu/.
set -eu
cd "$(dirname "$0")/../.."
pack=build-gpu
[ -f "$pack/build.ninja" ] || cmake -G Ninja -B "$pack" -DLATHE_SCAN=OFF -DLATHE_TESTS=OFF -DCMAKE_BUILD_TYPE=Release >/dev/null
ninja -C "$pack" --quiet lathe
mkdir -p "$pack/lib"
ldd "$pack/lathe" | awk '/liblua|libjansson|libxxhash|libboost/ { print $3 }' | while read -r library; do
    cp -L "$library" "$pack/lib/"
done
# add LAYOUT TP [DEPLOYMENT]: generates and compiles.
add() {
    out=$pack/generated/$(basename "$1")-tp$2${3:+-$3}-sm_90a
    LD_LIBRARY_PATH=$pack/lib "$pack/lathe" gen "layouts/$1.lua" --tp "$2" ${3:+--deployment "$3"} --arch sm_90a --out "$out"
    LD_LIBRARY_PATH=$pack/lib "$pack/lathe" build "$out" --cache "$pack/cache"
}
add muse_spark_tiny 1
add muse_spark_slice 1
add cases/mini 1
add attention_block 2
add attention_block 2 publish
add attention_block 2 nccl
add muse_spark_tiny 2
add muse_spark_tiny 2 ep
add muse_spark_slice 2
# What bench.sh times stands in generated/ already.
cp -R generated/muse_spark-tp8-sm_90a "$pack/generated/"
LD_LIBRARY_PATH=$pack/lib "$pack/lathe" build "$pack/generated/muse_spark-tp8-sm_90a" --cache "$pack/cache"
