// SPDX-License-Identifier: Apache-2.0
// The register tiles of paged attention: 16 query rows against 16 keys, on tensor cores.
//
// With g = lane / 4 and t = lane % 4 a lane holds, of the query rows, g and g + 8. Of each key it
// holds kDim / 4 channels, so that four lanes share a key; of each value kDim / 8 channels, so that
// eight lanes share it: of keys 2t, 2t + 1, 2t + 8, 2t + 9, its places 0 to 3.
#ifndef LATHE_ATTENTION_PAGED_TILE_CUH
#define LATHE_ATTENTION_PAGED_TILE_CUH

#include "prims.cuh"

constexpr int kPagedChunk = 16; // keys of a tile

// Sixteen query rows and their softmax so far.
template <int kDim>
struct PagedQueries {
    u32 q[kDim / 16][4];
    float o[kDim / 8][4]; // weighted sum of values: [i][0], [i][1] row g; [i][2], [i][3] row g + 8
    float top[2];         // largest score of a row, in powers of two
    float sum[2];         // sum of weights, this lane's keys only
    int position[2];      // of a row's query; -1: the row is padding and sees nothing
};

// Sixteen cache rows.
template <int kDim>
struct PagedKeys {
    u32 k[2][kDim / 8]; // keys g and g + 8
    u32 v[4]
         [kDim / 16]; // one a place; after paged_pair_values: pairs of keys, even and odd channels
};

__device__ __forceinline__ float paged_infinity(int sign) {
    return bits_float(sign < 0 ? 0xff800000u : 0x7f800000u);
}

// What scores are taken relative to: zero for a row that has seen no key, so that no infinity is
// subtracted from another.
__device__ __forceinline__ float paged_base(float top) {
    return top == paged_infinity(-1) ? 0.0f : top;
}

template <int kWords>
__device__ __forceinline__ void paged_load_words(u32 *to, const bf16 *from) {
    static_assert(kWords == 1 || kWords == 2 || kWords == 4, "one vector load");
    if constexpr (kWords == 1) {
        to[0] = *(const u32 *)from;
    } else if constexpr (kWords == 2) {
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

// A lane's channels of a query or key; queries and keys agree, which is all that a product asks.
template <int kDim>
__device__ __forceinline__ void paged_load_row(u32 (&words)[kDim / 8], const bf16 *row) {
    constexpr int kVector = kDim >= 32 ? 4 : kDim / 8; // words of one load
    for (int i = 0; i < kDim / 8 / kVector; i++)
        paged_load_words<kVector>(words + i * kVector,
                                  row + (i * 4 + (int)lane_id() % 4) * kVector * 2);
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

// `rows` are sixteen cache rows, one after the other, of which the first `count` are read; the
// others come as zeros.
template <int kDim>
__device__ __forceinline__ void paged_load_keys(PagedKeys<kDim> &keys, const bf16 *rows,
                                                int count) {
    constexpr int kVector = kDim >= 64 ? 4 : kDim / 16;
    const int g = (int)lane_id() / 4;
    const int t = (int)lane_id() % 4;
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < kDim / 8; i++)
            keys.k[half][i] = 0u;
        if (half * 8 + g < count)
            paged_load_row<kDim>(keys.k[half], rows + (half * 8 + g) * 2 * kDim);
    }
    for (int place = 0; place < 4; place++) {
        const int row = place / 2 * 8 + t * 2 + place % 2;
        const bf16 *value = rows + row * 2 * kDim + kDim;
        for (int i = 0; i < kDim / 16 / kVector; i++) {
            for (int w = 0; w < kVector; w++)
                keys.v[place][i * kVector + w] = 0u;
            if (row < count)
                paged_load_words<kVector>(keys.v[place] + i * kVector,
                                          value + (i * 8 + g) * kVector * 2);
        }
    }
}

// Zeroes the values that hold an infinity or a NaN and tells which they are, a bit a place: a
// weight of zero would not keep them out of a product. A query that does see one is spoilt in
// paged_attend.
template <int kDim>
__device__ __forceinline__ u32 paged_hide_spoilt(PagedKeys<kDim> &keys) {
    u32 spoilt = 0;
    for (int place = 0; place < 4; place++) {
        bool found = false;
        for (int i = 0; i < kDim / 16; i++) {
            const u32 exponents = keys.v[place][i] & 0x7f807f80u;
            found = found || (exponents & 0xffffu) == 0x7f80u || exponents >= 0x7f800000u;
        }
        const u32 sharers = 0x11111111u << (lane_id() % 4);
        if ((warp_ballot(found) & sharers) == 0u)
            continue;
        spoilt |= 1u << place;
        for (int i = 0; i < kDim / 16; i++)
            keys.v[place][i] = 0u;
    }
    return spoilt;
}

// Puts the same channel of two neighbouring keys into one word, as the product over keys wants it.
template <int kDim>
__device__ __forceinline__ void paged_pair_values(PagedKeys<kDim> &keys) {
    for (int place = 0; place < 4; place += 2)
        for (int i = 0; i < kDim / 16; i++) {
            const u32 a = keys.v[place][i];
            const u32 b = keys.v[place + 1][i];
            keys.v[place][i] = (a & 0xffffu) | (b << 16);
            keys.v[place + 1][i] = (a >> 16) | (b & 0xffff0000u);
        }
}

// Hides the scores of keys that a row does not see, and spoils a row that sees a spoilt value.
template <class C>
__device__ __forceinline__ void paged_mask(float (&s)[2][4], PagedQueries<C::kDim> &tile, int key,
                                           u32 spoilt) {
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 4; i++) {
            const int position = tile.position[i / 2];
            const int at = key + half * 8 + (int)lane_id() % 4 * 2 + i % 2;
            bool visible = at <= position;
            if constexpr (C::kWindow > 0)
                visible = visible && at > position - C::kWindow;
            if (!visible)
                s[half][i] = paged_infinity(-1);
            else if ((spoilt >> (half * 2 + i % 2) & 1u) != 0u)
                tile.sum[i / 2] = bits_float(0x7fc00000u);
        }
}

