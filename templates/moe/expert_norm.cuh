// SPDX-License-Identifier: Apache-2.0
// Pooled rows to the bf16 input of unquantised experts: norm in fp32, one rounding. One block a
// row.
#ifndef LATHE_MOE_EXPERT_NORM_CUH
#define LATHE_MOE_EXPERT_NORM_CUH

#include "moe/pooled.cuh"
#include "prims.cuh"

template <class C>
__device__ void expert_norm(const bf16 *columns, const float *partials, const bf16 *gain,
                            bf16 *h1) {
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
    float squares = 0;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        const u32 block = u32(slot) * kThreads + thread_id();
        if (block < kBlocks) {
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
        if (block < kBlocks) {
            pooled_scale(v[slot], held_gain[slot], inverse, float(C::kCenter));
            u32x4 *out = reinterpret_cast<u32x4 *>(h1 + row * C::kWidth + block * 16);
            out[0] = pooled_pack(v[slot]);
            out[1] = pooled_pack(v[slot] + 8);
        }
    }
}

#endif
