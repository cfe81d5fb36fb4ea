// SPDX-License-Identifier: Apache-2.0
// Pooled rows to NVFP4: norm in fp32, one rounding to bf16, then block scales and codes with true
// divisions. One block a row. Sharing no work between rows costs nothing: a row is a few kilobytes.
#ifndef LATHE_MOE_NORM_QUANTISE_CUH
#define LATHE_MOE_NORM_QUANTISE_CUH

#include "moe/pooled.cuh"
#include "prims.cuh"

// Codes of one block, lowest nibble first, and its scale. A NaN anywhere makes the whole block NaN;
// a block whose scale rounds to zero although it is not zero gets code 0.
__device__ __forceinline__ void quantise_block(const float (&y)[16], float global, u32x2 &codes,
                                               e4m3 &scale) {
    u32 most = 0; // of absolute values as bits: ordered like the numbers, with NaN on top
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const u32 bits = float_bits(y[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    scale = float_to_e4m3(global * divide_f32(bits_float(most), 6.0f));
    const float step = e4m3_to_float(scale);
    float inverse = divide_f32(1.0f, divide_f32(step, global));
    if (inverse > bits_float(0x7f7fffffu))
        inverse = bits_float(0x7f7fffffu);
    const bool lost = most != 0 && step == 0;
    u32 word[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 16; ++i)
        word[i / 8] |= (lost ? 0u : float_to_e2m1(y[i] * inverse)) << (4 * (i % 8));
    codes.x = word[0];
    codes.y = word[1];
}

template <class C>
__device__ void norm_quantise(const bf16 *columns, const float *partials, const bf16 *gain,
                              const float *input_gscale, bf16 *h1, u8 *codes, e4m3 *scales) {
    static_assert(C::kWidth == C::kBlocks * 16 && C::kWidth == C::kCodeBytes * 2,
                  "codes and scales must fit the width");
    constexpr u32 kThreads = C::kWarps * 32;
    constexpr int kSlots = (C::kBlocks + int(kThreads) - 1) / int(kThreads);
    float *scratch = reinterpret_cast<float *>(dynamic_shared());
    const u64 row = block_id();

    u32x4 held_gain[kSlots][2];
    pooled_gains<kSlots>(held_gain, gain, kThreads, C::kBlocks);
    const float global = bits_float(load_weight4(input_gscale));
    grid_trigger();
    grid_wait();

    float v[kSlots][16];
    float squares = 0;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        const u32 block = u32(slot) * kThreads + thread_id();
        if (block < u32(C::kBlocks)) {
            const u64 at = row * C::kWidth + block * 16;
            if constexpr (C::kSplits == 0)
                pooled_read(v[slot], columns + at);
            else
                pooled_sum<C::kSplits>(v[slot], partials + at, u64(C::kRows) * C::kWidth);
#pragma unroll
            for (int i = 0; i < 16; ++i)
                squares += v[slot][i] * v[slot][i];
        }
    }
    const float mean = pooled_block_sum<C::kWarps>(squares, scratch) / float(C::kWidth);
    const float inverse = rsqrt_f32(mean + float(C::kEps));
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        const u32 block = u32(slot) * kThreads + thread_id();
        if (block < u32(C::kBlocks)) {
            pooled_scale(v[slot], held_gain[slot], inverse, float(C::kCenter));
            if constexpr (C::kHasH1 != 0) {
                u32x4 *out = reinterpret_cast<u32x4 *>(h1 + row * C::kWidth + block * 16);
                out[0] = pooled_pack(v[slot]);
                out[1] = pooled_pack(v[slot] + 8);
            }
            u32x2 word;
            e4m3 scale;
            quantise_block(v[slot], global, word, scale);
            *reinterpret_cast<u32x2 *>(codes + row * C::kCodeBytes + block * 8) = word;
            scales[row * C::kBlocks + block] = scale;
        }
    }
}

#endif
