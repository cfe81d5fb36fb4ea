// SPDX-License-Identifier: Apache-2.0
// Pooled rows to the bf16 input of unquantised experts: norm in fp32, one rounding. One block a
// row.
#ifndef LATHE_MOE_EXPERT_NORM_CUH
#define LATHE_MOE_EXPERT_NORM_CUH

#include "moe/pooled.cuh"
#include "prims.cuh"

template <class C>
__device__ void expert_norm(const bf16 *columns, const float *partials, const bf16 *gathered,
                            const bf16 *gain, bf16 *h1) {
    static_assert(C::kWidth % 16 == 0, "the width must be a multiple of 16");
    constexpr u32 kThreads = C::kWarps * 32;
    constexpr u32 kBlocks = C::kWidth / 16;
    constexpr int kSlots = int((kBlocks + kThreads - 1) / kThreads);
    float *scratch = reinterpret_cast<float *>(dynamic_shared());
    const u64 row = block_id();

    u32x4 held_gain[kSlots][2];
    pooled_gains<kSlots>(held_gain, gain, kThreads, kBlocks);
    grid_trigger();
    grid_wait();

    float v[kSlots][16];
    pooled_local<C, kSlots>(v, columns, partials, gathered, row);
    pooled_norm<C, kSlots>(v, held_gain, scratch);
    pooled_write<C, kSlots>(v, h1, row);
}

#endif
