// SPDX-License-Identifier: Apache-2.0
// Tail of the experts, one block a token: its rows stay packed in registers between the sums of
// squares and the weighted sum, so each is read once. A route that is not local adds exactly
// nothing, whatever memory holds.
#ifndef LATHE_MOE_TAIL_CUH
#define LATHE_MOE_TAIL_CUH

#include "prims.cuh"

// v = (center + gain) * row, for eight values.
__device__ __forceinline__ void tail_scale(float (&v)[8], u32x4 row, u32x4 gain, float center) {
    const u32 y[4] = {row.x, row.y, row.z, row.w};
    const u32 w[4] = {gain.x, gain.y, gain.z, gain.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        v[2 * i] = (center + bf16_low(w[i])) * bf16_low(y[i]);
        v[2 * i + 1] = (center + bf16_high(w[i])) * bf16_high(y[i]);
    }
}

// Sums of squares over the block, one a route, each added in the same order by every thread.
template <class C>
__device__ __forceinline__ void tail_block_sums(float (&squares)[C::kTopK]) {
    float *partial = reinterpret_cast<float *>(dynamic_shared()); // [kWarps][kTopK]
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
        float sum = squares[k];
#pragma unroll
        for (u32 mask = 16; mask > 0; mask /= 2)
            sum += warp_shuffle_xor(sum, mask);
        if (lane_id() == u32(k % 32))
            shared_store(partial + warp_id() * u32(C::kTopK) + k, sum);
    }
    block_sync();
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
        squares[k] = 0;
        for (int warp = 0; warp < C::kWarps; ++warp)
            squares[k] += shared_load(partial + warp * C::kTopK + k);
    }
}

template <class C>
__device__ void tail(const bf16 *rows, const int *expanded_to_permuted, const bf16 *gain,
                     const float *weights, bf16 *m) {
    static_assert(C::kRoutes == C::kRows * C::kTopK, "a row of the permuted space for each route");
    static_assert(C::kExpertRows > 0 && C::kWidth % 8 == 0, "rows of 16-byte pieces");
    constexpr u32 kThreads = C::kWarps * 32;
    constexpr u32 kPieces = C::kWidth / 8;
    constexpr int kHeld = int((kPieces + kThreads - 1) / kThreads);
    const u32 token = block_id();

    u32x4 held_gain[kHeld];
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
        const u32 piece = u32(h) * kThreads + thread_id();
        if (piece < kPieces)
            held_gain[h] = load_weight16(gain + piece * 8);
    }
    grid_trigger();
    grid_wait();

    int row[C::kTopK];
    u32x4 held[C::kTopK][kHeld];
    float scale[C::kTopK];
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k)
        row[k] = expanded_to_permuted[token * u32(C::kTopK) + u32(k)];
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            const u32 piece = u32(h) * kThreads + thread_id();
            held[k][h] = {};
            if (row[k] >= 0 && piece < kPieces)
                held[k][h] =
                    *reinterpret_cast<const u32x4 *>(rows + u64(row[k]) * C::kWidth + piece * 8);
        }
    }
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
        scale[k] = 0;
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            if (u32(h) * kThreads + thread_id() < kPieces) {
                float v[8];
                tail_scale(v, held[k][h], held_gain[h], float(C::kCenter));
#pragma unroll
                for (int i = 0; i < 8; ++i)
                    scale[k] += v[i] * v[i];
            }
        }
    }
    tail_block_sums<C>(scale);
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
        const float inverse = rsqrt_f32(scale[k] / float(C::kWidth) + float(C::kEps));
        scale[k] = row[k] >= 0 ? weights[token * u32(C::kTopK) + u32(k)] * inverse : 0.0f;
    }
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
        const u32 piece = u32(h) * kThreads + thread_id();
        if (piece >= kPieces)
            continue;
        float sum[8] = {};
#pragma unroll
        for (int k = 0; k < C::kTopK; ++k) {
            float v[8];
            tail_scale(v, held[k][h], held_gain[h], float(C::kCenter));
#pragma unroll
            for (int i = 0; i < 8; ++i)
                sum[i] += v[i] * scale[k]; // 0 * 0 where there is no row
        }
        u32x4 out;
        out.x = pack_bf16(sum[0], sum[1]);
        out.y = pack_bf16(sum[2], sum[3]);
        out.z = pack_bf16(sum[4], sum[5]);
        out.w = pack_bf16(sum[6], sum[7]);
        *reinterpret_cast<u32x4 *>(m + u64(token) * C::kWidth + piece * 8) = out;
    }
}

#endif
