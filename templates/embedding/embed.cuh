/* SPDX-License-Identifier: Apache-2.0
 * s = fp32(r16(rms(table[token]))), one block per row. The result is compared as fp32 although it
 * was rounded to bf16, so the scale is formed in double: in fp32 an element near a tie would now
 * and then round to the other side. */
#ifndef LATHE_EMBEDDING_EMBED_CUH
#define LATHE_EMBEDDING_EMBED_CUH

#include "boundary/row.cuh"

/* Sum over the block to about 2^-48: each double travels as two floats. `scratch` holds two floats
 * per warp. */
template <int kThreads>
__device__ __forceinline__ double embed_row_sum(double value, float *scratch) {
    constexpr u32 kWarps = kThreads / 32;
#pragma unroll
    for (u32 stage = 0; stage < 2; stage++) {
#pragma unroll
        for (u32 mask = 16; mask > 0; mask /= 2) {
            const float high = static_cast<float>(value);
            const float low = static_cast<float>(value - static_cast<double>(high));
            value += static_cast<double>(warp_shuffle_xor(high, mask));
            value += static_cast<double>(warp_shuffle_xor(low, mask));
        }
        if (stage == 1 || kWarps == 1)
            break;
        const float high = static_cast<float>(value);
        if (lane_id() == 0)
            shared_store(reinterpret_cast<f32x2 *>(scratch) + warp_id(),
                         f32x2{high, static_cast<float>(value - static_cast<double>(high))});
        block_sync();
        value = 0.0;
        if (lane_id() < kWarps) {
            const f32x2 part = shared_load(reinterpret_cast<const f32x2 *>(scratch) + lane_id());
            value = static_cast<double>(part.x) + static_cast<double>(part.y);
        }
    }
    return value;
}

/* 1 / sqrt(x) in double: one Newton step doubles the 23 good bits of the fp32 value. */
__device__ __forceinline__ double embed_rsqrt(double x) {
    const double y = static_cast<double>(rsqrt_f32(static_cast<float>(x)));
    return y * (1.5 - 0.5 * x * y * y);
}

template <class C>
__device__ void embed(const int *tokens, const bf16 *table, int *faults, float *s) {
    using Shape = RowShape<C::kHidden, C::kThreads>;
    static_assert(C::kRows > 0, "one block per row");
    float *const scratch = reinterpret_cast<float *>(dynamic_shared());
    grid_trigger();
    grid_wait();

    const int token = tokens[block_id()];
    const bool valid = token >= 0 && token < C::kVocab;
    if (!valid && thread_id() == 0)
        gpu_atomic_or(reinterpret_cast<u32 *>(faults), 1u);
    const bf16 *const from = table + (valid ? static_cast<long long>(token) * C::kHidden : 0);

    Octet value[Shape::kPerThread];
    double squares = 0.0;
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++) {
        const int octet = row_octet<C::kThreads>(i);
        if (!row_has<Shape>(octet))
            continue;
        value[i] = octet_of_bf16(valid ? load_weight16(from + octet * 8) : u32x4{0, 0, 0, 0});
#pragma unroll
        for (int j = 0; j < 8; j++)
            squares += static_cast<double>(value[i].v[j]) * static_cast<double>(value[i].v[j]);
    }
    const double mean = embed_row_sum<C::kThreads>(squares, scratch) / C::kHidden;
    const double scale = embed_rsqrt(mean + static_cast<double>(C::kEps));

#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++) {
        const int octet = row_octet<C::kThreads>(i);
        if (!row_has<Shape>(octet))
            continue;
        Octet out;
#pragma unroll
        for (int j = 0; j < 8; j++)
            out.v[j] = static_cast<float>(static_cast<double>(value[i].v[j]) * scale);
        octet_store(s + static_cast<long long>(block_id()) * C::kHidden + octet * 8,
                    octet_of_bf16(octet_to_bf16(out)));
    }
}

#endif
