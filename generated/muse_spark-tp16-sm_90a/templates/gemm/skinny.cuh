/* SPDX-License-Identifier: Apache-2.0
 * y[rows, n] = x[rows, k] w[n, k]^T for few rows: whole in bf16, or one fp32 partial per slice of k
 * for the consumer to sum. A block owns kTiles tiles of 16 weight rows and one slice of k. */
#ifndef LATHE_GEMM_SKINNY_CUH
#define LATHE_GEMM_SKINNY_CUH

#include "gemm/stream.cuh"

/* What the block left in `shared`, as fp32: slice `slice` of [slices, rows, n] at `to`. */
template <class S>
__device__ __forceinline__ void skinny_write_partials(float *to, const float *shared, int row0,
                                                      int slice) {
    constexpr int kQuads = S::kBlockRows / 4;
    for (int i = static_cast<int>(thread_id()); i < S::kRows * kQuads; i += S::kThreads) {
        const int token = i / kQuads, row = i % kQuads * 4;
        if (!S::kWholeBlocks && row0 + row >= S::kN)
            continue;
        const long long line = static_cast<long long>(slice) * S::kRows + token;
        *reinterpret_cast<f32x4 *>(to + line * S::kN + row0 + row) =
            stream_sum<S>(shared, token, row);
    }
}

/* The same, rounded: [rows, n] at `y`. */
template <class S>
__device__ __forceinline__ void skinny_write_whole(bf16 *y, const float *shared, int row0) {
    constexpr int kQuads = S::kBlockRows / 4;
    for (int i = static_cast<int>(thread_id()); i < S::kRows * kQuads; i += S::kThreads) {
        const int token = i / kQuads, row = i % kQuads * 4;
        if (!S::kWholeBlocks && row0 + row >= S::kN)
            continue;
        const f32x4 sum = stream_sum<S>(shared, token, row);
        *reinterpret_cast<u32x2 *>(y + static_cast<long long>(token) * S::kN + row0 + row) = {
            pack_bf16(sum.x, sum.y), pack_bf16(sum.z, sum.w)};
    }
}

template <class C>
__device__ void skinny_gemm(const bf16 *x, const bf16 *w, bf16 *y, float *y_partials) {
    using S =
        Stream<C::kRows, C::kN, C::kK, C::kSplits, C::kTiles, C::kWarps, C::kSteps, C::kStages>;
    static_assert(S::kWholeTiles, "N must be a multiple of 16");
    static_assert(C::kPartials == 1 || C::kSplits == 1, "a whole output has one slice of k");
    float *const shared = reinterpret_cast<float *>(dynamic_shared());
    const int row0 = static_cast<int>(block_id()) * S::kBlockRows,
              slice = static_cast<int>(block_id_y());
    stream_product<S>(x, w, shared, row0, slice);
    if constexpr (C::kPartials == 1)
        skinny_write_partials<S>(y_partials, shared, row0, slice);
    else
        skinny_write_whole<S>(y, shared, row0);
}

#endif
