/* SPDX-License-Identifier: Apache-2.0
 * z = multiplier * (x w^T), logits = cap * tanh(z / cap), all fp32 after the products. */
#ifndef LATHE_HEAD_LOGITS_CUH
#define LATHE_HEAD_LOGITS_CUH

#include "gemm/stream.cuh"

__device__ __forceinline__ float logits_cap(float z, float cap) {
    return cap * tanh_f32(divide_f32(z, cap));
}

template <class C>
__device__ void capped_logits(const bf16 *x, const bf16 *w, float *logits) {
    using S = Stream<C::kRows, C::kN, C::kK, 1, C::kTiles, C::kWarps, C::kSteps, 0>;
    constexpr float kMultiplier = static_cast<float>(C::kMultiplier),
                    kCap = static_cast<float>(C::kCap);
    float *const shared = reinterpret_cast<float *>(dynamic_shared());
    const int row0 = static_cast<int>(block_id()) * S::kBlockRows;
    stream_product<S>(x, w, shared, row0, 0);

    constexpr int kQuads = S::kBlockRows / 4;
    for (int i = static_cast<int>(thread_id()); i < C::kRows * kQuads; i += S::kThreads) {
        const int token = i / kQuads, row = i % kQuads * 4;
        if (!S::kWholeBlocks && row0 + row >= C::kN)
            continue;
        const f32x4 sum = stream_sum<S>(shared, token, row);
        const f32x4 out = {sum.x * kMultiplier, sum.y * kMultiplier, sum.z * kMultiplier,
                           sum.w * kMultiplier};
        const long long at = static_cast<long long>(token) * C::kN + row0 + row;
        *reinterpret_cast<f32x4 *>(logits + at) = {logits_cap(out.x, kCap), logits_cap(out.y, kCap),
                                                   logits_cap(out.z, kCap),
                                                   logits_cap(out.w, kCap)};
    }
}

#endif
