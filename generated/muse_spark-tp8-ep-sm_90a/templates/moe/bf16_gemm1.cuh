// SPDX-License-Identifier: Apache-2.0
// First routed GEMM, bf16: gate and up rows of 16 intermediate columns together and SwiGLU; gate
// and up stay fp32, the product is rounded once. Rows of a tile past its limit are neither read nor
// written.
#ifndef LATHE_MOE_BF16_GEMM1_CUH
#define LATHE_MOE_BF16_GEMM1_CUH

#include "moe/bf16_rows.cuh"
#include "moe/routed.cuh"
#include "prims.cuh"

template <class C>
__device__ void bf16_gemm1(const bf16 *h1, const bf16 *w13, const int *permuted_to_token,
                           const int *cta_expert, const int *cta_limit, const int *ctas,
                           bf16 *act) {
    static_assert(C::kRows > 0 && C::kExperts > 0, "there must be rows and experts");
    static_assert(C::kGateUp == 2 * C::kColumns, "gate rows, then up rows");
    static_assert(C::kPermuted > C::kMaxCtas * C::kTile, "tokens of all tiles");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    constexpr u32 kSteps = C::kWidth / C::kStep;

    grid_trigger();
    grid_wait();
    if (block_id() >= u32(ctas[0]))
        return;
    const RoutedTile tile = routed_tile<C>(cta_expert, cta_limit);
    const u64 row = u64(tile.expert) * C::kGateUp + lane_id() / 4;
    const Bf16Weights<C::kStep, C::kWidth, 16, C::kGateUp / 2> weights = {w13 + row * C::kWidth};
    const RoutedTokens<C::kStep, C::kWidth> tokens = {h1};
    const RoutedSwiglu<C, C::kColumns> out = {1, 1, 1, act};
    routed_gemm<C, kSteps, C::kColumns / 16>(tile, weights, tokens, permuted_to_token, out);
}

#endif
