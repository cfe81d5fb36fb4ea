// SPDX-License-Identifier: Apache-2.0
// Expert inputs for the probe: a thread makes 16 values of a row. A value is the sum of four
// uniform 16-bit numbers, centred, over its standard deviation: near enough to normal, and the same
// bits everywhere.
#ifndef LATHE_PROBE_ROWS_CUH
#define LATHE_PROBE_ROWS_CUH

#include "moe/quantise.cuh"
#include "prims.cuh"

__device__ __forceinline__ u32 probe_hash(u32 x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

// Element `i`, rounded to bf16. 131070 is the sum's mean; a sum of four has a variance of 2^32 / 3.
__device__ __forceinline__ bf16 probe_value(u32 i) {
    const u32 a = probe_hash(2 * i + 1);
    const u32 b = probe_hash(2 * i + 2);
    const int sum = int((a & 0xffffu) + (a >> 16) + (b & 0xffffu) + (b >> 16)) - 131070;
    return float_to_bf16(float(sum) * 2.6428968e-5f);
}

template <class C>
__device__ void probe_rows(const float *input_gscale, u8 *codes, e4m3 *scales, bf16 *h1) {
    static_assert(C::kQuantised == 1 ? C::kCodeBytes == C::kBlocks * 8 : C::kWidth % 16 == 0,
                  "whole blocks");
    constexpr u32 kCount = C::kQuantised ? C::kBlocks : C::kWidth / 16;
    const u32 block = block_id() * block_threads() + thread_id();
    const u32 row = block_id_y();
    if (block >= kCount || row >= u32(C::kRows))
        return;
    const u32 place = row * kCount + block;
    if constexpr (C::kQuantised == 1) {
        float y[16];
#pragma unroll
        for (u32 i = 0; i < 16; ++i)
            y[i] = bf16_to_float(probe_value(place * 16 + i));
        u32x2 word;
        e4m3 scale;
        quantise_block(y, input_gscale[0], word, scale);
        *reinterpret_cast<u32x2 *>(codes + place * 8) = word;
        scales[place] = scale;
    } else {
#pragma unroll
        for (u32 i = 0; i < 16; ++i)
            h1[place * 16 + i] = probe_value(place * 16 + i);
    }
}

#endif
