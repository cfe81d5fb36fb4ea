#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds, on a machine without a GPU, what the scripts of this folder need on one with a GPU but without Lua, jansson, xxHash and
# Boost: the program without libclang, its shared libraries, generated directories and their cubins, in build-gpu/. PARTS: for which
# of them (check many bench engine); RANKS: how many ranks many.sh will have.
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
# What tests/gpu/engine.sh needs beside that: the library, and the C example as its first lines say a GPU's differs.
add_host() {
    ninja -C "$pack" --quiet lathe_shared
    cp -L "$pack/runtime/liblathe.so" "$pack/lib/liblathe.so.0"
    cp "$pack/lib/liblathe.so.0" "$pack/lib/liblathe.so"
    cuda=${CUDA_HOME:-/usr/local/cuda}
    take='static void *take(size_t bytes) {\n    CUdeviceptr memory = 0;\n'
    take="$take    return cuMemAlloc(\\&memory, bytes) ? NULL : (void *)memory;\\n}"
    sed -e 's/LATHE_DEVICE_HOST/LATHE_DEVICE_CUDA/' -e 's/aligned_alloc(64, /take(/' -e 's/#include <lathe.h>/#include <cuda.h>\n&/' \
        -e "s/^static lathe_engine \*engine;/&\n\n$take/" \
        tools/example/step.c >"$pack/step.c"
    cc -std=c17 -Wall -Wextra -Werror -Iruntime "-I$cuda/include" "$pack/step.c" "$pack/lib/liblathe.so" \
        "-Wl,-rpath-link,$pack/lib" "-L$cuda/lib64/stubs" -lcuda -o "$pack/step"
}
for part in ${PARTS:-check many bench engine}; do
    case $part in
    check)
        add muse_spark_tiny 1
        add muse_spark_slice 1
        add cases/mini 1
        add attention_block 2
        ;;
    many)
        ranks=${RANKS:-2}
        if [ "$ranks" = 2 ]; then # these show kinds of exchange, not numbers of ranks
            add attention_block 2 publish
            add attention_block 2 nccl
            add muse_spark_tiny 2 nccl
        fi
        [ "$ranks" -gt 4 ] || add attention_block "$ranks"
        add muse_spark_tiny "$ranks"
        add muse_spark_tiny "$ranks" ep
        for deployment in "" nccl; do
            add muse_spark_slice "$ranks" "$deployment"
            add boundary_chain "$ranks" "$deployment"
        done
        add muse_spark "$ranks"
        ;;
    bench) # what it times stands in generated/ already
        cp -R generated/muse_spark-tp8-sm_90a "$pack/generated/"
        LD_LIBRARY_PATH=$pack/lib "$pack/lathe" build "$pack/generated/muse_spark-tp8-sm_90a" --cache "$pack/cache"
        ;;
    engine)
        add muse_spark_tiny 1
        add muse_spark_tiny 1 invariant
        add muse_spark_tiny 1 w4a16
        add muse_spark_tiny 1 bf16
        add cases/loading 1
        add cases/deep 1
        add_host
        ;;
    esac
done
