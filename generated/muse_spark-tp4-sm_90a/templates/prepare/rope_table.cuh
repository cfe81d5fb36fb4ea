/* SPDX-License-Identifier: Apache-2.0
 * The table of rotations: a block fills 64 positions. Angle, cosine and sine are double and rounded
 * to fp32 once: in fp32 the angle of position 10^6 would be off by 0.03. */
#ifndef LATHE_PREPARE_ROPE_TABLE_CUH
#define LATHE_PREPARE_ROPE_TABLE_CUH

#include "prims.cuh"

template <class C>
__device__ void rope_table(float *table) {
    constexpr int kHalf = C::kWidth / 2, kBlockPositions = 64;
    const double theta = static_cast<double>(C::kTheta);
    const int first = static_cast<int>(block_id()) * kBlockPositions;
    for (int i = static_cast<int>(thread_id()); i < kBlockPositions * kHalf;
         i += static_cast<int>(block_threads())) {
        const int position = first + i / kHalf, j = i % kHalf;
        if (position >= C::kPositions)
            return;
        const double angle = static_cast<double>(position) * pow_f64(theta, -2.0 * j / C::kWidth);
        float *const row = table + static_cast<long long>(position) * C::kWidth;
        row[j] = static_cast<float>(cos_f64(angle));
        row[kHalf + j] = static_cast<float>(sin_f64(angle));
    }
}

#endif
