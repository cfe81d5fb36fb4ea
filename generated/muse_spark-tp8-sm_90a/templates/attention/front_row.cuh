// SPDX-License-Identifier: Apache-2.0
// Rows of the QKV product in the lanes of paged attention
// (attention/paged_tile.cuh): the sum over slices of k, QK norm, RoPE, and the
// new keys and values among those of a chunk.
#ifndef LATHE_ATTENTION_FRONT_ROW_CUH
#define LATHE_ATTENTION_FRONT_ROW_CUH

#include "attention/paged_tile.cuh"

// What a block reads, and where it inserts.
template <class C>
struct PagedProduct {
    const bf16 *qkvg;
    const float *partials;
    const long long *positions;
    const float *rope;
    const long long *slots;
    bf16 *cache;
};

// 2 kWords neighbouring columns of a row of the product, from `column` on.
// Partial sums are added in the order of the slices and rounded once.
template <class C, int kWords>
__device__ __forceinline__ void front_words(u32 *to, const PagedProduct<C> &from, int row,
                                            int column) {
    const i64 at = (i64)row * C::kWidth + column;
    if constexpr (C::kProductSplits == 0) {
        paged_load_words<kWords>(to, from.qkvg + at);
    } else {
#pragma unroll
        for (int pair = 0; pair < kWords / 2; pair++) {
            f32x4 sum = {};
#pragma unroll
            for (int split = 0; split < C::kProductSplits; split++) {
                const f32x4 p =
                    *(const f32x4 *)(from.partials + (i64)split * (C::kRows * C::kWidth) + at +
                                     pair * 4);
                sum = split == 0 ? p : f32x4{sum.x + p.x, sum.y + p.y, sum.z + p.z, sum.w + p.w};
            }
            to[pair * 2] = pack_bf16(sum.x, sum.y);
            to[pair * 2 + 1] = pack_bf16(sum.z, sum.w);
        }
    }
}

// x = bf16(rms(x)) over the four lanes that share a head.
template <class C>
__device__ __forceinline__ void front_norm(float (&x)[C::kDim / 4]) {
    float square = 0.0f;
#pragma unroll
    for (int i = 0; i < C::kDim / 4; i++)
        square += x[i] * x[i];
    square += warp_shuffle_xor(square, 1u);
    square += warp_shuffle_xor(square, 2u);
    const float factor = rsqrt_f32(square / (float)C::kDim + (float)C::kQkEps);
#pragma unroll
    for (int i = 0; i < C::kDim / 4; i++)
        x[i] = bf16_to_float(float_to_bf16(x[i] * factor));
}

// Rotates the pairs (j, j + kDim / 2). The other of a pair lies half the lane's
// channels on or, where a lane has one vector only, two lanes away. A position
// outside the table, which only a padded row may have, takes the nearest row.
template <class C>
__device__ __forceinline__ void front_rotate(float (&x)[C::kDim / 4], const float *rope,
                                             i64 position) {
    constexpr int kRun = C::kDim >= 32 ? 8 : C::kDim / 4; // neighbouring channels of a lane
    constexpr int kOwn = C::kDim / 4;
    constexpr int kAngles = kOwn > kRun ? kOwn / 2 : kOwn; // of a lane
    const i64 below = position < C::kPositions ? position : C::kPositions - 1;
    const float *const table = rope + (below > 0 ? below : 0) * C::kDim;
    f32x4 cosines[kAngles / 4], sines[kAngles / 4];
#pragma unroll
    for (int i = 0; i < kAngles / 4; i++) {
        const int channel = (i * 4 / kRun * 4 + (int)lane_id() % 4) * kRun + i * 4 % kRun;
        cosines[i] = *(const f32x4 *)(table + channel % (C::kDim / 2));
        sines[i] = *(const f32x4 *)(table + C::kDim / 2 + channel % (C::kDim / 2));
    }
    float other[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; i++)
        other[i] = kOwn > kRun ? x[(i + kOwn / 2) % kOwn] : warp_shuffle_xor(x[i], 2u);
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
        const bool is_low = kOwn > kRun ? i < kOwn / 2 : lane_id() % 4 < 2;
        const f32x4 c = cosines[i % kAngles / 4], s = sines[i % kAngles / 4];
        const float cosine[4] = {c.x, c.y, c.z, c.w}, sine[4] = {s.x, s.y, s.z, s.w};
        x[i] = x[i] * cosine[i % 4] + (is_low ? -1.0f : 1.0f) * other[i] * sine[i % 4];
    }
}

