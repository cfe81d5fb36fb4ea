// SPDX-License-Identifier: Apache-2.0
// Pooled rows to NVFP4: norm in fp32, one rounding to bf16, then block scales and codes. One block
// a row. Sharing no work between rows costs nothing: a row is a few kilobytes.
#ifndef LATHE_MOE_NORM_QUANTISE_CUH
#define LATHE_MOE_NORM_QUANTISE_CUH

#include "moe/pooled.cuh"
#include "moe/quantise.cuh"
#include "prims.cuh"

template <class C>
__device__ void norm_quantise(const bf16 *columns, const float *partials, const bf16 *gathered,
                              const bf16 *gain, const float *input_gscale, u8 *codes,
                              e4m3 *scales) {
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
    pooled_local<C, kSlots>(v, columns, partials, gathered, row);
    pooled_norm<C, kSlots>(v, held_gain, scratch);
    quantise_row<C, kSlots>(v, global, codes, scales, row);
}

#endif
