/* SPDX-License-Identifier: Apache-2.0
 * The weight-streaming product of few tokens: sums[token][row] = x[token, :] . w[row, :] for the
 * rows of one block.
 *
 * mma m16n8k16 with 16 weight rows as the tall operand and 8 tokens as the narrow one. The order of
 * k inside a step of 32 is free as long as both operands agree, so a lane takes 16 contiguous bytes
 * of a row (k = 8q .. 8q + 7 of the step, q = lane % 4) as its pieces of two mma, and a row's bytes
 * go from memory to registers in one load. Warps split k. Each pass a warp takes kSteps steps of
 * every tile.
 *
 * Weights depend on nobody, so the first come before grid_wait(). kStages = 0: straight to
 * registers, the first pass early, the next pass of a tile as soon as the registers of this one are
 * free. Else by bulk copies through a ring in shared memory (gemm/ring.cuh), which holds far more
 * of them. Both add in the same order: the bits are the same. */
#ifndef LATHE_GEMM_STREAM_CUH
#define LATHE_GEMM_STREAM_CUH

#include "gemm/ring.cuh"
#include "gemm/tile.cuh"
#include "prims.cuh"

/* One tile's weights of a pass: a lane's 16 bytes of rows g and g + 8; zero past the last row. */
template <class S>
__device__ __forceinline__ void stream_fetch(u32x4 (&a)[S::kSteps][2], const bf16 *w, int row0,
                                             int slice, int pass) {
    const Lane at = lane_place();
#pragma unroll
    for (int i = 0; i < S::kSteps; i++) {
        const int k = stream_k<S>(slice, pass, i, at.q);
        if (k < 0 || (!S::kWholeBlocks && row0 >= S::kN)) {
            a[i][0] = a[i][1] = {0, 0, 0, 0};
            continue;
        }
        const bf16 *const from = w + static_cast<long long>(row0 + at.g) * S::kK + k;
        const bool has_low = S::kWholeTiles || row0 + at.g < S::kN;
        const bool has_high = S::kWholeTiles || row0 + at.g + 8 < S::kN;
        a[i][0] = has_low ? load_weight16(from) : u32x4{0, 0, 0, 0};
        a[i][1] = has_high ? load_weight16(from + 8ll * S::kK) : u32x4{0, 0, 0, 0};
    }
}

/* Everything after the first weights, which `a` holds. */
template <class S>
__device__ __forceinline__ void stream_passes(u32x4 (&a)[S::kTiles][S::kSteps][2], const bf16 *x,
                                              const bf16 *w, float *shared, int row0, int slice) {
    float sums[S::kTiles][S::kTokenTiles][4] = {};
#pragma unroll 1
    for (int pass = 0; pass < S::kPasses; pass++) {
        u32x4 b[S::kSteps][S::kTokenTiles];
        stream_tokens<S>(b, x, slice, pass);
#pragma unroll
        for (int tile = 0; tile < S::kTiles; tile++) {
            stream_multiply<S>(sums[tile], a[tile], b);
            if (pass + 1 < S::kPasses)
                stream_fetch<S>(a[tile], w, row0 + tile * 16, slice, pass + 1);
        }
    }
#pragma unroll
    for (int tile = 0; tile < S::kTiles; tile++)
        stream_lay_down<S>(shared, tile, sums[tile]);
}

/* What a block of the product holds when its launch may go on. */
template <class S>
struct StreamStart {
    u32x4 a[S::kTiles][S::kSteps][2]; /* without a ring: the first weights */
    Ring ring;
};

/* Waits for the launch before this one after the first weights are under way. The ring follows the
 * parts in shared memory. */
template <class S>
__device__ __forceinline__ void stream_begin(StreamStart<S> &start, const bf16 *w, float *shared,
                                             int row0, int slice) {
    start.ring = ring_place<S>(reinterpret_cast<u8 *>(shared) + S::kPartBytes);
    if constexpr (S::kStages > 0) {
        ring_open<S>(start.ring);
    } else {
#pragma unroll
        for (int tile = 0; tile < S::kTiles; tile++)
            stream_fetch<S>(start.a[tile], w, row0 + tile * 16, slice, 0);
    }
    grid_trigger();
    if constexpr (S::kStages > 0)
        if (warp_id() == S::kWarps)
            ring_fill<S>(start.ring, w, row0, slice);
    grid_wait();
}

/* The whole product of block (x: rows, `slice` of k), left in `shared`; every warp's part lies
 * there for all to read. */
template <class S>
__device__ __forceinline__ void stream_end(StreamStart<S> &start, const bf16 *x, const bf16 *w,
                                           float *shared, int row0, int slice) {
    if constexpr (S::kStages == 0)
        stream_passes<S>(start.a, x, w, shared, row0, slice);
    else if (warp_id() < S::kWarps)
        ring_passes<S>(start.ring, x, shared, slice);
    block_sync();
}

template <class S>
__device__ __forceinline__ void stream_product(const bf16 *x, const bf16 *w, float *shared,
                                               int row0, int slice) {
    StreamStart<S> start;
    stream_begin<S>(start, w, shared, row0, slice);
    stream_end<S>(start, x, w, shared, row0, slice);
}

#endif
