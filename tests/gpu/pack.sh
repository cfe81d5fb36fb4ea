#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds, on a machine without a GPU, all that tests/gpu/check.sh needs on one with a GPU but without Lua, jansson, xxHash and
# Boost: the program without libclang, its shared libraries, generated directories and their cubins, in build-gpu/.
set -eu
cd "$(dirname "$0")/../.."
pack=build-gpu
[ -f "$pack/build.ninja" ] || cmake -G Ninja -B "$pack" -DLATHE_SCAN=OFF -DLATHE_TESTS=OFF -DCMAKE_BUILD_TYPE=Release >/dev/null
ninja -C "$pack" --quiet lathe
mkdir -p "$pack/lib"
ldd "$pack/lathe" | awk '/liblua|libjansson|libxxhash|libboost/ { print $3 }' | while read -r library; do
    cp -L "$library" "$pack/lib/"
done
for layout in muse_spark_tiny muse_spark_slice cases/mini; do
    out=$pack/generated/$(basename "$layout")-tp1-sm_90a
    LD_LIBRARY_PATH=$pack/lib "$pack/lathe" gen "layouts/$layout.lua" --tp 1 --arch sm_90a --out "$out"
    LD_LIBRARY_PATH=$pack/lib "$pack/lathe" build "$out" --cache "$pack/cache"
done
