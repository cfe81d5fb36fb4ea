// SPDX-License-Identifier: Apache-2.0
// Units of NVFP4 weights, as prepare/expert_units packs them: 16 rows over a run of k in one piece,
// fetched by one bulk copy. A unit is its codes, 512 bytes for each 64 of k (a chunk), then its
// scales. With g = lane / 4 and t = lane % 4, lane l owns in chunk q the 16 bytes at q * 512 + l *
// 16: k q * 64 + t * 16 to + 15 of row g, then of row g + 8; these are one block each, whose scales
// are bytes 2q and 2q + 1 of the lane's scales. The sum over k runs in any order, so those 16 are
// operands of the tensor core as they stand.
//
// Eight codes make a word so that eight instructions give four bf16 pairs: a magnitude goes to bits
// 8..6 and the sign to bit 15, which is e2m1 times 2^-126, 0.5 as a subnormal. Three of the pairs
// are found by rotating by 0, 3 and 6; the fourth has the bits that these leave over, moved by a
// multiplication.
//
// A scale is an unsigned byte of 5 exponent and 3 mantissa bits, 2^-23 at exponent 0: the sign bit
// of e4m3 has become exponent, so that its subnormals are normal. A scale of zero has codes of
// zero.
#ifndef LATHE_MOE_UNIT_CUH
#define LATHE_MOE_UNIT_CUH

#include "prims.cuh"

// Bits of a word that hold pair i after a rotation by 3 i, and those of the fourth pair.
constexpr u32 kUnitPair = 0x81c081c0u;
constexpr u32 kUnitFourth = 0x001b001bu;
constexpr u32 kUnitGather = 0x4108u; // the fourth's sign, top and low bits to 15, 8 and 7..6

__device__ __forceinline__ u32 unit_rotate(u32 word, u32 bits) {
    return word >> bits | word << (32 - bits);
}

// Pairs 2i and 2i + 1 of a word's eight values.
__device__ __forceinline__ void unit_pairs(u32 *pairs, u32 word) {
    pairs[0] = word & kUnitPair;
    pairs[1] = unit_rotate(word, 3) & kUnitPair;
    pairs[2] = unit_rotate(word, 6) & kUnitPair;
    pairs[3] = (word & kUnitFourth) * kUnitGather & kUnitPair;
}

// Codes 2 pair and 2 pair + 1 of eight that stand lowest nibble first, in bits 3..0 and 19..16.
template <int pair>
__device__ __forceinline__ u32 unit_couple(u32 nibbles) {
    constexpr u32 kSelect = u32(pair) | u32(4 + pair) << 8;
    return permute_bytes(nibbles, nibbles >> 4, kSelect | kSelect << 8) & 0x000f000fu;
}

// The word of eight codes that stand lowest nibble first.
__device__ __forceinline__ u32 unit_word(u32 nibbles) {
    constexpr u32 kSign = 0x00080008u;
    constexpr u32 kMagnitude = 0x00070007u;
    const u32 a = unit_couple<0>(nibbles);
    const u32 b = unit_couple<1>(nibbles);
    const u32 c = unit_couple<2>(nibbles);
    const u32 d = unit_couple<3>(nibbles);
    return (a & kMagnitude) << 6 | (a & kSign) << 12 | (b & kMagnitude) << 9 |
           unit_rotate(b & kSign, 17) | (c & kMagnitude) << 12 | unit_rotate(c & kSign, 14) |
           (d & 0x00030003u) << 3 | (d >> 2 & 0x00030003u);
}

// The four pairs of eight codes that stand lowest nibble first, as unit_pairs() gives them.
__device__ __forceinline__ void unit_plain_pairs(u32 (&pairs)[4], u32 nibbles) {
    const u32 couples[4] = {unit_couple<0>(nibbles), unit_couple<1>(nibbles),
                            unit_couple<2>(nibbles), unit_couple<3>(nibbles)};
#pragma unroll
    for (int i = 0; i < 4; ++i)
        pairs[i] = (couples[i] << 6 & 0x01c001c0u) | (couples[i] << 12 & 0x80008000u);
}

