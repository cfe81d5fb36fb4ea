// SPDX-License-Identifier: Apache-2.0
// First routed GEMM, W4A16: NVFP4 weights, exact in bf16, times bf16 activations; gate and up rows
// of 16 intermediate columns together, both global scales and SwiGLU in fp32, one rounding. Rows of
// a tile past its limit are neither read nor written; a tile that no expert needs costs one load.
#ifndef LATHE_MOE_NVFP4_GEMM1_BF16_CUH
#define LATHE_MOE_NVFP4_GEMM1_BF16_CUH

#include "moe/nvfp4.cuh"
#include "moe/routed.cuh"
#include "prims.cuh"

template <class C>
__device__ void nvfp4_gemm1_bf16(const bf16 *h1, const u8 *w13, const e4m3 *w13_scales,
                                 const int *permuted_to_token, const int *cta_expert,
                                 const int *cta_limit, const int *ctas, const float *gate_alpha,
                                 const float *up_alpha, bf16 *act) {
    static_assert(C::kRows > 0 && C::kExperts > 0, "there must be rows and experts");
    static_assert(C::kWidth == C::kBlocks * 16 && C::kGateUp == C::kColumns * 2,
                  "weights and activations of one width");
    static_assert(C::kPermuted > C::kMaxCtas * C::kTile, "tokens of all tiles");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    constexpr u32 kSteps = C::kBlocks * 16 / C::kStep;

    grid_trigger();
    grid_wait();
    if (block_id() >= u32(ctas[0]))
        return;
    const RoutedTile tile = routed_tile<C>(cta_expert, cta_limit);
    const float gate_scalar = bits_float(load_weight4(gate_alpha + tile.expert));
    const float up_scalar = bits_float(load_weight4(up_alpha + tile.expert));
    const u64 row = u64(tile.expert) * C::kGateUp + lane_id() / 4;
    const Nvfp4Weights<C::kStep, C::kBlocks, 16, C::kGateUp / 2> weights = {
        w13 + row * C::kCodeBytes, w13_scales + row * C::kBlocks};
    const RoutedTokens<C::kStep, C::kWidth> tokens = {h1};
    const RoutedSwiglu<C, C::kColumns> out = {kNvfp4WeightProduct, gate_scalar, up_scalar, act};
    routed_gemm<C, kSteps, C::kColumns / 16>(tile, weights, tokens, permuted_to_token, out);
}

#endif
