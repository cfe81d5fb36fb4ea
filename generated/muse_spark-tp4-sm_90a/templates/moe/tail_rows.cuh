// SPDX-License-Identifier: Apache-2.0
// Steps that the tails of the experts share. A block owns one token; its routes' rows stay packed
// in registers, eight neighbouring values to a piece, between the sums of squares and the weighted
// sum. A route without a row here adds exactly nothing, whatever memory holds.
#ifndef LATHE_MOE_TAIL_ROWS_CUH
#define LATHE_MOE_TAIL_ROWS_CUH

#include "prims.cuh"

// Pieces of a row that one thread holds; the last may lie past the row's end.
template <class C>
struct TailShape {
    static_assert(C::kRoutes == C::kRows * C::kTopK, "a row of the permuted space for each route");
    static_assert(C::kExpertRows > 0 && C::kWidth % 8 == 0, "rows of 16-byte pieces");
    static constexpr u32 kThreads = C::kWarps * 32;
    static constexpr u32 kPieces = C::kWidth / 8;
    static constexpr int kHeld = int((kPieces + kThreads - 1) / kThreads);
};

template <class C>
__device__ __forceinline__ u32 tail_piece(int held) {
    return u32(held) * u32(C::kWarps * 32) + thread_id();
}

// Weights, so they may come before the wait.
template <class C, int kHeld>
__device__ __forceinline__ void tail_gains(u32x4 (&gain)[kHeld], const bf16 *w) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
        if (tail_piece<C>(h) < u32(C::kWidth / 8))
            gain[h] = load_weight16(w + tail_piece<C>(h) * 8);
}

// Rows of the token's routes in the permuted space; negative where this rank has none.
template <class C>
__device__ __forceinline__ void tail_routes(int (&row)[C::kTopK], const int *expanded_to_permuted,
                                            u32 token) {
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k)
        row[k] = expanded_to_permuted[token * u32(C::kTopK) + u32(k)];
}

// A piece of a route's row; zero where there is none.
template <class C>
__device__ __forceinline__ u32x4 tail_load(const bf16 *rows, int row, u32 piece) {
    u32x4 values = {};
    if (row >= 0 && piece < u32(C::kWidth / 8))
        values = *reinterpret_cast<const u32x4 *>(rows + u64(row) * C::kWidth + piece * 8);
    return values;
}

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
__device__ __forceinline__ void tail_block_sums(float (&squares)[C::kTopK], float *partial) {
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

// Factor of each route's row: its weight over its root mean square, zero where there is no row.
// `partial` holds [kWarps][kTopK] floats of shared memory. Holds a barrier of the block.
template <class C, int kHeld>
__device__ __forceinline__ void tail_factors(float (&factor)[C::kTopK],
                                             const u32x4 (&held)[C::kTopK][kHeld],
                                             const u32x4 (&gain)[kHeld], const int (&row)[C::kTopK],
                                             const float *weights, u32 token, float *partial) {
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
        factor[k] = 0;
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            if (tail_piece<C>(h) < u32(C::kWidth / 8)) {
                float v[8];
                tail_scale(v, held[k][h], gain[h], float(C::kCenter));
#pragma unroll
                for (int i = 0; i < 8; ++i)
                    factor[k] += v[i] * v[i];
            }
        }
    }
    tail_block_sums<C>(factor, partial);
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
        const float inverse = rsqrt_f32(factor[k] / float(C::kWidth) + float(C::kEps));
        factor[k] = row[k] >= 0 ? weights[token * u32(C::kTopK) + u32(k)] * inverse : 0.0f;
    }
}

// Eight sums, rounded.
__device__ __forceinline__ u32x4 tail_pack(const float (&sum)[8]) {
    return {pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3]), pack_bf16(sum[4], sum[5]),
            pack_bf16(sum[6], sum[7])};
}

// Adds a rank's eight values to the sum over those before it: in fp32 from +0, or (kBf16Each) from
// rank 0's values and rounded after every addition.
template <bool kBf16Each>
__device__ __forceinline__ void tail_add(float (&sum)[8], u32x4 values, u32 rank) {
    const u32 word[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float low = bf16_low(word[i]);
        const float high = bf16_high(word[i]);
        sum[2 * i] = kBf16Each && rank == 0 ? low : sum[2 * i] + low;
        sum[2 * i + 1] = kBf16Each && rank == 0 ? high : sum[2 * i + 1] + high;
        if constexpr (kBf16Each) {
            const u32 rounded = pack_bf16(sum[2 * i], sum[2 * i + 1]);
            sum[2 * i] = bf16_low(rounded);
            sum[2 * i + 1] = bf16_high(rounded);
        }
    }
}

// The weighted sum of a piece in slot order, rounded to bf16.
template <class C, int kHeld>
__device__ __forceinline__ u32x4 tail_weighted(const float (&factor)[C::kTopK],
                                               const u32x4 (&held)[C::kTopK][kHeld],
                                               const u32x4 (&gain)[kHeld], int h) {
    float sum[8] = {};
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
        float v[8];
        tail_scale(v, held[k][h], gain[h], float(C::kCenter));
#pragma unroll
        for (int i = 0; i < 8; ++i)
            sum[i] += v[i] * factor[k]; // 0 * 0 where there is no row
    }
    return tail_pack(sum);
}

#endif