// What a lane owns of a unit.
template <int kChunks>
struct UnitPiece {
    u32x4 codes[kChunks];
    u32 scales[(kChunks + 1) / 2];
};

template <int kChunks>
__device__ __forceinline__ void unit_read(UnitPiece<kChunks> &p, const u8 *unit) {
    const u8 *scales = unit + kChunks * 512 + lane_id() * u32(kChunks * 2);
    if constexpr (kChunks % 8 == 0) {
#pragma unroll
        for (int i = 0; i < kChunks / 8; ++i) {
            const u32x4 v = shared_load(reinterpret_cast<const u32x4 *>(scales) + i);
            p.scales[4 * i] = v.x;
            p.scales[4 * i + 1] = v.y;
            p.scales[4 * i + 2] = v.z;
            p.scales[4 * i + 3] = v.w;
        }
    } else if constexpr (kChunks % 2 == 0) {
#pragma unroll
        for (int i = 0; i < kChunks / 2; ++i)
            p.scales[i] = shared_load(reinterpret_cast<const u32 *>(scales) + i);
    } else {
        static_assert(kChunks == 1, "an even number of chunks, or one");
        p.scales[0] = shared_load(reinterpret_cast<const u16 *>(scales));
    }
#pragma unroll
    for (int q = 0; q < kChunks; ++q)
        p.codes[q] = shared_load(reinterpret_cast<const u32x4 *>(unit + lane_id() * 16) + q * 32);
}

// Scale `byte` (0 to 3) of a word as a float, and as a pair of bf16 that carries `lift` too: one
// byte permutation and one multiply-add each.
template <int byte>
__device__ __forceinline__ float unit_scale(u32 word) {
    return bits_float(permute_bytes(word, 0, 0x4044u | u32(byte) << 8) * 16 + 0x34000000u);
}
template <int byte, int kLift>
__device__ __forceinline__ u32 unit_scale_pair(u32 word) {
    constexpr u32 kOne = (0x7au + u32(kLift)) << 7;
    return permute_bytes(word, 0, 0x4040u | u32(byte) << 8 | u32(byte)) * 16 + (kOne << 16 | kOne);
}

// A live tile in one word: its expert, the number of its tokens, and 12 bits of the product's own.
__device__ __forceinline__ u32 unit_tile(u32 expert, u32 count, u32 own) {
    return expert | count << 16 | own << 20;
}
__device__ __forceinline__ u32 unit_tile_expert(u32 tile) {
    return tile & 0xffffu;
}
__device__ __forceinline__ u32 unit_tile_count(u32 tile) {
    return tile >> 16 & 15u;
}
__device__ __forceinline__ u32 unit_tile_own(u32 tile) {
    return tile >> 20;
}

// A token of shared memory as a lane sees it: bytes from the start of shared memory. Expanded: bf16
// times 2^100, in the order of k. Else the words of its codes, then its e4m3 scales. A lane that
// has no token, or none in this column, reads zeros instead, as many as a unit needs.
struct UnitToken {
    u32 codes, scales;
};

// Bytes of a token along one chunk, and those of zero that stand for a unit of it.
template <int kExpanded>
constexpr u32 kUnitStride = kExpanded ? 128 : 32;
template <int kExpanded, int kChunks>
constexpr u32 kUnitZeros = kUnitStride<kExpanded> *u32(kChunks);

// What is missing from the sum of products of each form.
template <int kExpanded>
constexpr float kUnitWide = kExpanded ? 256.0f : 32768.0f;
constexpr float kUnitNarrow = 67108864.0f;

