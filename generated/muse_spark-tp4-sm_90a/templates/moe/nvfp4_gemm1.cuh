// SPDX-License-Identifier: Apache-2.0
// First routed GEMM, W4A4: gate and up rows of 16 intermediate columns together, SwiGLU, and NVFP4
// again from fp32. Rows of a tile past its limit are neither read nor written; a tile that no
// expert needs costs one load.
#ifndef LATHE_MOE_NVFP4_GEMM1_CUH
#define LATHE_MOE_NVFP4_GEMM1_CUH

#include "moe/nvfp4.cuh"
#include "moe/nvfp4_slices.cuh"
#include "moe/requantise.cuh"
#include "moe/routed.cuh"
#include "prims.cuh"

// The warp's steps of the column's token, expanded; zero where there is none (null).
template <class C>
__device__ __forceinline__ void nvfp4_gemm1_tokens(u32 (&tokens)[C::kHeld][C::kStep / 8],
                                                   const u8 *codes, const e4m3 *scales, u32 pass) {
    constexpr u32 kSteps = C::kBlocks * 16 / C::kStep;
#pragma unroll
    for (int held = 0; held < C::kHeld; ++held) {
        const u32 step = nvfp4_gemm1_step<C>(pass, held);
        Nvfp4Piece<C::kStep> piece = {};
        if (codes != nullptr && step < kSteps)
            nvfp4_load<C::kStep>(piece, codes + step * u32(C::kStep / 2),
                                 scales + step * u32(C::kStep / 16), lane_id() % 4);
        nvfp4_expand<C::kStep>(tokens[held], piece);
    }
}

// Adds the warps' sums of a slice, applies SwiGLU and requantises; rows `first` to `limit` - 1.
template <class C>
__device__ __forceinline__ void nvfp4_gemm1_finish(const float *buffer, float gate_alpha,
                                                   float up_alpha, u32 first, u32 limit, u32 slice,
                                                   u8 *codes2, e4m3 *scales2) {
    for (u32 i = thread_id(); i < u32(16 * kRoutedTokens); i += u32(C::kWarps * 32)) {
        const u32 column = i % 16;
        const u32 token = i / 16;
        const float raw_gate = routed_sum<C::kWarps>(buffer, 0, token, column) * kNvfp4Product;
        const float raw_up = routed_sum<C::kWarps>(buffer, 1, token, column) * kNvfp4Product;
        const float gate = raw_gate * gate_alpha;
        const float v = gate * sigmoid_f32(gate) * raw_up * up_alpha;
        requantise_block<C>(v, column, first + token, slice, first + token < limit, codes2,
                            scales2);
    }
}

template <class C>
__device__ void nvfp4_gemm1(const u8 *codes, const e4m3 *scales, const u8 *w13,
                            const e4m3 *w13_scales, const int *permuted_to_token,
                            const int *cta_expert, const int *cta_limit, const int *ctas,
                            const float *gate_alpha, const float *up_alpha, u8 *codes2,
                            e4m3 *scales2) {
    static_assert(C::kRows > 0 && C::kExperts > 0, "there must be rows and experts");
    static_assert(C::kPermuted > C::kMaxCtas * C::kTile, "tokens of all tiles");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    static_assert(C::kTile % kRoutedTokens == 0, "a tile is whole groups of eight tokens");
    constexpr u32 kSteps = C::kBlocks * 16 / C::kStep;
    constexpr u32 kPasses = (kSteps + C::kHeld * C::kWarps - 1) / (C::kHeld * C::kWarps);

    grid_trigger();
    grid_wait();
    const u32 tile = block_id();
    if (tile >= u32(ctas[0]))
        return;
    const u32 expert = u32(cta_expert[tile]);
    const u32 limit = u32(cta_limit[tile]);
    const u32 begin = block_id_y() * u32(C::kSlices);
    const u32 end = begin + C::kSlices < C::kOutBlocks ? begin + C::kSlices : C::kOutBlocks;
    const u32 units = (end - begin) * kPasses; // a unit is one pass over k of one slice
    const float gate_scalar = bits_float(load_weight4(gate_alpha + expert));
    const float up_scalar = bits_float(load_weight4(up_alpha + expert));
    float *shared = reinterpret_cast<float *>(dynamic_shared()); // two buffers, used in turn
    u32 turn = 0;

    const u64 weight_row = u64(expert) * C::kGateUp + lane_id() / 4;
    const u8 *w_codes = w13 + weight_row * C::kCodeBytes;
    const e4m3 *w_scales = w13_scales + weight_row * C::kBlocks;

    for (u32 first = tile * C::kTile; first < limit && first < (tile + 1) * C::kTile;
         first += kRoutedTokens) {
        Nvfp4Piece<C::kStep> w[C::kHeld][4];
#pragma unroll
        for (int held = 0; held < C::kHeld; ++held)
            if (nvfp4_gemm1_step<C>(0, held) < kSteps)
                nvfp4_gemm1_fetch<C>(w[held], w_codes, w_scales, begin,
                                     nvfp4_gemm1_step<C>(0, held));
        const u8 *x_codes = nullptr; // of this lane's column, where it has a token
        const e4m3 *x_scales = nullptr;
        if (first + lane_id() / 4 < limit) {
            const u64 token = u64(permuted_to_token[first + lane_id() / 4]);
            x_codes = codes + token * C::kCodeBytes;
            x_scales = scales + token * C::kBlocks;
        }
        u32 tokens[C::kHeld][C::kStep / 8];
        float gate[4];
        float up[4];
        for (u32 unit = 0; unit < units; ++unit) {
            const u32 pass = unit % kPasses;
            const u32 next_pass = (unit + 1) % kPasses;
            const u32 next_slice = begin + (unit + 1) / kPasses;
            if (kPasses > 1 || unit == 0)
                nvfp4_gemm1_tokens<C>(tokens, x_codes, x_scales, pass);
            if (pass == 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    gate[i] = up[i] = 0;
            }
#pragma unroll
            for (int held = 0; held < C::kHeld; ++held) {
                if (nvfp4_gemm1_step<C>(pass, held) < kSteps) {
                    nvfp4_multiply<C::kStep>(gate, w[held][0], w[held][1], tokens[held]);
                    nvfp4_multiply<C::kStep>(up, w[held][2], w[held][3], tokens[held]);
                }
                // The registers are free: the next unit's weights travel while this one is
                // finished.
                if (unit + 1 < units && nvfp4_gemm1_step<C>(next_pass, held) < kSteps)
                    nvfp4_gemm1_fetch<C>(w[held], w_codes, w_scales, next_slice,
                                         nvfp4_gemm1_step<C>(next_pass, held));
            }
            if (next_pass == 0) {
                const u32 slice = begin + unit / kPasses;
                float *buffer = shared + (turn++ & 1) * u32(C::kWarps * 2 * kRoutedSums);
                routed_store(buffer, gate, up);
                block_sync();
                nvfp4_gemm1_finish<C>(buffer, gate_scalar, up_scalar, first, limit, slice, codes2,
                                      scales2);
            }
        }
    }
}

#endif
