// SPDX-License-Identifier: Apache-2.0
// The tiles of paged attention: 16 query rows in a warp's registers against a chunk of keys in
// shared memory, on tensor cores.
//
// With g = lane / 4 and t = lane % 4 a lane holds, of the query rows, g and g + 8, and of a chunk's
// scores those of keys 8h + 2t and 8h + 2t + 1. A product's inner index may be permuted, so a lane
// takes 16 bytes of a key at a time.
#ifndef LATHE_ATTENTION_PAGED_TILE_CUH
#define LATHE_ATTENTION_PAGED_TILE_CUH

#include "prims.cuh"

constexpr int kPagedUnit = 16; // neighbouring keys of a page; a chunk is one or more

// Sixteen query rows and their softmax so far.
template <int kDim>
struct PagedQueries {
    u32 q[kDim / 16][4];
    float o[kDim / 8][4]; // weighted sum of values: channels 8i + 2t and 8i + 2t + 1 of both rows
    float top[2];         // largest score of a row, in powers of two
    float sum[2];         // sum of weights, this lane's keys only
    int position[2];      // of a row's query; -1: the row is padding and sees nothing
};

__device__ __forceinline__ float paged_infinity(int sign) {
    return bits_float(sign < 0 ? 0xff800000u : 0x7f800000u);
}

// What scores are taken relative to: zero for a row that has seen no key, so that no infinity is
// subtracted from another.
__device__ __forceinline__ float paged_base(float top) {
    return top == paged_infinity(-1) ? 0.0f : top;
}

// Pieces of 16 bytes of a cache row trade places within key and value, so that neither eight rows'
// pieces of one number nor two rows' four neighbours share a bank. The bits of a place that trade,
// each of which hangs on one bit of the row's number.
template <int kDim>
__device__ __forceinline__ constexpr int paged_trade(int row) {
    constexpr int kTrading = kDim >= 64 ? 7 : kDim / 8 - 1;
    return (((row & 1) << 2 | (row >> 1 & 3)) & kTrading) * 16;
}

// Byte of piece `piece` of a row in a chunk.
template <int kDim>
__device__ __forceinline__ int paged_place(int row, int piece) {
    return row * 4 * kDim + (piece * 16 ^ paged_trade<kDim>(row));
}

template <int kWords>
__device__ __forceinline__ void paged_load_words(u32 *to, const bf16 *from) {
    static_assert(kWords == 2 || kWords == 4, "one vector load");
    if constexpr (kWords == 2) {
        const u32x2 v = *(const u32x2 *)from;
        to[0] = v.x;
        to[1] = v.y;
    } else {
        const u32x4 v = *(const u32x4 *)from;
        to[0] = v.x;
        to[1] = v.y;
        to[2] = v.z;
        to[3] = v.w;
    }
}

template <int kWords>
__device__ __forceinline__ void paged_take_words(u32 *to, const u8 *from) {
    if constexpr (kWords == 2) {
        const u32x2 v = shared_load((const u32x2 *)from);
        to[0] = v.x;
        to[1] = v.y;
    } else {
        const u32x4 v = shared_load((const u32x4 *)from);
        to[0] = v.x;
        to[1] = v.y;
        to[2] = v.z;
        to[3] = v.w;
    }
}

// Words that a lane takes of a query or key at a time, and the first channel of its number `i`.
template <int kDim>
constexpr int kPagedVector = kDim >= 32 ? 4 : kDim / 8;
template <int kDim>
__device__ __forceinline__ int paged_channel(int i) {
    return (i * 4 + (int)lane_id() % 4) * kPagedVector<kDim> * 2;
}

// A lane's channels of a query or key; queries and keys agree, which is all that a product asks.
template <int kDim>
__device__ __forceinline__ void paged_load_row(u32 (&words)[kDim / 8], const bf16 *row) {
    constexpr int kVector = kPagedVector<kDim>;
    for (int i = 0; i < kDim / 8 / kVector; i++)
        paged_load_words<kVector>(words + i * kVector, row + paged_channel<kDim>(i));
}

template <int kDim>
__device__ __forceinline__ void paged_start_row(PagedQueries<kDim> &tile, int r,
                                                const u32 (&words)[kDim / 8], int position) {
    for (int i = 0; i < kDim / 8; i++)
        tile.q[i / 2][r + i % 2 * 2] = words[i];
    for (int i = 0; i < kDim / 8; i++)
        tile.o[i][2 * r] = tile.o[i][2 * r + 1] = 0.0f;
    tile.top[r] = paged_infinity(-1);
    tile.sum[r] = 0.0f;
    tile.position[r] = position;
}