// A lane's channels of head `head`, a query's or key's, of a row: normed and
// rotated. Whole warps call.
template <class C>
__device__ __forceinline__ void paged_row(u32 (&words)[C::kDim / 8], const PagedProduct<C> &from,
                                          int row, int head) {
    constexpr int kVector = kPagedVector<C::kDim>;
#pragma unroll
    for (int i = 0; i < C::kDim / 8 / kVector; i++)
        front_words<C, kVector>(words + i * kVector, from, row,
                                head * C::kDim + paged_channel<C::kDim>(i));
    float x[C::kDim / 4];
#pragma unroll
    for (int i = 0; i < C::kDim / 8; i++) {
        x[2 * i] = bf16_low(words[i]);
        x[2 * i + 1] = bf16_high(words[i]);
    }
    front_norm<C>(x);
    if constexpr (C::kRope != 0)
        front_rotate<C>(x, from.rope, from.positions[row]);
#pragma unroll
    for (int i = 0; i < C::kDim / 8; i++)
        words[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
}

// Writes kWords words of a cache row, from element `element` on; a slot of -1
// has none.
template <class C, int kWords>
__device__ __forceinline__ void front_insert(const PagedProduct<C> &from, int row, int kv_head,
                                             int element, const u32 *words) {
    const i64 slot = from.slots[row];
    if (slot < 0)
        return;
    const i64 line = (slot / C::kPageTokens * C::kKvHeads + kv_head) * C::kPageTokens;
    bf16 *const to = from.cache + (line + slot % C::kPageTokens) * C::kPacked + element;
    if constexpr (kWords == 2)
        *(u32x2 *)to = {words[0], words[1]};
    else
        *(u32x4 *)to = {words[0], words[1], words[2], words[3]};
}

template <class C>
__device__ __forceinline__ u32x2 paged_gate(const PagedProduct<C> &from, int row, int head,
                                            int channel) {
    u32 words[2];
    front_words<C, 2>(words, from, row, (C::kHeads + 2 * C::kKvHeads + head) * C::kDim + channel);
    return {words[0], words[1]};
}

// The step's own keys are written by this launch.
template <class C>
__device__ __forceinline__ int paged_old(const PagedProduct<C> &, int before) {
    return before;
}

// Puts words of a new row into the chunk and, where the block inserts, into the cache. `key`: place
// in the chunk.
template <class C>
__device__ __forceinline__ void front_put(u8 *chunk, int key, const PagedProduct<C> &from, int row,
                                          int kv_head, bool inserts, int element,
                                          const u32 *words) {
    constexpr int kVector = kPagedVector<C::kDim>;
    u8 *const to = chunk + paged_place<C::kDim>(key, element / 8) + element % 8 * 2;
    if constexpr (kVector == 2)
        shared_store((u32x2 *)to, u32x2{words[0], words[1]});
    else
        shared_store((u32x4 *)to, u32x4{words[0], words[1], words[2], words[3]});
    if (inserts)
        front_insert<C, kVector>(from, row, kv_head, element, words);
}

// Puts the step's own keys and values into a chunk of which they are; key 0 is number `first` of
// the request's `q` rows of this step, which begin at `row0`. Warp `member` of a team: the first
// makes the keys, the last the values, eight rows at a time. `inserts`: this block writes them to
// the cache as well.
template <class C>
__device__ __forceinline__ void paged_renew(u8 *chunk, const PagedProduct<C> &from, int row0,
                                            int kv_head, bool inserts, int first, int q,
                                            int member) {
    constexpr int kVector = kPagedVector<C::kDim>;
#pragma unroll 1
    for (int number = (int)lane_id() / 4; number - (int)lane_id() / 4 < q; number += 8) {
        const int key = number - first;
        const bool is_new = number < q && key >= 0 && key < C::kChunk;
        const int row = row0 + (number < q ? number : 0);
        u32 words[C::kDim / 8];
        if (member == 0) {
            paged_row(words, from, row, C::kHeads + kv_head);
#pragma unroll
            for (int i = 0; i < C::kDim / 8 / kVector; i++)
                if (is_new)
                    front_put(chunk, key, from, row, kv_head, inserts, paged_channel<C::kDim>(i),
                              words + i * kVector);
        }
        if (member == C::kTiles - 1 && is_new) {
#pragma unroll 1 // many slices and both vectors do not fit the registers
            for (int i = 0; i < C::kDim / 8 / kVector; i++) {
                const int channel = paged_channel<C::kDim>(i);
                front_words<C, kVector>(words, from, row,
                                        (C::kHeads + C::kKvHeads + kv_head) * C::kDim + channel);
                front_put(chunk, key, from, row, kv_head, inserts, C::kDim + channel, words);
            }
        }
    }
}

#endif
