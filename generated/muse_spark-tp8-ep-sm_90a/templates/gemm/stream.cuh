/* SPDX-License-Identifier: Apache-2.0
 * The weight-streaming product of few tokens: sums[token][row] = x[token, :] . w[row, :] for the
 * rows of one block.
 *
 * mma m16n8k16 with 16 weight rows as the tall operand and 8 tokens as the narrow one. The order of
 * k inside a step of 32 is free as long as both operands agree, so a lane takes 16 contiguous bytes
 * of a row (k = 8q .. 8q + 7 of the step, q = lane % 4) as its pieces of two mma, and a row's bytes
 * go from memory to registers in one load. Warps split k. Each pass a warp takes kSteps steps of
 * every tile; the next pass of a tile is fetched as soon as the registers of this one are free. The
 * first pass is fetched before grid_wait(), since weights depend on nobody. */
#ifndef LATHE_GEMM_STREAM_CUH
#define LATHE_GEMM_STREAM_CUH

#include "prims.cuh"

/* K: slices of k, one per block along y. A slice is a whole number of steps; the last may be
 * shorter. kTiles: 16-row tiles of a block; kSteps: steps that a warp has in flight per tile. */
template <int kRows_, int kN_, int kK_, int kSplits_, int kTiles_, int kWarps_, int kSteps_>
struct Stream {
    static_assert(kN_ % 4 == 0 && kK_ % 16 == 0, "N in multiples of 4, K in multiples of 16");
    static_assert(kRows_ >= 1 && kRows_ <= 32, "between 1 and 32 tokens");
    static constexpr int kRows = kRows_, kN = kN_, kK = kK_;
    static constexpr int kTiles = kTiles_, kWarps = kWarps_, kSteps = kSteps_;
    static constexpr int kThreads = kWarps * 32;
    static constexpr int kTokenTiles = (kRows + 7) / 8;
    static constexpr int kAllSteps = (kK + 31) / 32;
    static constexpr int kSliceSteps = (kAllSteps + kSplits_ - 1) / kSplits_;
    static constexpr int kPasses = (kSliceSteps + kWarps * kSteps - 1) / (kWarps * kSteps);
    static constexpr int kBlockRows = kTiles * 16;
    static constexpr int kPitch =
        kBlockRows + 4; /* floats; 4 mod 16 keeps the fragment stores free of conflicts */
    static constexpr bool kWholeBlocks = kN % kBlockRows == 0, kWholeTiles = kN % 16 == 0;
    static constexpr bool kWholePasses =
        kK % 32 == 0 && kAllSteps % kSplits_ == 0 && kSliceSteps % (kWarps * kSteps) == 0;
};

/* Where a lane works: g is its row of a tile and its token of a token tile, q its quarter of a
 * step. */
struct Lane {
    int g, q;
};

__device__ __forceinline__ Lane lane_place() {
    const int lane = static_cast<int>(lane_id());
    return {lane / 4, lane % 4};
}

/* First k of the lane's bytes in step `i` of pass `pass`, or -1 where that step lies past the slice
 * or the matrix. */
template <class S>
__device__ __forceinline__ int stream_k(int slice, int pass, int i, int q) {
    const int in_slice = (pass * S::kWarps + static_cast<int>(warp_id())) * S::kSteps + i;
    const int k = (slice * S::kSliceSteps + in_slice) * 32 + q * 8;
    if constexpr (S::kWholePasses)
        return k;
    return in_slice < S::kSliceSteps && k < S::kK ? k : -1;
}

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

/* The warp's activations of a pass; tokens past the last are zero and never read. */
template <class S>
__device__ __forceinline__ void stream_tokens(u32x4 (&b)[S::kSteps][S::kTokenTiles], const bf16 *x,
                                              int slice, int pass) {
    const Lane at = lane_place();
#pragma unroll
    for (int i = 0; i < S::kSteps; i++) {
        const int k = stream_k<S>(slice, pass, i, at.q);
#pragma unroll
        for (int t = 0; t < S::kTokenTiles; t++) {
            const int token = t * 8 + at.g;
            if (k >= 0 && token < S::kRows)
                b[i][t] =
                    *reinterpret_cast<const u32x4 *>(x + static_cast<long long>(token) * S::kK + k);
            else
                b[i][t] = {0, 0, 0, 0};
        }
    }
}

/* Adds one tile's steps of a pass to its accumulators, k ascending. */
template <class S>
__device__ __forceinline__ void stream_multiply(float (&sums)[S::kTokenTiles][4],
                                                const u32x4 (&a)[S::kSteps][2],
                                                const u32x4 (&b)[S::kSteps][S::kTokenTiles]) {
#pragma unroll
    for (int i = 0; i < S::kSteps; i++) {
        const u32 low[4] = {a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y};
        const u32 high[4] = {a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w};
#pragma unroll
        for (int t = 0; t < S::kTokenTiles; t++) {
            const u32 b_low[2] = {b[i][t].x, b[i][t].y};
            const u32 b_high[2] = {b[i][t].z, b[i][t].w};
            mma_bf16(sums[t], low, b_low);
            mma_bf16(sums[t], high, b_high);
        }
    }
}

/* Lays a warp's accumulators into shared memory as [warp][token][row of the block]. */
template <class S>
__device__ __forceinline__ void stream_lay_down(float *shared,
                                                const float (&sums)[S::kTiles][S::kTokenTiles][4]) {
    const Lane at = lane_place();
    float *const mine = shared + static_cast<int>(warp_id()) * S::kRows * S::kPitch;
#pragma unroll
    for (int tile = 0; tile < S::kTiles; tile++)
#pragma unroll
        for (int t = 0; t < S::kTokenTiles; t++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int token = t * 8 + at.q * 2 + c % 2, row = tile * 16 + c / 2 * 8 + at.g;
                if (token < S::kRows)
                    shared_store(mine + token * S::kPitch + row, sums[tile][t][c]);
            }
}

/* The whole product of block (x: rows, `slice` of k), left in `shared`; every warp's part lies
 * there for all to read. Waits for the launch before this one after the first weights are under
 * way. */
template <class S>
__device__ __forceinline__ void stream_product(const bf16 *x, const bf16 *w, float *shared,
                                               int row0, int slice) {
    u32x4 a[S::kTiles][S::kSteps][2];
#pragma unroll
    for (int tile = 0; tile < S::kTiles; tile++)
        stream_fetch<S>(a[tile], w, row0 + tile * 16, slice, 0);
    grid_trigger();
    grid_wait();

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
    stream_lay_down<S>(shared, sums);
    block_sync();
}

/* Sum over the warps, ascending, of four neighbouring rows of a token. */
template <class S>
__device__ __forceinline__ f32x4 stream_sum(const float *shared, int token, int row) {
    f32x4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int warp = 0; warp < S::kWarps; warp++) {
        const float *const from = shared + (warp * S::kRows + token) * S::kPitch + row;
        const f32x4 part = shared_load(reinterpret_cast<const f32x4 *>(from));
        sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
    }
    return sum;
}

#endif