// Places in a chunk from which a lane reads keys and values.
struct PagedLane {
    int key, value;
};

template <int kDim>
__device__ __forceinline__ PagedLane paged_lane() {
    const int lane = (int)lane_id(), channel = paged_channel<kDim>(0);
    const int key = paged_place<kDim>(lane / 4, channel / 8) + channel % 8 * 2;
    const int value = paged_place<kDim>(lane % 16, kDim / 8 + lane / 16);
    return {(int)keep_register((u32)key), (int)keep_register((u32)value)};
}

template <class C>
__device__ __forceinline__ bool paged_sees(int position, int key) {
    if constexpr (C::kWindow > 0)
        return key <= position && key > position - C::kWindow;
    return key <= position;
}

// Products of the queries and the chunk's keys.
template <class C>
__device__ __forceinline__ void paged_score(float (&s)[C::kChunk / 8][4],
                                            const PagedQueries<C::kDim> &tile, const u8 *chunk,
                                            const PagedLane &lane) {
    constexpr int kVector = kPagedVector<C::kDim>;
#pragma unroll
    for (int i = 0; i < C::kDim / 8 / kVector; i++) { // four pieces on
        u32 words[C::kChunk / 8][kVector];
#pragma unroll
        for (int h = 0; h < C::kChunk / 8; h++)
            paged_take_words<kVector>(words[h], chunk + (lane.key ^ i * 64) + h * 32 * C::kDim);
#pragma unroll
        for (int j = 0; j < kVector / 2; j++)
#pragma unroll
            for (int h = 0; h < C::kChunk / 8; h++) {
                const u32 pair[2] = {words[h][2 * j], words[h][2 * j + 1]};
                mma_bf16(s[h], tile.q[i * kVector / 2 + j], pair);
            }
    }
}

// Hides the scores of keys that a row does not see.
template <class C>
__device__ __forceinline__ void paged_mask(float (&s)[C::kChunk / 8][4],
                                           const PagedQueries<C::kDim> &tile, int key) {
#pragma unroll
    for (int h = 0; h < C::kChunk / 8; h++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!paged_sees<C>(tile.position[i / 2], key + h * 8 + (int)lane_id() % 4 * 2 + i % 2))
                s[h][i] = paged_infinity(-1);
}

// Turns scores into weights. What a row has so far is rescaled where its largest score grew.
template <class C>
__device__ __forceinline__ void paged_weigh(float (&s)[C::kChunk / 8][4],
                                            PagedQueries<C::kDim> &tile) {
    constexpr float kScale =
        (float)C::kScale * 1.44269504f; // log2(e): exponentials are powers of two
    float top[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        top[r] = s[0][2 * r];
#pragma unroll
        for (int i = 1; i < C::kChunk / 4; i++)
            top[r] = max_f32(top[r], s[i / 2][2 * r + i % 2]);
        top[r] = max_f32(top[r], warp_shuffle_xor(top[r], 1u));
        top[r] = max_f32(top[r], warp_shuffle_xor(top[r], 2u));
        top[r] = max_f32(tile.top[r], top[r] * kScale);
    }
    if (warp_ballot(top[0] > tile.top[0] || top[1] > tile.top[1]) != 0u) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float shrink = exp2_flush_f32(tile.top[r] - paged_base(top[r]));
            tile.top[r] = top[r];
            tile.sum[r] *= shrink;
#pragma unroll
            for (int i = 0; i < C::kDim / 8; i++) {
                tile.o[i][2 * r] *= shrink;
                tile.o[i][2 * r + 1] *= shrink;
            }
        }
    }
    const float base[2] = {paged_base(top[0]), paged_base(top[1])};
#pragma unroll
    for (int h = 0; h < C::kChunk / 8; h++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[h][i] = exp2_flush_f32(fma_f32(s[h][i], kScale, -base[i / 2]));
}

// Values of sixteen keys: v[j][2i + h] is channel 8 (2j + i) + g of keys 8h + 2t and 8h + 2t + 1.
template <int kDim>
__device__ __forceinline__ void paged_take_values(u32 (&v)[kDim / 16][4], const u8 *rows,
                                                  const PagedLane &lane) {
#pragma unroll
    for (int j = 0; j < kDim / 16; j++) // two pieces on
        load_transposed(v[j], rows + (lane.value ^ j * 32));
}

