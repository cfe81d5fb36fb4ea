// SPDX-License-Identifier: Apache-2.0
// Second routed GEMM, W4A16: NVFP4 weights, exact in bf16, times bf16 activations; rows of the
// permuted space, one per route, scaled and rounded to bf16; neither weighted nor summed. Rows of a
// tile past its limit are neither read nor written; a tile that no expert needs costs one load.
#ifndef LATHE_MOE_NVFP4_GEMM2_BF16_CUH
#define LATHE_MOE_NVFP4_GEMM2_BF16_CUH

#include "moe/nvfp4.cuh"
#include "moe/routed.cuh"
#include "prims.cuh"

template <class C>
__device__ void nvfp4_gemm2_bf16(const bf16 *act, const u8 *w2, const e4m3 *w2_scales,
                                 const float *alpha, const int *cta_expert, const int *cta_limit,
                                 const int *ctas, bf16 *rows) {
    static_assert(C::kExperts > 0, "there must be experts");
    static_assert(C::kInner == C::kBlocks * 16, "weights and activations of one width");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    static_assert(C::kOutRows >= C::kMaxRows, "an output row for each input row");
    static_assert(C::kWidth % 32 == 0, "a slice is 32 columns");
    constexpr u32 kSteps = C::kBlocks * 16 / C::kStep;

    grid_trigger();
    grid_wait();
    if (block_id() >= u32(ctas[0]))
        return;
    const RoutedTile tile = routed_tile<C>(cta_expert, cta_limit);
    const float scalar = bits_float(load_weight4(alpha + tile.expert));
    const u64 row = u64(tile.expert) * C::kWidth + lane_id() / 4;
    const Nvfp4Weights<C::kStep, C::kBlocks, 32, 16> weights = {w2 + row * C::kCodeBytes,
                                                                w2_scales + row * C::kBlocks};
    const RoutedTokens<C::kStep, C::kInner> tokens = {act};
    const RoutedRows<C, C::kWidth> out = {kNvfp4WeightProduct, scalar, rows};
    routed_gemm<C, kSteps, C::kWidth / 32>(tile, weights, tokens, nullptr, out);
}

#endif
