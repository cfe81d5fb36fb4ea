/* SPDX-License-Identifier: Apache-2.0
 * Folded NVFP4 scalars of the experts that this rank holds, by one warp. Each product and quotient
 * is rounded to fp32, in this order: the quantisers divide by these very numbers. */
#ifndef LATHE_PREPARE_EXPERT_SCALARS_CUH
#define LATHE_PREPARE_EXPERT_SCALARS_CUH

#include "prims.cuh"

/* The greatest of n positive numbers, known to every lane. */
__device__ __forceinline__ float expert_greatest(const float *values, int n) {
    float greatest = 0.0f;
    for (int i = static_cast<int>(lane_id()); i < n; i += 32)
        greatest = max_f32(greatest, values[i]);
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2)
        greatest = max_f32(greatest, warp_shuffle_xor(greatest, mask));
    return greatest;
}

template <class C>
__device__ void expert_scalars(const float *scale13, const float *input13, const float *scale2,
                               const float *input2, const int *rank, float *input_gscale,
                               float *gate_alpha, float *up_alpha, float *alpha) {
    static_assert(C::kScaled % C::kLocal == 0, "ranks hold equally many experts");
    const int first = C::kLocal == C::kScaled ? 0 : rank[0] * C::kLocal;
    const float a13 = expert_greatest(input13, 2 * C::kExperts),
                a2 = expert_greatest(input2, C::kExperts);
    for (int e = static_cast<int>(lane_id()); e < C::kLocal; e += 32) {
        gate_alpha[e] = a13 * scale13[2 * (first + e)];
        up_alpha[e] = divide_f32(a13 * scale13[2 * (first + e) + 1], a2);
        alpha[e] = a2 * scale2[first + e];
    }
    if (lane_id() == 0)
        input_gscale[0] = divide_f32(1.0f, a13);
}

#endif
