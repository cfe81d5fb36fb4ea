// SPDX-License-Identifier: Apache-2.0
// bf16 operands of the routed GEMMs. The sum over k runs in any order, so each lane of a quad takes
// values that are neighbours in memory. A piece is what one lane holds of one row over kStep
// consecutive k:
//   kStep 32: 16 bytes | 16: 8 bytes.
#ifndef LATHE_MOE_BF16_ROWS_CUH
#define LATHE_MOE_BF16_ROWS_CUH

#include "prims.cuh"

template <int kStep>
struct Bf16Piece {
    u32 pairs[kStep / 8];
};

// Piece `quarter` (0..3) of a weight row; `row` points at the row's step.
template <int kStep>
__device__ __forceinline__ void bf16_load_weight(Bf16Piece<kStep> &p, const bf16 *row,
                                                 u32 quarter) {
    if constexpr (kStep == 32) {
        const u32x4 v = load_weight16(row + quarter * 8);
        p.pairs[0] = v.x;
        p.pairs[1] = v.y;
        p.pairs[2] = v.z;
        p.pairs[3] = v.w;
    } else {
        const u32x2 v = load_weight8(row + quarter * 4);
        p.pairs[0] = v.x;
        p.pairs[1] = v.y;
    }
}

// The same of activations, which another launch wrote.
template <int kStep>
__device__ __forceinline__ void bf16_load(Bf16Piece<kStep> &p, const bf16 *row, u32 quarter) {
    if constexpr (kStep == 32) {
        const u32x4 v = *reinterpret_cast<const u32x4 *>(row + quarter * 8);
        p.pairs[0] = v.x;
        p.pairs[1] = v.y;
        p.pairs[2] = v.z;
        p.pairs[3] = v.w;
    } else {
        const u32x2 v = *reinterpret_cast<const u32x2 *>(row + quarter * 4);
        p.pairs[0] = v.x;
        p.pairs[1] = v.y;
    }
}

// sum += 16 rows of weights times 8 tokens over one step: `low` is row lane / 4, `high` eight rows
// further.
template <int kStep>
__device__ __forceinline__ void bf16_multiply(float (&sum)[4], const Bf16Piece<kStep> &low,
                                              const Bf16Piece<kStep> &high,
                                              const Bf16Piece<kStep> &tokens) {
#pragma unroll
    for (int i = 0; i < kStep / 8; i += 2) {
        const u32 rows[4] = {low.pairs[i], high.pairs[i], low.pairs[i + 1], high.pairs[i + 1]};
        const u32 columns[2] = {tokens.pairs[i], tokens.pairs[i + 1]};
        mma_bf16(sum, rows, columns);
    }
}

#endif
