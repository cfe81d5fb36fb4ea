/* SPDX-License-Identifier: Apache-2.0
 * Which row of a shard of the table is a token's, and the norm of an embedded row that one block
 * holds: s = fp32(r16(e * rsqrt(mean(e^2) + eps))). The result is compared as fp32 although it was
 * rounded to bf16, so the scale is formed in double: in fp32 an element near a tie would now and
 * then round to the other side. */
#ifndef LATHE_EMBEDDING_ROW_CUH
#define LATHE_EMBEDDING_ROW_CUH

#include "boundary/row.cuh"

/* Row of this rank's table of kVocab rows, the ranks' in their order; or -1: another rank's token,
 * or nobody's. Nobody's token is recorded. */
template <int kVocab>
__device__ __forceinline__ int embed_shard_row(int token, u32 rank, u32 world, int *faults) {
    const long long first = static_cast<long long>(rank) * kVocab;
    const bool exists = token >= 0 && token < static_cast<long long>(world) * kVocab;
    if (!exists && thread_id() == 0)
        gpu_atomic_or(reinterpret_cast<u32 *>(faults), 1u);
    return token >= first && token < first + kVocab ? static_cast<int>(token - first) : -1;
}

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

/* `value`: the thread's octets of the row. `s`: of the row. */
template <class Shape, int kHidden, int kThreads>
__device__ __forceinline__ void embed_finish(const Octet (&value)[Shape::kPerThread], double eps,
                                             float *s, float *scratch) {
    double squares = 0.0;
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++)
        if (row_has<Shape>(row_octet<kThreads>(i)))
#pragma unroll
            for (int j = 0; j < 8; j++)
                squares += static_cast<double>(value[i].v[j]) * static_cast<double>(value[i].v[j]);
    const double mean = embed_row_sum<kThreads>(squares, scratch) / kHidden;
    const double scale = embed_rsqrt(mean + eps);
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++) {
        const int octet = row_octet<kThreads>(i);
        if (!row_has<Shape>(octet))
            continue;
        Octet out;
#pragma unroll
        for (int j = 0; j < 8; j++)
            out.v[j] = static_cast<float>(static_cast<double>(value[i].v[j]) * scale);
        octet_store(s + octet * 8, octet_of_bf16(octet_to_bf16(out)));
    }
}

#endif
