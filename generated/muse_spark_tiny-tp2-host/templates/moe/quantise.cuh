// SPDX-License-Identifier: Apache-2.0
// NVFP4 quantisation of expert inputs: block scales and codes with true divisions.
#ifndef LATHE_MOE_QUANTISE_CUH
#define LATHE_MOE_QUANTISE_CUH

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

// Quantises the row that the block holds, sixteen values a slot.
template <class C, int kSlots>
__device__ __forceinline__ void quantise_row(const float (&v)[kSlots][16], float global, u8 *codes,
                                             e4m3 *scales, u64 row) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        const u32 block = u32(slot) * u32(C::kWarps * 32) + thread_id();
        if (block < u32(C::kBlocks)) {
            u32x2 word;
            e4m3 scale;
            quantise_block(v[slot], global, word, scale);
            *reinterpret_cast<u32x2 *>(codes + row * C::kCodeBytes + block * 8) = word;
            scales[row * C::kBlocks + block] = scale;
        }
    }
}

#endif
