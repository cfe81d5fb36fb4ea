// SPDX-License-Identifier: Apache-2.0
// Weights of the routed bf16 GEMMs, as the checkpoint has them.
#ifndef LATHE_MOE_BF16_ROWS_CUH
#define LATHE_MOE_BF16_ROWS_CUH

#include "moe/routed.cuh"
#include "prims.cuh"

// Rows of kWidth values; a slice is kSlice rows further than the one before, its second set of 16
// rows kSet rows further than its first. `row` points at row lane / 4 of the expert.
template <int kStep, int kWidth, int kSlice, int kSet>
struct Bf16Weights {
    static_assert(kStep == 32 || kStep == 16, "a lane's load is 16 or 8 bytes");
    using Piece = RoutedPairs<kStep>;
    const bf16 *row;

    __device__ __forceinline__ void load(Piece (&w)[4], u32 slice, u32 step) const {
        const bf16 *from = row + slice * u32(kSlice * kWidth) + step * u32(kStep);
        from += lane_id() % 4 * u32(kStep / 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const bf16 *piece = from + u32((i / 2 * kSet + i % 2 * 8) * kWidth);
            if constexpr (kStep == 32) {
                const u32x4 v = load_weight16(piece);
                w[i] = {{v.x, v.y, v.z, v.w}};
            } else {
                const u32x2 v = load_weight8(piece);
                w[i] = {{v.x, v.y}};
            }
        }
    }

    static __device__ __forceinline__ const Piece &pairs(const Piece &w) {
        return w;
    }
};

#endif
