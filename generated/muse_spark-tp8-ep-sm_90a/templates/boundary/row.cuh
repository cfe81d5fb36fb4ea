/* SPDX-License-Identifier: Apache-2.0
 * Rows of a boundary: octets (eight neighbouring elements of one row) in fp32, and sums over a row
 * held by one block, or by the blocks of one cluster. */
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

/* Octets of a row that one thread holds; the last may lie past the end of the block's part. A row
 * is the work of kBlocks blocks, a cluster where they are several; each has an equal part. */
template <int kHidden, int kThreads_, int kBlocks_ = 1>
struct RowShape {
    static_assert(kHidden % (8 * kBlocks_) == 0, "each block of a row has whole octets of it");
    static_assert(kThreads_ % 32 == 0 && kThreads_ <= 1024,
                  "threads must be whole warps of one block");
    static constexpr int kBlocks = kBlocks_, kThreads = kThreads_;
    static constexpr int kOctets = kHidden / 8 / kBlocks;
    static constexpr int kPerThread = (kOctets + kThreads - 1) / kThreads;
    static constexpr bool kExact = kOctets % kThreads == 0;
    static constexpr int kWarps = kThreads / 32;
    static constexpr int kPartials = kWarps * kBlocks; /* of a sum */
    /* Floats of a sum's partials; four sums lie in different banks. */
    static constexpr int kPitch = (kPartials + 31) / 32 * 32 + 8;
};

/* The row that the block works on, and which part of it. */
template <class Shape>
__device__ __forceinline__ int row_number() {
    return static_cast<int>(block_id()) / Shape::kBlocks;
}
template <class Shape>
__device__ __forceinline__ int row_part() {
    return static_cast<int>(block_id()) % Shape::kBlocks;
}

/* Index of the thread's i-th octet in the block's part; neighbours in a warp are neighbours in
 * memory. */
template <int kThreads>
__device__ __forceinline__ int row_octet(int i) {
    return i * kThreads + static_cast<int>(thread_id());
}

/* Whether that octet lies in the part; constant true where the part divides evenly. */
template <class Shape>
__device__ __forceinline__ bool row_has(int octet) {
    return Shape::kExact || octet < Shape::kOctets;
}

/* Four sums over a warp at once, in as many steps as one: lanes 8 g to 8 g + 7 get that of v[g]. */
__device__ __forceinline__ float warp_four_sums(const float (&v)[4]) {
    const bool upper = (lane_id() & 16u) != 0, odd = (lane_id() & 8u) != 0;
    float a = upper ? v[2] : v[0], b = upper ? v[3] : v[1];
    a += warp_shuffle_xor(upper ? v[0] : v[2], 16);
    b += warp_shuffle_xor(upper ? v[1] : v[3], 16);
    float sum = odd ? b : a;
    sum += warp_shuffle_xor(odd ? a : b, 8);
#pragma unroll
    for (u32 mask = 4; mask > 0; mask /= 2)
        sum += warp_shuffle_xor(sum, mask);
    return sum;
}

/* Shared memory of two rounds of sums: two barriers, then the partials of each. rows.lua counts the
 * same bytes. */
template <class Shape>
__device__ __forceinline__ float *row_partials(u8 *shared, int round) {
    return reinterpret_cast<float *>(shared + 16) + round * 4 * Shape::kPitch;
}

/* Before row_sums(), and before grid_wait(), since the blocks of a row meet here. All threads call.
 */
template <class Shape>
__device__ __forceinline__ void row_open(u8 *shared) {
    if constexpr (Shape::kBlocks > 1) {
        u64 *const arrived = reinterpret_cast<u64 *>(shared);
        if (thread_id() == 0) {
            mbar_init(arrived, 1);
            mbar_init(arrived + 1, 1);
            mbar_init_fence();
            mbar_expect(arrived, 16 * Shape::kPartials);
            mbar_expect(arrived + 1, 16 * Shape::kPartials);
        }
        cluster_sync();
    }
}

/* Four sums over the row, the same bits in every thread of it. Every warp sends its partials to all
 * blocks of the row, which add them in the same order. Each of the rounds 0 and 1 is for one call.
 */
template <class Shape>
__device__ __forceinline__ void row_sums(float (&sums)[4], u8 *shared, int round) {
    const u32 which = lane_id() / 8, member = lane_id() % 8;
    float *const partials = row_partials<Shape>(shared, round) + which * Shape::kPitch;
    const u32 place = static_cast<u32>(row_part<Shape>() * Shape::kWarps) + warp_id();
    float sum = warp_four_sums(sums);
    if constexpr (Shape::kBlocks > 1) {
        u64 *const arrived = reinterpret_cast<u64 *>(shared) + round;
        if (member < Shape::kBlocks)
            cluster_send(member, partials + place, sum, arrived);
        cluster_wait(arrived, 0);
    } else if constexpr (Shape::kPartials > 1) {
        if (member == 0)
            shared_store(partials + place, sum);
        block_sync();
    }
    if constexpr (Shape::kPartials > 1) {
        sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < (Shape::kPartials + 7) / 8; i++)
            if (i * 8 + member < Shape::kPartials)
                sum += shared_load(partials + i * 8 + member);
#pragma unroll
        for (u32 mask = 4; mask > 0; mask /= 2)
            sum += warp_shuffle_xor(sum, mask);
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        sums[i] = warp_shuffle(sum, i * 8);
}

#endif
