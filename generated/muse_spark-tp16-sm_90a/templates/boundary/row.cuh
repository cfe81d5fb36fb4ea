/* SPDX-License-Identifier: Apache-2.0
 * Rows of a boundary: octets (eight neighbouring elements of one row) in fp32, and sums over a row
 * held by one block. */
#ifndef LATHE_BOUNDARY_ROW_CUH
#define LATHE_BOUNDARY_ROW_CUH

#include "prims.cuh"

struct Octet {
    float v[8];
};

__device__ __forceinline__ Octet octet_of_bf16(u32x4 packed) {
    return {{bf16_low(packed.x), bf16_high(packed.x), bf16_low(packed.y), bf16_high(packed.y),
             bf16_low(packed.z), bf16_high(packed.z), bf16_low(packed.w), bf16_high(packed.w)}};
}

/* Rounds each element once, to nearest even. */
__device__ __forceinline__ u32x4 octet_to_bf16(const Octet &o) {
    return {pack_bf16(o.v[0], o.v[1]), pack_bf16(o.v[2], o.v[3]), pack_bf16(o.v[4], o.v[5]),
            pack_bf16(o.v[6], o.v[7])};
}

__device__ __forceinline__ Octet octet_load(const float *p) {
    const f32x4 *const from = reinterpret_cast<const f32x4 *>(p);
    const f32x4 a = from[0], b = from[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ __forceinline__ u32x4 octet_load_bf16(const bf16 *p) {
    return *reinterpret_cast<const u32x4 *>(p);
}

/* fp32 weights: read-only for the launch, so allowed before grid_wait(). */
__device__ __forceinline__ Octet octet_load_weight(const float *p) {
    const u32x4 a = load_weight16(p), b = load_weight16(p + 4);
    return {{bits_float(a.x), bits_float(a.y), bits_float(a.z), bits_float(a.w), bits_float(b.x),
             bits_float(b.y), bits_float(b.z), bits_float(b.w)}};
}

__device__ __forceinline__ void octet_store(float *p, const Octet &o) {
    f32x4 *const to = reinterpret_cast<f32x4 *>(p);
    to[0] = {o.v[0], o.v[1], o.v[2], o.v[3]};
    to[1] = {o.v[4], o.v[5], o.v[6], o.v[7]};
}

__device__ __forceinline__ void octet_store_bf16(bf16 *p, u32x4 packed) {
    *reinterpret_cast<u32x4 *>(p) = packed;
}

__device__ __forceinline__ float octet_square_sum(const Octet &o) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum = fma_f32(o.v[i], o.v[i], sum);
    return sum;
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2)
        value += warp_shuffle_xor(value, mask);
    return value;
}

/* Sum of `value` over the block, the same bits in every thread. `scratch` has a float per warp, and
 * no other use before the block's next barrier but one: two sums in a row need two scratches. */
template <int kThreads>
__device__ __forceinline__ float row_sum(float value, float *scratch) {
    constexpr int kWarps = kThreads / 32;
    value = warp_sum(value);
    if constexpr (kWarps == 1)
        return value;
    if (lane_id() == 0)
        shared_store(scratch + warp_id(), value);
    block_sync();
    value = lane_id() < kWarps ? shared_load(scratch + lane_id()) : 0.0f;
    return warp_sum(value);
}

/* Octets of a row that one thread holds; the last may lie past the row's end. */
template <int kHidden, int kThreads>
struct RowShape {
    static_assert(kHidden % 8 == 0, "a row is read in octets");
    static_assert(kThreads % 32 == 0 && kThreads <= 1024,
                  "threads must be whole warps of one block");
    static constexpr int kOctets = kHidden / 8;
    static constexpr int kPerThread = (kOctets + kThreads - 1) / kThreads;
    static constexpr bool kExact = kOctets % kThreads == 0;
};

/* Index of the thread's i-th octet; neighbours in a warp are neighbours in memory. */
template <int kThreads>
__device__ __forceinline__ int row_octet(int i) {
    return i * kThreads + static_cast<int>(thread_id());
}

/* Whether that octet lies in the row; constant true where the row divides evenly. */
template <class Shape>
__device__ __forceinline__ bool row_has(int octet) {
    return Shape::kExact || octet < Shape::kOctets;
}

#endif
