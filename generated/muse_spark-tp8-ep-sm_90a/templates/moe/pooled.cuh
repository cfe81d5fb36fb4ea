// SPDX-License-Identifier: Apache-2.0
// The norm in front of the experts, shared by moe/norm_quantise, moe/expert_norm and their forms
// that gather over ranks: a block holds one pooled row in registers, sixteen neighbouring values
// (one NVFP4 block) to a slot.
#ifndef LATHE_MOE_POOLED_CUH
#define LATHE_MOE_POOLED_CUH

#include "prims.cuh"

// Eight bf16 values of one 16-byte load.
__device__ __forceinline__ void pooled_unpack(float *v, u32x4 w) {
    v[0] = bf16_low(w.x);
    v[1] = bf16_high(w.x);
    v[2] = bf16_low(w.y);
    v[3] = bf16_high(w.y);
    v[4] = bf16_low(w.z);
    v[5] = bf16_high(w.z);
    v[6] = bf16_low(w.w);
    v[7] = bf16_high(w.w);
}

__device__ __forceinline__ u32x4 pooled_pack(const float *v) {
    u32x4 w;
    w.x = pack_bf16(v[0], v[1]);
    w.y = pack_bf16(v[2], v[3]);
    w.z = pack_bf16(v[4], v[5]);
    w.w = pack_bf16(v[6], v[7]);
    return w;
}

// Sixteen values at `columns`, as another launch left them.
__device__ __forceinline__ void pooled_read(float (&v)[16], const bf16 *columns) {
    pooled_unpack(v, *reinterpret_cast<const u32x4 *>(columns));
    pooled_unpack(v + 8, *reinterpret_cast<const u32x4 *>(columns + 8));
}

// Sixteen sums of kSplits partial sums that lie `stride` apart, rounded to bf16 once.
template <int kSplits>
__device__ __forceinline__ void pooled_sum(float (&v)[16], const float *partials, u64 stride) {
#pragma unroll
    for (int i = 0; i < 16; ++i)
        v[i] = 0;
    for (int split = 0; split < kSplits; ++split) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const f32x4 p =
                *reinterpret_cast<const f32x4 *>(partials + u64(split) * stride + u32(i) * 4);
            v[4 * i] += p.x;
            v[4 * i + 1] += p.y;
            v[4 * i + 2] += p.z;
            v[4 * i + 3] += p.w;
        }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i)
        v[i] = bf16_to_float(float_to_bf16(v[i]));
}

// Sum over all threads of the block, in the same order for each of them. `scratch` holds one float
// a warp.
template <int kWarps>
__device__ __forceinline__ float pooled_block_sum(float value, float *scratch) {
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2)
        value += warp_shuffle_xor(value, mask);
    if (lane_id() == 0)
        shared_store(scratch + warp_id(), value);
    block_sync();
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
        sum += shared_load(scratch + warp);
    return sum;
}

// The gains of this thread's slots as stored; weights, so they may come before the wait.
template <int kSlots>
__device__ __forceinline__ void pooled_gains(u32x4 (&gain)[kSlots][2], const bf16 *w, u32 threads,
                                             u32 blocks) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        const u32 block = u32(slot) * threads + thread_id();
        if (block < blocks) {
            gain[slot][0] = load_weight16(w + block * 16);
            gain[slot][1] = load_weight16(w + block * 16 + 8);
        }
    }
}

// v = r16(v * inverse * (center + w)).
__device__ __forceinline__ void pooled_scale(float (&v)[16], const u32x4 (&gain)[2], float inverse,
                                             float center) {
    float w[16];
    pooled_unpack(w, gain[0]);
    pooled_unpack(w + 8, gain[1]);
#pragma unroll
    for (int i = 0; i < 16; ++i)
        v[i] = bf16_to_float(float_to_bf16(v[i] * inverse * (center + w[i])));
}

// Where a library that gathered rank by rank left value `column` of a row.
template <class C>
__device__ __forceinline__ u64 pooled_gathered(u64 row, u32 column) {
    static_assert(C::kColumns % 16 == 0 && C::kRanks * C::kColumns == C::kWidth,
                  "the ranks' columns must make the width");
    const u32 rank = column / u32(C::kColumns);
    return (u64(rank) * C::kRows + row) * C::kColumns + (column - rank * u32(C::kColumns));
}

// The row that another launch left on this rank: whole, in K-split sums, or gathered.
template <class C, int kSlots>
__device__ __forceinline__ void pooled_local(float (&v)[kSlots][16], const bf16 *columns,
                                             const float *partials, const bf16 *gathered, u64 row) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        const u32 block = u32(slot) * u32(C::kWarps * 32) + thread_id();
        if (block < u32(C::kWidth / 16)) {
            const u64 at = row * C::kWidth + block * 16;
            if constexpr (C::kRanks != 0)
                pooled_read(v[slot], gathered + pooled_gathered<C>(row, block * 16));
            else if constexpr (C::kSplits == 0)
                pooled_read(v[slot], columns + at);
            else
                pooled_sum<C::kSplits>(v[slot], partials + at, u64(C::kRows) * C::kWidth);
        }
    }
}

// v = r16(rms(v) * (center + w)) for the row that the block holds. Holds a barrier of the block.
template <class C, int kSlots>
__device__ __forceinline__ void pooled_norm(float (&v)[kSlots][16], const u32x4 (&gain)[kSlots][2],
                                            float *scratch) {
    float squares = 0;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot)
        if (u32(slot) * u32(C::kWarps * 32) + thread_id() < u32(C::kWidth / 16)) {
#pragma unroll
            for (int i = 0; i < 16; ++i)
                squares += v[slot][i] * v[slot][i];
        }
    const float mean = pooled_block_sum<C::kWarps>(squares, scratch) / float(C::kWidth);
    const float inverse = rsqrt_f32(mean + float(C::kEps));
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot)
        if (u32(slot) * u32(C::kWarps * 32) + thread_id() < u32(C::kWidth / 16))
            pooled_scale(v[slot], gain[slot], inverse, float(C::kCenter));
}

// Writes the block's row as bf16.
template <class C, int kSlots>
__device__ __forceinline__ void pooled_write(const float (&v)[kSlots][16], bf16 *h1, u64 row) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        const u32 block = u32(slot) * u32(C::kWarps * 32) + thread_id();
        if (block < u32(C::kWidth / 16)) {
            u32x4 *out = reinterpret_cast<u32x4 *>(h1 + row * C::kWidth + block * 16);
            out[0] = pooled_pack(v[slot]);
            out[1] = pooled_pack(v[slot] + 8);
        }
    }
}

#endif
