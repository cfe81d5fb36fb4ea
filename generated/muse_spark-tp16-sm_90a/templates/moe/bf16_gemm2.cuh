// SPDX-License-Identifier: Apache-2.0
// Second routed GEMM, bf16: rows of the permuted space, one per route, rounded to bf16; neither
// weighted nor summed. Rows of a tile past its limit are neither read nor written.
#ifndef LATHE_MOE_BF16_GEMM2_CUH
#define LATHE_MOE_BF16_GEMM2_CUH

#include "moe/bf16_rows.cuh"
#include "moe/routed.cuh"
#include "prims.cuh"

template <class C>
__device__ void bf16_gemm2(const bf16 *act, const bf16 *w2, const int *cta_expert,
                           const int *cta_limit, const int *ctas, bf16 *rows) {
    static_assert(C::kExperts > 0, "there must be experts");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    static_assert(C::kOutRows >= C::kMaxRows, "an output row for each input row");
    static_assert(C::kColumns % 32 == 0, "a slice is 32 columns");
    constexpr u32 kSteps = C::kWidth / C::kStep;

    grid_trigger();
    grid_wait();
    if (block_id() >= u32(ctas[0]))
        return;
    const RoutedTile tile = routed_tile<C>(cta_expert, cta_limit);
    const u64 row = u64(tile.expert) * C::kColumns + lane_id() / 4;
    const Bf16Weights<C::kStep, C::kWidth, 32, 16> weights = {w2 + row * C::kWidth};
    const RoutedTokens<C::kStep, C::kWidth> tokens = {act};
    const RoutedRows<C, C::kColumns> out = {1, 1, rows};
    routed_gemm<C, kSteps, C::kColumns / 32>(tile, weights, tokens, nullptr, out);
}

#endif