// Turns the scores of row r into weights and rescales what the row has so far.
template <int kDim>
__device__ __forceinline__ void paged_weigh(float (&s)[2][4], PagedQueries<kDim> &tile, int r) {
    float top =
        max_f32(max_f32(s[0][2 * r], s[0][2 * r + 1]), max_f32(s[1][2 * r], s[1][2 * r + 1]));
    top = max_f32(top, warp_shuffle_xor(top, 1u));
    top = max_f32(top, warp_shuffle_xor(top, 2u));
    top = max_f32(top, tile.top[r]);
    const float base = paged_base(top);
    const float shrink = exp2_f32(tile.top[r] - base);
    tile.top[r] = top;
    tile.sum[r] *= shrink;
    for (int i = 0; i < kDim / 8; i++) {
        tile.o[i][2 * r] *= shrink;
        tile.o[i][2 * r + 1] *= shrink;
    }
    for (int half = 0; half < 2; half++)
        for (int i = 2 * r; i < 2 * r + 2; i++)
            s[half][i] = exp2_f32(s[half][i] - base);
}

// Sixteen keys, from position `key` on. `edge`: some row does not see some of them.
template <class C>
__device__ __forceinline__ void paged_attend(PagedQueries<C::kDim> &tile,
                                             const PagedKeys<C::kDim> &keys, int key, bool edge,
                                             u32 spoilt) {
    constexpr float kScale =
        (float)C::kScale * 1.44269504f; // log2(e): exponentials are powers of two
    float s[2][4] = {};
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < C::kDim / 16; i++) {
            const u32 pair[2] = {keys.k[half][2 * i], keys.k[half][2 * i + 1]};
            mma_bf16(s[half], tile.q[i], pair);
        }
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 4; i++)
            s[half][i] *= kScale;
    if (edge)
        paged_mask<C>(s, tile, key, spoilt);
    for (int r = 0; r < 2; r++)
        paged_weigh<C::kDim>(s, tile, r);

    // A weight goes into the product as two bf16, which keeps 16 of its bits: the o-norm that
    // follows would blow up the error of one wherever values cancel.
    u32 high[4], low[4];
    for (int i = 0; i < 4; i++) {
        const float x = s[i / 2][i % 2 * 2];
        const float y = s[i / 2][i % 2 * 2 + 1];
        high[i] = pack_bf16(x, y);
        low[i] = pack_bf16(x - bf16_low(high[i]), y - bf16_high(high[i]));
        tile.sum[i % 2] += x + y;
    }
    for (int i = 0; i < C::kDim / 8; i++) {
        const u32 pair[2] = {keys.v[i % 2][i / 2], keys.v[2 + i % 2][i / 2]};
        mma_bf16(tile.o[i], high, pair);
        mma_bf16(tile.o[i], low, pair);
    }
}

// Writes a warp's rows to shared memory: `outputs` and `sums` are row g, row g + 8 lies eight on.
template <int kDim>
__device__ __forceinline__ void paged_leave(const PagedQueries<kDim> &tile, float *outputs,
                                            f32x2 *sums, int stride) {
    constexpr int kRun = kDim >= 64 ? 8 : kDim / 8; // neighbouring channels of a lane's value
    const int t = (int)lane_id() % 4;
    for (int r = 0; r < 2; r++) {
        float sum = tile.sum[r];
        sum += warp_shuffle_xor(sum, 1u);
        sum += warp_shuffle_xor(sum, 2u);
        if (t == 0)
            shared_store(sums + 8 * r, f32x2{tile.top[r], sum});
        float *row = outputs + 8 * r * stride;
        for (int i = 0; i < kDim / 8; i += 2)
            for (int side = 0; side < 2; side++) {
                const int channel = i / 8 * 64 + (t * 2 + side) * kRun + i % 8;
                shared_store((f32x2 *)(row + channel),
                             f32x2{tile.o[i][2 * r + side], tile.o[i + 1][2 * r + side]});
            }
    }
}

#endif
