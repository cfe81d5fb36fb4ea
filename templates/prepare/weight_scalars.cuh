/* SPDX-License-Identifier: Apache-2.0
 * Global scales of the NVFP4 experts that this rank holds, by one warp. */
#ifndef LATHE_PREPARE_WEIGHT_SCALARS_CUH
#define LATHE_PREPARE_WEIGHT_SCALARS_CUH

#include "prims.cuh"

template <class C>
__device__ void weight_scalars(const float *scale13, const float *scale2, const int *rank,
                               float *gate_alpha, float *up_alpha, float *alpha) {
    static_assert(C::kScaled % C::kLocal == 0, "ranks hold equally many experts");
    const int first = C::kLocal == C::kScaled ? 0 : rank[0] * C::kLocal;
    for (int e = static_cast<int>(lane_id()); e < C::kLocal; e += 32) {
        gate_alpha[e] = scale13[2 * (first + e)];
        up_alpha[e] = scale13[2 * (first + e) + 1];
        alpha[e] = scale2[first + e];
    }
}

#endif
