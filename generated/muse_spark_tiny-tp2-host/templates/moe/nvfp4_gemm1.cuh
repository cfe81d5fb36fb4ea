// SPDX-License-Identifier: Apache-2.0
// First routed GEMM, W4A4: gate and up rows of 16 intermediate columns together, SwiGLU, and NVFP4
// again from fp32. Rows of a tile past its limit are neither read nor written; a tile that no
// expert needs costs one load.
#ifndef LATHE_MOE_NVFP4_GEMM1_CUH
#define LATHE_MOE_NVFP4_GEMM1_CUH

#include "moe/nvfp4.cuh"
#include "moe/requantise.cuh"
#include "moe/routed.cuh"
#include "prims.cuh"

// SwiGLU and requantisation of a slice's sums, rows `first` to `limit` - 1.
template <class C>
struct Nvfp4Gemm1Out {
    float gate_scale, up_scale;
    u8 *codes2;
    e4m3 *scales2;

    __device__ __forceinline__ void write(const float *buffer, u32 first, u32 limit,
                                          u32 slice) const {
        for (u32 i = thread_id(); i < u32(16 * kRoutedTokens); i += u32(C::kWarps * 32)) {
            const u32 column = i % 16;
            const u32 token = i / 16;
            const float raw_gate = routed_sum<C::kWarps>(buffer, 0, token, column) * kNvfp4Product;
            const float raw_up = routed_sum<C::kWarps>(buffer, 1, token, column) * kNvfp4Product;
            const float gate = raw_gate * gate_scale;
            const float v = gate * sigmoid_f32(gate) * raw_up * up_scale;
            requantise_block<C>(v, column, first + token, slice, first + token < limit, codes2,
                                scales2);
        }
    }
};

template <class C>
__device__ void nvfp4_gemm1(const u8 *codes, const e4m3 *scales, const u8 *w13,
                            const e4m3 *w13_scales, const int *permuted_to_token,
                            const int *cta_expert, const int *cta_limit, const int *ctas,
                            const float *gate_alpha, const float *up_alpha, u8 *codes2,
                            e4m3 *scales2) {
    static_assert(C::kRows > 0 && C::kExperts > 0, "there must be rows and experts");
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
    const Nvfp4Tokens<C::kStep, C::kBlocks> tokens = {codes, scales};
    const Nvfp4Gemm1Out<C> out = {gate_scalar, up_scalar, codes2, scales2};
    routed_gemm<C, kSteps, C::kOutBlocks>(tile, weights, tokens, permuted_to_token, out);
}

#endif
