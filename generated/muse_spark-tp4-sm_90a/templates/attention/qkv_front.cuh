// SPDX-License-Identifier: Apache-2.0
// Between the QKV GEMM and attention: QK norm, RoPE where the layer has it, and the new rows of the
// KV cache.
//
// A thread owns eight neighbouring channels of one head of one row, so a head is kDim / 8 lanes.
// Every lane computes norm and rotation, whatever its head is for: shuffles need whole warps. What
// is v or gate keeps its bits.
#ifndef LATHE_ATTENTION_QKV_FRONT_CUH
#define LATHE_ATTENTION_QKV_FRONT_CUH

#include "prims.cuh"

// Eight channels as bf16. Partial sums are added in the order of the splits and rounded once.
template <class C>
__device__ __forceinline__ u32x4 front_load(const bf16 *qkvg, const float *partials, int at) {
    if constexpr (C::kSplits == 0) {
        return *(const u32x4 *)(qkvg + at);
    } else {
        f32x4 low = *(const f32x4 *)(partials + at);
        f32x4 high = *(const f32x4 *)(partials + at + 4);
        for (int split = 1; split < C::kSplits; split++) {
            const float *next = partials + (i64)split * (C::kRows * C::kWidth) + at;
            const f32x4 a = *(const f32x4 *)next;
            const f32x4 b = *(const f32x4 *)(next + 4);
            low = {low.x + a.x, low.y + a.y, low.z + a.z, low.w + a.w};
            high = {high.x + b.x, high.y + b.y, high.z + b.z, high.w + b.w};
        }
        return {pack_bf16(low.x, low.y), pack_bf16(low.z, low.w), pack_bf16(high.x, high.y),
                pack_bf16(high.z, high.w)};
    }
}

__device__ __forceinline__ void front_unpack(float (&x)[8], u32x4 raw) {
    const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
    for (int i = 0; i < 4; i++) {
        x[2 * i] = bf16_low(words[i]);
        x[2 * i + 1] = bf16_high(words[i]);
    }
}

__device__ __forceinline__ u32x4 front_pack(const float (&x)[8]) {
    return {pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
            pack_bf16(x[6], x[7])};
}

// x = bf16(rms(x)) over the kDim / 8 lanes of a head.
template <class C>
__device__ __forceinline__ void front_norm(float (&x)[8]) {
    float square = 0.0f;
    for (int i = 0; i < 8; i++)
        square += x[i] * x[i];
    for (u32 mask = C::kDim / 16; mask > 0; mask /= 2)
        square += warp_shuffle_xor(square, mask);
    const float factor = rsqrt_f32(square / (float)C::kDim + C::kEps);
    for (int i = 0; i < 8; i++)
        x[i] = bf16_to_float(float_to_bf16(x[i] * factor));
}

// Rotates the pairs (j, j + kDim / 2). The other half of a pair lies kDim / 16 lanes away.
// A position outside the table, which only a padded row may have, takes the nearest row.
template <class C>
__device__ __forceinline__ void front_rotate(float (&x)[8], const float *rope, i64 position,
                                             int lane) {
    constexpr int kHalf = C::kDim / 16;
    const i64 below = position < C::kPositions ? position : C::kPositions - 1;
    const float *cosines = rope + (below > 0 ? below : 0) * C::kDim + lane % kHalf * 8;
    const float sign = lane < kHalf ? -1.0f : 1.0f;
    for (int i = 0; i < 8; i++) {
        const float other = warp_shuffle_xor(x[i], (u32)kHalf);
        x[i] = x[i] * cosines[i] + sign * other * cosines[C::kDim / 2 + i];
    }
}

template <class C>
__device__ void qkv_front(const bf16 *qkvg, const float *qkvg_partials, const long long *positions,
                          const float *rope, const long long *slots, bf16 *q, bf16 *gate,
                          bf16 *cache) {
    constexpr int kLanes = C::kDim / 8;
    constexpr int kVectors = C::kRows * C::kWidth / 8;
    static_assert(C::kDim >= 16 && C::kDim <= 128 && 128 % C::kDim == 0,
                  "the head width must be 16, 32, 64 or 128");
    static_assert(C::kWidth == 2 * (C::kHeads + C::kKvHeads) * C::kDim, "qkvg is q, k, v, gate");
    static_assert(C::kPacked == 2 * C::kDim, "a cache row is k, v");
    grid_trigger();
    grid_wait();

    const int thread = (int)(block_id() * (u32)C::kThreads + thread_id());
    const int vector = thread < kVectors ? thread : kVectors - 1;
    const int row = vector / (C::kWidth / 8);
    const int head = vector % (C::kWidth / 8) / kLanes;
    const int lane = vector % kLanes;

    const u32x4 raw = front_load<C>(qkvg, qkvg_partials, vector * 8);
    float x[8];
    front_unpack(x, raw);
    front_norm<C>(x);
    if constexpr (C::kRope != 0)
        front_rotate<C>(x, rope, positions[row], lane);
    if (thread >= kVectors)
        return;

    constexpr int kKeys = C::kHeads; // first head of k, v and gate
    constexpr int kValues = kKeys + C::kKvHeads;
    constexpr int kGates = kValues + C::kKvHeads;
    if (head < kKeys) {
        *(u32x4 *)(q + (row * C::kHeads + head) * C::kDim + lane * 8) = front_pack(x);
    } else if (head >= kGates) {
        *(u32x4 *)(gate + (row * C::kHeads + head - kGates) * C::kDim + lane * 8) = raw;
    } else if (slots[row] >= 0) {
        const bool is_key = head < kValues;
        const i64 page = slots[row] / C::kPageTokens;
        const i64 token = slots[row] % C::kPageTokens;
        const i64 line = (page * C::kKvHeads + head - (is_key ? kKeys : kValues)) * C::kPageTokens;
        bf16 *to = cache + (line + token) * C::kPacked + (is_key ? 0 : C::kDim) + lane * 8;
        *(u32x4 *)to = is_key ? front_pack(x) : raw;
    }
}

#endif
