// SPDX-License-Identifier: Apache-2.0
// NVFP4 again, from the fp32 values of SwiGLU.
#ifndef LATHE_MOE_REQUANTISE_CUH
#define LATHE_MOE_REQUANTISE_CUH

#include "prims.cuh"

// Writes one block: 16 lanes hold its values. A block whose scale rounds to zero although it is not
// zero gets code 0.
template <class C>
__device__ __forceinline__ void requantise_block(float v, u32 column, u64 row, u32 slice, bool live,
                                                 u8 *codes2, e4m3 *scales2) {
    u32 most = float_bits(v) & 0x7fffffffu; // as bits: ordered like the numbers, with NaN on top
#pragma unroll
    for (u32 mask = 8; mask > 0; mask /= 2) {
        const u32 other = warp_shuffle_xor(most, mask);
        most = other > most ? other : most;
    }
    const e4m3 scale = float_to_e4m3(divide_f32(bits_float(most), 6.0f));
    const float step = e4m3_to_float(scale);
    u32 code = 0;
    if (most == 0)
        code = float_to_e2m1(v);
    else if (step != 0)
        code = float_to_e2m1(divide_f32(v, step));
    u32 word = code << (4 * (column % 8));
#pragma unroll
    for (u32 mask = 4; mask > 0; mask /= 2)
        word |= warp_shuffle_xor(word, mask);
    if (live && column % 8 == 0)
        *reinterpret_cast<u32 *>(codes2 + row * C::kOutBytes + slice * 8 + column / 2) = word;
    if (live && column == 0)
        scales2[row * C::kOutBlocks + slice] = scale;
}

#endif
