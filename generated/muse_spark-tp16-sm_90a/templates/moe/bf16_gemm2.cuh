// SPDX-License-Identifier: Apache-2.0
// Second routed GEMM, bf16: rows of the permuted space, one per route, rounded to bf16; neither
// weighted nor summed. Rows of a tile past its limit are neither read nor written.
#ifndef LATHE_MOE_BF16_GEMM2_CUH
#define LATHE_MOE_BF16_GEMM2_CUH

#include "moe/bf16_rows.cuh"
#include "moe/routed.cuh"
#include "prims.cuh"

// Where the warp's step `held` of pass `pass` lies: warps own runs of kHeld steps.
template <class C>
__device__ __forceinline__ u32 bf16_gemm2_step(u32 pass, int held) {
    return (pass * u32(C::kWarps) + warp_id()) * u32(C::kHeld) + u32(held);
}

// Rows g, g + 8, g + 16 and g + 24 of one slice of 32 output columns, and the column's row of
// activations, over one step. `w2` points at row g of the expert; the activations' piece stays zero
// where there is no row (null).
template <class C>
__device__ __forceinline__ void bf16_gemm2_fetch(Bf16Piece<C::kStep> (&w)[4],
                                                 Bf16Piece<C::kStep> &x, const bf16 *w2,
                                                 const bf16 *row, u32 slice, u32 step) {
    w2 += slice * u32(32 * C::kWidth) + step * u32(C::kStep);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        bf16_load_weight<C::kStep>(w[i], w2 + i * 8 * C::kWidth, lane_id() % 4);
    if (row != nullptr)
        bf16_load<C::kStep>(x, row + step * u32(C::kStep), lane_id() % 4);
}

// Adds the warps' sums of a slice and writes rows `first` to `limit` - 1, two columns a thread.
template <class C>
__device__ __forceinline__ void bf16_gemm2_finish(const float *buffer, u32 first, u32 limit,
                                                  u32 slice, bf16 *rows) {
    for (u32 i = thread_id(); i < u32(16 * kRoutedTokens); i += u32(C::kWarps * 32)) {
        const u32 column = i % 16 * 2;
        const u32 token = i / 16;
        if (first + token >= limit)
            continue;
        const float low = routed_sum<C::kWarps>(buffer, column / 16, token, column % 16);
        const float high = routed_sum<C::kWarps>(buffer, column / 16, token, column % 16 + 1);
        bf16 *out = rows + u64(first + token) * C::kColumns + slice * 32 + column;
        *reinterpret_cast<u32 *>(out) = pack_bf16(low, high);
    }
}

template <class C>
__device__ void bf16_gemm2(const bf16 *act, const bf16 *w2, const int *cta_expert,
                           const int *cta_limit, const int *ctas, bf16 *rows) {
    static_assert(C::kExperts > 0, "there must be experts");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    static_assert(C::kOutRows >= C::kMaxRows, "an output row for each input row");
    static_assert(C::kTile % kRoutedTokens == 0, "a tile is whole groups of eight tokens");
    static_assert(C::kColumns % 32 == 0, "a slice is 32 columns");
    constexpr u32 kSteps = C::kWidth / C::kStep;
    constexpr u32 kPasses = (kSteps + C::kHeld * C::kWarps - 1) / (C::kHeld * C::kWarps);
    constexpr u32 kAll = C::kColumns / 32;

    grid_trigger();
    grid_wait();
    const u32 tile = block_id();
    if (tile >= u32(ctas[0]))
        return;
    const u32 expert = u32(cta_expert[tile]);
    const u32 limit = u32(cta_limit[tile]);
    const u32 begin = block_id_y() * u32(C::kSlices);
    const u32 end = begin + C::kSlices < kAll ? begin + C::kSlices : kAll;
    const u32 units = (end - begin) * kPasses; // a unit is one pass over k of one slice
    float *shared = reinterpret_cast<float *>(dynamic_shared()); // two buffers, used in turn
    u32 turn = 0;

    const bf16 *w_row = w2 + (u64(expert) * C::kColumns + lane_id() / 4) * C::kWidth;

    for (u32 first = tile * C::kTile; first < limit && first < (tile + 1) * C::kTile;
         first += kRoutedTokens) {
        const u64 lane_row = first + lane_id() / 4;
        const bf16 *row = lane_row < limit ? act + lane_row * C::kWidth : nullptr;
        Bf16Piece<C::kStep> w[C::kHeld][4];
        Bf16Piece<C::kStep> x[C::kHeld] = {};
#pragma unroll
        for (int held = 0; held < C::kHeld; ++held)
            if (bf16_gemm2_step<C>(0, held) < kSteps)
                bf16_gemm2_fetch<C>(w[held], x[held], w_row, row, begin,
                                    bf16_gemm2_step<C>(0, held));
        float low[4];
        float high[4];
        for (u32 unit = 0; unit < units; ++unit) {
            const u32 pass = unit % kPasses;
            const u32 next_pass = (unit + 1) % kPasses;
            const u32 next_slice = begin + (unit + 1) / kPasses;
            if (pass == 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    low[i] = high[i] = 0;
            }
#pragma unroll
            for (int held = 0; held < C::kHeld; ++held) {
                if (bf16_gemm2_step<C>(pass, held) < kSteps) {
                    bf16_multiply<C::kStep>(low, w[held][0], w[held][1], x[held]);
                    bf16_multiply<C::kStep>(high, w[held][2], w[held][3], x[held]);
                }
                // The registers are free: the next unit's weights travel while this one is
                // finished.
                const u32 next_step = bf16_gemm2_step<C>(next_pass, held);
                if (unit + 1 < units && next_step < kSteps)
                    bf16_gemm2_fetch<C>(w[held], x[held], w_row, row, next_slice, next_step);
            }
            if (next_pass == 0) {
                const u32 slice = begin + unit / kPasses;
                float *buffer = shared + (turn++ & 1) * u32(C::kWarps * 2 * kRoutedSums);
                routed_store(buffer, low, high);
                block_sync();
                bf16_gemm2_finish<C>(buffer, first, limit, slice, rows);
            }
        }
    }
}

#endif
