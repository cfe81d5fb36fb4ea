// SPDX-License-Identifier: Apache-2.0
// Weights of the routed NVFP4 GEMMs, a slice of rows at a time, whatever the activations are.
#ifndef LATHE_MOE_NVFP4_SLICES_CUH
#define LATHE_MOE_NVFP4_SLICES_CUH

#include "moe/nvfp4.cuh"
#include "prims.cuh"

// Where the warp's step `held` of pass `pass` lies: warps own runs of kHeld steps.
template <class C>
__device__ __forceinline__ u32 nvfp4_gemm1_step(u32 pass, int held) {
    return (pass * u32(C::kWarps) + warp_id()) * u32(C::kHeld) + u32(held);
}

// Gate rows g and g + 8, up rows g and g + 8 of one slice of 16 columns, over one step. `w13` and
// `w13_scales` point at gate row g of the expert.
template <class C>
__device__ __forceinline__ void nvfp4_gemm1_fetch(Nvfp4Piece<C::kStep> (&w)[4], const u8 *w13,
                                                  const e4m3 *w13_scales, u32 slice, u32 step) {
    w13 += slice * u32(16 * C::kCodeBytes) + step * u32(C::kStep / 2);
    w13_scales += slice * u32(16 * C::kBlocks) + step * u32(C::kStep / 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const u32 row = u32(i / 2) * u32(C::kGateUp / 2) + u32(i % 2) * 8;
        nvfp4_load_weight<C::kStep>(w[i], w13 + row * u32(C::kCodeBytes),
                                    w13_scales + row * u32(C::kBlocks), lane_id() % 4);
    }
}

// Where the warp's step `held` of pass `pass` lies: warps own runs of kHeld steps.
template <class C>
__device__ __forceinline__ u32 nvfp4_gemm2_step(u32 pass, int held) {
    return (pass * u32(C::kWarps) + warp_id()) * u32(C::kHeld) + u32(held);
}

// Rows g, g + 8, g + 16 and g + 24 of one slice of 32 output columns, over one step. `w2` and
// `w2_scales` point at row g of the expert.
template <class C>
__device__ __forceinline__ void nvfp4_gemm2_fetch(Nvfp4Piece<C::kStep> (&w)[4], const u8 *w2,
                                                  const e4m3 *w2_scales, u32 slice, u32 step) {
    w2 += slice * u32(32 * C::kCodeBytes) + step * u32(C::kStep / 2);
    w2_scales += slice * u32(32 * C::kBlocks) + step * u32(C::kStep / 16);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        nvfp4_load_weight<C::kStep>(w[i], w2 + i * 8 * C::kCodeBytes,
                                    w2_scales + i * 8 * C::kBlocks, lane_id() % 4);
}

// Piece `quarter` (0..3) of bf16 activations over one step, cut like a piece of weights; `row`
// points at the row's step. Products with weights carry 2^-8.
template <int kStep>
__device__ __forceinline__ void nvfp4_load_bf16(u32 (&pairs)[kStep / 8], const bf16 *row,
                                                u32 quarter) {
    const bf16 *from = row + quarter * u32(kStep / 4);
    if constexpr (kStep == 16) {
        const u32x2 v = *reinterpret_cast<const u32x2 *>(from);
        pairs[0] = v.x;
        pairs[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < kStep / 32; ++i) {
            const u32x4 v = *reinterpret_cast<const u32x4 *>(from + i * 8);
            pairs[4 * i] = v.x;
            pairs[4 * i + 1] = v.y;
            pairs[4 * i + 2] = v.z;
            pairs[4 * i + 3] = v.w;
        }
    }
}

constexpr float kNvfp4WeightProduct = 256.0f; // restores a sum of products with bf16 activations

#endif
