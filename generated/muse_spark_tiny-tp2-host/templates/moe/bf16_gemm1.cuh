// SPDX-License-Identifier: Apache-2.0
// First routed GEMM, bf16: gate and up rows of 16 intermediate columns together and SwiGLU; gate
// and up stay fp32, the product is rounded once. Rows of a tile past its limit are neither read nor
// written.
#ifndef LATHE_MOE_BF16_GEMM1_CUH
#define LATHE_MOE_BF16_GEMM1_CUH

#include "moe/bf16_rows.cuh"
#include "moe/routed.cuh"
#include "prims.cuh"

// Where the warp's step `held` of pass `pass` lies: warps own runs of kHeld steps.
template <class C>
__device__ __forceinline__ u32 bf16_gemm1_step(u32 pass, int held) {
    return (pass * u32(C::kWarps) + warp_id()) * u32(C::kHeld) + u32(held);
}

// Gate rows g and g + 8, up rows g and g + 8 of one slice of 16 columns, and the column's token,
// over one step. `w13` points at gate row g of the expert; the token's piece stays zero where there
// is none (null).
template <class C>
__device__ __forceinline__ void bf16_gemm1_fetch(Bf16Piece<C::kStep> (&w)[4],
                                                 Bf16Piece<C::kStep> &x, const bf16 *w13,
                                                 const bf16 *token, u32 slice, u32 step) {
    w13 += slice * u32(16 * C::kWidth) + step * u32(C::kStep);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const u32 row = u32(i / 2) * u32(C::kColumns) + u32(i % 2) * 8;
        bf16_load_weight<C::kStep>(w[i], w13 + row * u32(C::kWidth), lane_id() % 4);
    }
    if (token != nullptr)
        bf16_load<C::kStep>(x, token + step * u32(C::kStep), lane_id() % 4);
}

// Adds the warps' sums of a slice, applies SwiGLU and writes rows `first` to `limit` - 1, two
// columns a thread.
template <class C>
__device__ __forceinline__ void bf16_gemm1_finish(const float *buffer, u32 first, u32 limit,
                                                  u32 slice, bf16 *act) {
    for (u32 i = thread_id(); i < u32(8 * kRoutedTokens); i += u32(C::kWarps * 32)) {
        const u32 column = i % 8 * 2;
        const u32 token = i / 8;
        if (first + token >= limit)
            continue;
        float v[2];
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
            const float gate = routed_sum<C::kWarps>(buffer, 0, token, column + j);
            const float up = routed_sum<C::kWarps>(buffer, 1, token, column + j);
            v[j] = gate * sigmoid_f32(gate) * up;
        }
        bf16 *out = act + u64(first + token) * C::kColumns + slice * 16 + column;
        *reinterpret_cast<u32 *>(out) = pack_bf16(v[0], v[1]);
    }
}

template <class C>
__device__ void bf16_gemm1(const bf16 *h1, const bf16 *w13, const int *permuted_to_token,
                           const int *cta_expert, const int *cta_limit, const int *ctas,
                           bf16 *act) {
    static_assert(C::kRows > 0 && C::kExperts > 0, "there must be rows and experts");
    static_assert(C::kGateUp == 2 * C::kColumns, "gate rows, then up rows");
    static_assert(C::kPermuted > C::kMaxCtas * C::kTile, "tokens of all tiles");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    static_assert(C::kTile % kRoutedTokens == 0, "a tile is whole groups of eight tokens");
    constexpr u32 kSteps = C::kWidth / C::kStep;
    constexpr u32 kPasses = (kSteps + C::kHeld * C::kWarps - 1) / (C::kHeld * C::kWarps);
    constexpr u32 kAll = C::kColumns / 16;

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

    const bf16 *w_row = w13 + (u64(expert) * C::kGateUp + lane_id() / 4) * C::kWidth;

    for (u32 first = tile * C::kTile; first < limit && first < (tile + 1) * C::kTile;
         first += kRoutedTokens) {
        const bf16 *token = nullptr; // of this lane's column, where it has one
        if (first + lane_id() / 4 < limit)
            token = h1 + u64(permuted_to_token[first + lane_id() / 4]) * C::kWidth;
        Bf16Piece<C::kStep> w[C::kHeld][4];
        Bf16Piece<C::kStep> x[C::kHeld] = {};
#pragma unroll
        for (int held = 0; held < C::kHeld; ++held)
            if (bf16_gemm1_step<C>(0, held) < kSteps)
                bf16_gemm1_fetch<C>(w[held], x[held], w_row, token, begin,
                                    bf16_gemm1_step<C>(0, held));
        float gate[4];
        float up[4];
        for (u32 unit = 0; unit < units; ++unit) {
            const u32 pass = unit % kPasses;
            const u32 next_pass = (unit + 1) % kPasses;
            const u32 next_slice = begin + (unit + 1) / kPasses;
            if (pass == 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    gate[i] = up[i] = 0;
            }
#pragma unroll
            for (int held = 0; held < C::kHeld; ++held) {
                if (bf16_gemm1_step<C>(pass, held) < kSteps) {
                    bf16_multiply<C::kStep>(gate, w[held][0], w[held][1], x[held]);
                    bf16_multiply<C::kStep>(up, w[held][2], w[held][3], x[held]);
                }
                // The registers are free: the next unit's weights travel while this one is
                // finished.
                const u32 next_step = bf16_gemm1_step<C>(next_pass, held);
                if (unit + 1 < units && next_step < kSteps)
                    bf16_gemm1_fetch<C>(w[held], x[held], w_row, token, next_slice, next_step);
            }
            if (next_pass == 0) {
                const u32 slice = begin + unit / kPasses;
                float *buffer = shared + (turn++ & 1) * u32(C::kWarps * 2 * kRoutedSums);
                routed_store(buffer, gate, up);
                block_sync();
                bf16_gemm1_finish<C>(buffer, first, limit, slice, act);
            }
        }
    }
}

#endif