// Zeroes the values that hold an infinity or a NaN and tells which they are, bit 2h + i for key
// 8h + 2t + i: a weight of zero would not keep them out of a product.
template <int kDim>
__device__ __forceinline__ u32 paged_hide_spoilt(u32 (&v)[kDim / 16][4]) {
    u32 spoilt = 0;
#pragma unroll
    for (int place = 0; place < 4; place++) {
        const u32 exponent = place % 2 ? 0x7f800000u : 0x7f80u;
        bool found = false;
#pragma unroll
        for (int j = 0; j < kDim / 16; j++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                found = found || (v[j][2 * i + place / 2] & exponent) == exponent;
        const u32 sharers = 0x11111111u << (lane_id() % 4);
        if ((warp_ballot(found) & sharers) == 0u)
            continue;
        spoilt |= 1u << place;
#pragma unroll
        for (int j = 0; j < kDim / 16; j++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                v[j][2 * i + place / 2] &= place % 2 ? 0xffffu : 0xffff0000u;
    }
    return spoilt;
}

// A row that does see a spoilt value is spoilt.
template <class C>
__device__ __forceinline__ void paged_spoil(PagedQueries<C::kDim> &tile, int key, u32 spoilt) {
    for (int place = 0; place < 4; place++)
        for (int r = 0; r < 2; r++)
            if ((spoilt >> place & 1u) != 0u &&
                paged_sees<C>(tile.position[r],
                              key + place / 2 * 8 + (int)lane_id() % 4 * 2 + place % 2))
                tile.sum[r] = bits_float(0x7fc00000u);
}

// Adds the weighted values of sixteen keys, from position `key` on.
template <class C>
__device__ __forceinline__ void paged_add(PagedQueries<C::kDim> &tile, const float (&low_keys)[4],
                                          const float (&high_keys)[4], const u8 *rows,
                                          const PagedLane &lane, int key, bool edge) {
    u32 v[C::kDim / 16][4];
    paged_take_values<C::kDim>(v, rows, lane);
    if (edge)
        paged_spoil<C>(tile, key, paged_hide_spoilt<C::kDim>(v));
    // A weight goes into the product as two bf16, which keeps 16 of its bits: the o-norm that
    // follows would blow up the error of one wherever values cancel.
    u32 high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float x = i < 2 ? low_keys[i * 2] : high_keys[i % 2 * 2];
        const float y = i < 2 ? low_keys[i * 2 + 1] : high_keys[i % 2 * 2 + 1];
        high[i] = pack_bf16(x, y);
        low[i] = pack_bf16(x - bf16_low(high[i]), y - bf16_high(high[i]));
        tile.sum[i % 2] += x + y;
    }
#pragma unroll
    for (int i = 0; i < C::kDim / 8; i++) {
        const u32 pair[2] = {v[i / 2][i % 2 * 2], v[i / 2][i % 2 * 2 + 1]};
        mma_bf16(tile.o[i], high, pair);
    }
#pragma unroll
    for (int i = 0; i < C::kDim / 8; i++) {
        const u32 pair[2] = {v[i / 2][i % 2 * 2], v[i / 2][i % 2 * 2 + 1]};
        mma_bf16(tile.o[i], low, pair);
    }
}

// A chunk, from position `key` on. `edge`: some row does not see some of its keys.
template <class C>
__device__ __forceinline__ void paged_attend(PagedQueries<C::kDim> &tile, const u8 *chunk,
                                             const PagedLane &lane, int key, bool edge) {
    float s[C::kChunk / 8][4] = {};
    paged_score<C>(s, tile, chunk, lane);
    if (edge)
        paged_mask<C>(s, tile, key);
    paged_weigh<C>(s, tile);
#pragma unroll
    for (int u = 0; u < C::kChunk / kPagedUnit; u++)
        paged_add<C>(tile, s[2 * u], s[2 * u + 1], chunk + u * kPagedUnit * 4 * C::kDim, lane,
                     key + u * kPagedUnit, edge);
}

// Writes a warp's rows to shared memory: `outputs` and `sums` are row g, row g + 8 lies eight on.
template <int kDim>
__device__ __forceinline__ void paged_leave(const PagedQueries<kDim> &tile, float *outputs,
                                            f32x2 *sums, int stride) {
    const int t = (int)lane_id() % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = tile.sum[r];
        sum += warp_shuffle_xor(sum, 1u);
        sum += warp_shuffle_xor(sum, 2u);
        if (t == 0)
            shared_store(sums + 8 * r, f32x2{tile.top[r], sum});
        float *row = outputs + 8 * r * stride + t * 2;
#pragma unroll
        for (int i = 0; i < kDim / 8; i++)
            shared_store((f32x2 *)(row + i * 8), f32x2{tile.o[i][2 * r], tile.o[i][2 * r + 1]});
    }
}

#endif
