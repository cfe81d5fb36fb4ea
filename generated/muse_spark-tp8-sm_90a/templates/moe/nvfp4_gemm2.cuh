// SPDX-License-Identifier: Apache-2.0
// Second routed GEMM, W4A4: rows of the permuted space, one per route, scaled and rounded to bf16;
// neither weighted nor summed. Rows of a tile past its limit are neither read nor written; a tile
// that no expert needs costs one load.
#ifndef LATHE_MOE_NVFP4_GEMM2_CUH
#define LATHE_MOE_NVFP4_GEMM2_CUH

#include "moe/nvfp4.cuh"
#include "moe/nvfp4_slices.cuh"
#include "moe/routed.cuh"
#include "prims.cuh"

// The warp's steps of the column's row, expanded; zero where there is none (null).
template <class C>
__device__ __forceinline__ void nvfp4_gemm2_tokens(u32 (&tokens)[C::kHeld][C::kStep / 8],
                                                   const u8 *codes, const e4m3 *scales, u32 pass) {
    constexpr u32 kSteps = C::kBlocks * 16 / C::kStep;
#pragma unroll
    for (int held = 0; held < C::kHeld; ++held) {
        const u32 step = nvfp4_gemm2_step<C>(pass, held);
        Nvfp4Piece<C::kStep> piece = {};
        if (codes != nullptr && step < kSteps)
            nvfp4_load<C::kStep>(piece, codes + step * u32(C::kStep / 2),
                                 scales + step * u32(C::kStep / 16), lane_id() % 4);
        nvfp4_expand<C::kStep>(tokens[held], piece);
    }
}

// Adds the warps' sums of a slice and writes rows `first` to `limit` - 1, two columns a thread.
template <class C>
__device__ __forceinline__ void nvfp4_gemm2_finish(const float *buffer, float alpha, u32 first,
                                                   u32 limit, u32 slice, bf16 *rows) {
    for (u32 i = thread_id(); i < u32(16 * kRoutedTokens); i += u32(C::kWarps * 32)) {
        const u32 column = i % 16 * 2;
        const u32 token = i / 16;
        if (first + token >= limit)
            continue;
        const float low = routed_sum<C::kWarps>(buffer, column / 16, token, column % 16);
        const float high = routed_sum<C::kWarps>(buffer, column / 16, token, column % 16 + 1);
        bf16 *out = rows + u64(first + token) * C::kWidth + slice * 32 + column;
        *reinterpret_cast<u32 *>(out) =
            pack_bf16(low * kNvfp4Product * alpha, high * kNvfp4Product * alpha);
    }
}

template <class C>
__device__ void nvfp4_gemm2(const u8 *codes2, const e4m3 *scales2, const u8 *w2,
                            const e4m3 *w2_scales, const float *alpha, const int *cta_expert,
                            const int *cta_limit, const int *ctas, bf16 *rows) {
    static_assert(C::kExperts > 0, "there must be experts");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    static_assert(C::kOutRows >= C::kMaxRows, "an output row for each input row");
    static_assert(C::kTile % kRoutedTokens == 0, "a tile is whole groups of eight tokens");
    static_assert(C::kWidth % 32 == 0, "a slice is 32 columns");
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
    const u32 end = begin + C::kSlices < C::kWidth / 32 ? begin + C::kSlices : C::kWidth / 32;
    const u32 units = (end - begin) * kPasses; // a unit is one pass over k of one slice
    const float scalar = bits_float(load_weight4(alpha + expert));
    float *shared = reinterpret_cast<float *>(dynamic_shared()); // two buffers, used in turn
    u32 turn = 0;

    const u64 weight_row = u64(expert) * C::kWidth + lane_id() / 4;
    const u8 *w_codes = w2 + weight_row * C::kCodeBytes;
    const e4m3 *w_scales = w2_scales + weight_row * C::kBlocks;

    for (u32 first = tile * C::kTile; first < limit && first < (tile + 1) * C::kTile;
         first += kRoutedTokens) {
        Nvfp4Piece<C::kStep> w[C::kHeld][4];
#pragma unroll
        for (int held = 0; held < C::kHeld; ++held)
            if (nvfp4_gemm2_step<C>(0, held) < kSteps)
                nvfp4_gemm2_fetch<C>(w[held], w_codes, w_scales, begin,
                                     nvfp4_gemm2_step<C>(0, held));
        const u64 row = first + lane_id() / 4;
        const u8 *x_codes = row < limit ? codes2 + row * C::kCodeBytes : nullptr;
        const e4m3 *x_scales = scales2 + row * C::kBlocks;
        u32 tokens[C::kHeld][C::kStep / 8];
        float low[4];
        float high[4];
        for (u32 unit = 0; unit < units; ++unit) {
            const u32 pass = unit % kPasses;
            const u32 next_pass = (unit + 1) % kPasses;
            const u32 next_slice = begin + (unit + 1) / kPasses;
            if (kPasses > 1 || unit == 0)
                nvfp4_gemm2_tokens<C>(tokens, x_codes, x_scales, pass);
            if (pass == 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    low[i] = high[i] = 0;
            }
#pragma unroll
            for (int held = 0; held < C::kHeld; ++held) {
                if (nvfp4_gemm2_step<C>(pass, held) < kSteps) {
                    nvfp4_multiply<C::kStep>(low, w[held][0], w[held][1], tokens[held]);
                    nvfp4_multiply<C::kStep>(high, w[held][2], w[held][3], tokens[held]);
                }
                // The registers are free: the next unit's weights travel while this one is
                // finished.
                if (unit + 1 < units && nvfp4_gemm2_step<C>(next_pass, held) < kSteps)
                    nvfp4_gemm2_fetch<C>(w[held], w_codes, w_scales, next_slice,
                                         nvfp4_gemm2_step<C>(next_pass, held));
            }
            if (next_pass == 0) {
                const u32 slice = begin + unit / kPasses;
                float *buffer = shared + (turn++ & 1) * u32(C::kWarps * 2 * kRoutedSums);
                routed_store(buffer, low, high);
                block_sync();
                nvfp4_gemm2_finish<C>(buffer, scalar, first, limit, slice, rows);
            }
        }
    }
}

#endif