// 16 values of chunk q as eight pairs; `kLifted` says whether unscaled weights follow.
template <int kExpanded, int kLifted>
__device__ __forceinline__ void unit_token(u32 (&pairs)[8], const UnitToken &token, u32 q) {
    const u8 *shared = dynamic_shared();
    if constexpr (kExpanded) {
        const u32x4 *from =
            reinterpret_cast<const u32x4 *>(shared + token.codes + q * kUnitStride<1>);
        const u32x4 low = shared_load(from);
        const u32x4 high = shared_load(from + 1);
        pairs[0] = low.x;
        pairs[1] = low.y;
        pairs[2] = low.z;
        pairs[3] = low.w;
        pairs[4] = high.x;
        pairs[5] = high.y;
        pairs[6] = high.z;
        pairs[7] = high.w;
    } else {
        const u32x2 words =
            shared_load(reinterpret_cast<const u32x2 *>(shared + token.codes + q * kUnitStride<0>));
        const u32 four = shared_load(reinterpret_cast<const u32 *>(shared + token.scales + q * 4));
        e4m3 scale;
        scale.bits = u8(four >> (8 * (lane_id() % 4)));
        // 2^118 leaves 2^-8; 2^113 twice leaves 2^100.
        const float lifted = e4m3_to_float(scale) * bits_float(kLifted ? 0x78000000u : 0x7a800000u);
        const u32 pair = pack_bf16(lifted, lifted);
        unit_pairs(pairs, words.x);
        unit_pairs(pairs + 4, words.y);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            pairs[i] = multiply_bf16(pairs[i], pair);
            if (kLifted)
                pairs[i] = multiply_bf16(pairs[i], 0x78007800u);
        }
    }
}

__device__ __forceinline__ void unit_multiply(float (&even)[4], float (&odd)[4],
                                              const u32 (&low)[8], const u32 (&high)[8],
                                              const u32 (&tokens)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const u32 rows[4] = {low[i], high[i], low[i + 1], high[i + 1]};
        const u32 columns[2] = {tokens[i], tokens[i + 1]};
        if (i % 4 == 0)
            mma_bf16(even, rows, columns);
        else
            mma_bf16(odd, rows, columns);
    }
}

// Rows g and g + 8 of chunk q, unscaled.
template <int kChunks>
__device__ __forceinline__ void unit_rows(u32 (&low)[8], u32 (&high)[8],
                                          const UnitPiece<kChunks> &p, int q) {
    unit_pairs(low, p.codes[q].x);
    unit_pairs(low + 4, p.codes[q].y);
    unit_pairs(high, p.codes[q].z);
    unit_pairs(high + 4, p.codes[q].w);
}

// Up to eight tokens, one a column: scales go into the weights, which stay exact. sum: rows g and
// g + 8 of tokens 2t and 2t + 1.
template <int kChunks, int kExpanded>
__device__ __forceinline__ void unit_wide(float (&sum)[4], const UnitPiece<kChunks> &p,
                                          const UnitToken &token) {
    constexpr int kLift = kExpanded ? 0 : 101;
    float odd[4] = {0, 0, 0, 0};
#pragma unroll
    for (int q = 0; q < kChunks; ++q) {
        u32 tokens[8];
        unit_token<kExpanded, 0>(tokens, token, u32(q));
        const u32 word = p.scales[q / 2];
        const u32 scale_low =
            q % 2 ? unit_scale_pair<2, kLift>(word) : unit_scale_pair<0, kLift>(word);
        const u32 scale_high =
            q % 2 ? unit_scale_pair<3, kLift>(word) : unit_scale_pair<1, kLift>(word);
        u32 low[8];
        u32 high[8];
        unit_rows<kChunks>(low, high, p, q);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            low[i] = multiply_bf16(low[i], scale_low);
            high[i] = multiply_bf16(high[i], scale_high);
        }
        unit_multiply(sum, odd, low, high, tokens);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        sum[i] += odd[i];
}

