/* SPDX-License-Identifier: Apache-2.0
 * y[rows, n] = x[rows, k] w[n, k]^T for few rows: whole in bf16, or one fp32 partial per slice of k
 * for the consumer to sum. A block owns kTiles tiles of 16 weight rows and one slice of k. */
#ifndef LATHE_GEMM_SKINNY_CUH
#define LATHE_GEMM_SKINNY_CUH

#include "gemm/stream.cuh"

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

    constexpr int kQuads = S::kBlockRows / 4;
    for (int i = static_cast<int>(thread_id()); i < C::kRows * kQuads; i += S::kThreads) {
        const int token = i / kQuads, row = i % kQuads * 4;
        if (!S::kWholeBlocks && row0 + row >= C::kN)
            continue;
        const f32x4 sum = stream_sum<S>(shared, token, row);
        const long long at = static_cast<long long>(token) * C::kN + row0 + row;
        if constexpr (C::kPartials == 1) {
            float *const to = y_partials + static_cast<long long>(slice) * C::kRows * C::kN + at;
            *reinterpret_cast<f32x4 *>(to) = sum;
        } else {
            *reinterpret_cast<u32x2 *>(y + at) = {pack_bf16(sum.x, sum.y), pack_bf16(sum.z, sum.w)};
        }
    }
}

#endif
