// SPDX-License-Identifier: Apache-2.0
// Tail of the experts on one rank, one block a token; each row is read once.
#ifndef LATHE_MOE_TAIL_CUH
#define LATHE_MOE_TAIL_CUH

#include "moe/tail_rows.cuh"
#include "prims.cuh"

template <class C>
__device__ void tail(const bf16 *rows, const int *expanded_to_permuted, const bf16 *gain,
                     const float *weights, bf16 *m) {
    constexpr int kHeld = TailShape<C>::kHeld;
    const u32 token = block_id();

    u32x4 held_gain[kHeld];
    tail_gains<C, kHeld>(held_gain, gain);
    grid_trigger();
    grid_wait();

    int row[C::kTopK];
    u32x4 held[C::kTopK][kHeld];
    float factor[C::kTopK];
    tail_routes<C>(row, expanded_to_permuted, token);
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
#pragma unroll
        for (int h = 0; h < kHeld; ++h)
            held[k][h] = tail_load<C>(rows, row[k], tail_piece<C>(h));
    }
    tail_factors<C, kHeld>(factor, held, held_gain, row, weights, token,
                           reinterpret_cast<float *>(dynamic_shared()));
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
        if (tail_piece<C>(h) < TailShape<C>::kPieces)
            *reinterpret_cast<u32x4 *>(m + u64(token) * C::kWidth + tail_piece<C>(h) * 8) =
                tail_weighted<C, kHeld>(factor, held, held_gain, h);
}

#endif
