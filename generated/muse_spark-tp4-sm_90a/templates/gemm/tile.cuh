/* SPDX-License-Identifier: Apache-2.0
 * Tiles of the weight-streaming product (gemm/stream.cuh): its shape, a lane's place, activations,
 * products, and the sums that the warps leave in shared memory. */
#ifndef LATHE_GEMM_TILE_CUH
#define LATHE_GEMM_TILE_CUH

#include "prims.cuh"

/* K: slices of k, one per block along y. A slice is a whole number of steps; the last may be
 * shorter. kTiles: 16-row tiles of a block; kWarps: those that multiply; kSteps: steps that a warp
 * takes at once per tile; kStages: stages of the ring, 0: none. */
template <int kRows_, int kN_, int kK_, int kSplits_, int kTiles_, int kWarps_, int kSteps_,
          int kStages_>
struct Stream {
    static_assert(kN_ % 4 == 0 && kK_ % 16 == 0, "N in multiples of 4, K in multiples of 16");
    static_assert(kRows_ >= 1 && kRows_ <= 32, "between 1 and 32 tokens");
    static constexpr int kRows = kRows_, kN = kN_, kK = kK_;
    static constexpr int kTiles = kTiles_, kWarps = kWarps_, kSteps = kSteps_;
    static constexpr int kStages = kStages_;
    static constexpr int kThreads = (kWarps + (kStages > 0 ? 1 : 0)) * 32;
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
    static constexpr int kPartBytes = kWarps * kRows * kPitch * 4; /* the warps' sums */
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

/* Lays a warp's accumulators of a tile into shared memory as [warp][token][row of the block]. */
template <class S>
__device__ __forceinline__ void stream_lay_down(float *shared, int tile,
                                                const float (&sums)[S::kTokenTiles][4]) {
    const Lane at = lane_place();
    float *const mine = shared + static_cast<int>(warp_id()) * S::kRows * S::kPitch;
#pragma unroll
    for (int t = 0; t < S::kTokenTiles; t++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int token = t * 8 + at.q * 2 + c % 2, row = tile * 16 + c / 2 * 8 + at.g;
            if (token < S::kRows)
                shared_store(mine + token * S::kPitch + row, sums[t][c]);
        }
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
