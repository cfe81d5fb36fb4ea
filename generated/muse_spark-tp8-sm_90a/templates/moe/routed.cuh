// SPDX-License-Identifier: Apache-2.0
// What the four routed GEMMs share. A block works on one tile of one expert, eight tokens at a
// time, and on pairs of 16 weight rows; its warps split k and leave their sums in shared memory,
// where 16 threads a token add them.
#ifndef LATHE_MOE_ROUTED_CUH
#define LATHE_MOE_ROUTED_CUH

#include "prims.cuh"

constexpr int kRoutedTokens = 8; // columns of one tensor-core operation
constexpr int kRoutedPitch =
    20; // floats from token to token: 16 rows, and stores without bank conflicts
constexpr int kRoutedSums =
    kRoutedTokens * kRoutedPitch; // floats of one warp and one set of 16 rows

// Stores a warp's sums of both sets of rows into its part of [kWarps][2][token][row].
__device__ __forceinline__ void routed_store(float *buffer, const float (&first)[4],
                                             const float (&second)[4]) {
    const u32 row = lane_id() / 4;
    const u32 token = lane_id() % 4 * 2;
    float *at = buffer + warp_id() * u32(2 * kRoutedSums) + token * u32(kRoutedPitch) + row;
    shared_store(at, first[0]);
    shared_store(at + kRoutedPitch, first[1]);
    shared_store(at + 8, first[2]);
    shared_store(at + kRoutedPitch + 8, first[3]);
    at += kRoutedSums;
    shared_store(at, second[0]);
    shared_store(at + kRoutedPitch, second[1]);
    shared_store(at + 8, second[2]);
    shared_store(at + kRoutedPitch + 8, second[3]);
}

// Sum over the warps, in order, of set `set` (0, 1) at one token and row.
template <int kWarps>
__device__ __forceinline__ float routed_sum(const float *buffer, u32 set, u32 token, u32 row) {
    const float *at = buffer + set * u32(kRoutedSums) + token * u32(kRoutedPitch) + row;
    float sum = 0;
#pragma unroll 4 // more would cost the main loop its registers
    for (int warp = 0; warp < kWarps; ++warp)
        sum += shared_load(at + warp * 2 * kRoutedSums);
    return sum;
}

#endif