// One token: the eight columns are the blocks of two chunks instead, column 2t + h being block t of
// chunk 2p + h, and the token's 16 values there are all that it sees. Products of one chunk and the
// other's columns come out too, in sums that nobody reads. So scales meet sums, once for 128 of k.
// sum: rows g and g + 8, a part in each lane of the quad.
template <int kChunks, int kExpanded>
__device__ __forceinline__ void unit_narrow(float (&sum)[2], const UnitPiece<kChunks> &p,
                                            const UnitToken &token) {
#pragma unroll
    for (int first = 0; first < kChunks; first += 2) {
        u32 tokens[8];
        unit_token<kExpanded, 1>(tokens, token, u32(first));
        float a[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
        for (int q = first; q < first + 2 && q < kChunks; ++q) {
            u32 low[8];
            u32 high[8];
            unit_rows<kChunks>(low, high, p, q);
            unit_multiply(a[q % 2], a[q % 2], low, high, tokens);
        }
        const u32 word = p.scales[first / 2];
        sum[0] += a[0][0] * unit_scale<0>(word);
        sum[1] += a[0][2] * unit_scale<1>(word);
        if (first + 1 < kChunks) {
            sum[0] += a[1][1] * unit_scale<2>(word);
            sum[1] += a[1][3] * unit_scale<3>(word);
        }
    }
}

// Total over the quad, the same in its four lanes.
__device__ __forceinline__ float unit_quad(float v) {
    v += warp_shuffle_xor(v, 1);
    return v + warp_shuffle_xor(v, 2);
}

// Puts 32 codes of a token (`from`, lowest nibble first) and their two scales at position `piece`
// of its row.
template <int kExpanded>
__device__ __forceinline__ void unit_stage(u8 *row, u32 code_bytes, u32 piece, u32x4 from,
                                           u32 scales) {
    if constexpr (kExpanded) {
        const u32 nibbles[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            e4m3 scale;
            scale.bits = u8(scales >> (i / 2 * 8));
            const float lifted = e4m3_to_float(scale) * bits_float(0x78000000u); // 2^113, twice
            const u32 pair = pack_bf16(lifted, lifted);
            u32 pairs[4];
            unit_plain_pairs(pairs, nibbles[i]);
#pragma unroll
            for (int j = 0; j < 4; ++j)
                pairs[j] = multiply_bf16(multiply_bf16(pairs[j], pair), 0x78007800u);
            shared_store(reinterpret_cast<u32x4 *>(row + piece * 64) + i,
                         u32x4{pairs[0], pairs[1], pairs[2], pairs[3]});
        }
    } else {
        shared_store(
            reinterpret_cast<u32x4 *>(row) + piece,
            u32x4{unit_word(from.x), unit_word(from.y), unit_word(from.z), unit_word(from.w)});
        shared_store(reinterpret_cast<u16 *>(row + code_bytes) + piece, u16(scales));
    }
}

// A token as a lane sees it from chunk `first` on. `row` and `zeros`: bytes from the start of
// shared memory; a lane that sees none reads at `zeros`.
template <int kExpanded>
__device__ __forceinline__ UnitToken unit_view(bool sees, u32 row, u32 zeros, u32 code_bytes,
                                               u32 first) {
    constexpr u32 kStride = kUnitStride<kExpanded>;
    UnitToken token;
    token.codes =
        keep_register(sees ? row + first * kStride + lane_id() % 4 * (kStride / 4) : zeros);
    token.scales = keep_register(sees ? row + code_bytes + first * 4 : zeros);
    return token;
}
// The same for unit_narrow().
template <int kChunks, int kExpanded>
__device__ __forceinline__ UnitToken unit_narrow_view(u32 row, u32 zeros, u32 code_bytes,
                                                      u32 first) {
    const u32 g = lane_id() / 4;
    return unit_view<kExpanded>(g / 2 == lane_id() % 4 && g % 2 < u32(kChunks), row, zeros,
                                code_bytes, first + g % 2);
}

#endif
