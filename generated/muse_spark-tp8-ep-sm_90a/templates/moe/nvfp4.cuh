// SPDX-License-Identifier: Apache-2.0
// NVFP4 operands of the tensor core. The sum over k runs in any order, so each lane of a quad takes
// codes that are neighbours in memory, and a row's weights and a token's activations are cut alike.
// A piece is what one lane holds of one row over kStep consecutive k:
//   kStep 128: 16 bytes, two blocks of 16 codes | 64: 8 bytes, one block | 16: 2 bytes, a quarter
//   of a block.
// e2m1 * e4m3 is exact in bf16. Operands carry a factor of 2^-8, so that a code becomes a float by
// shifting it to bits 24..22 (the value times 2^-126, 0.5 as a subnormal); products carry 2^-16.
#ifndef LATHE_MOE_NVFP4_CUH
#define LATHE_MOE_NVFP4_CUH

#include "prims.cuh"

constexpr float kNvfp4Lift =
    3.3230699894622897e35f;               // 2^118: what is missing to 2^-126 * 2^118 = 2^-8
constexpr float kNvfp4Product = 65536.0f; // restores a sum of products

template <int kStep>
struct Nvfp4Piece {
    u32 codes[kStep == 128 ? 4 : kStep == 64 ? 2 : 1]; // eight codes a word, lowest nibble first
    u32 scales;                                        // one e4m3 byte a block, lowest first
};

// Cuts a lane's share out of what its quad shares.
__device__ __forceinline__ u32 nvfp4_two_scales(u32x2 eight, u32 quarter) {
    const u32 word = quarter < 2 ? eight.x : eight.y;
    return word >> (16 * (quarter & 1)) & 0xffffu;
}
__device__ __forceinline__ u32 nvfp4_four_codes(u32x2 sixteen, u32 quarter) {
    const u32 word = quarter < 2 ? sixteen.x : sixteen.y;
    return word >> (16 * (quarter & 1)) & 0xffffu;
}

// Piece `quarter` (0..3) of a weight row; `codes` and `scales` point at the row's step.
template <int kStep>
__device__ __forceinline__ void nvfp4_load_weight(Nvfp4Piece<kStep> &p, const u8 *codes,
                                                  const e4m3 *scales, u32 quarter) {
    if constexpr (kStep == 128) {
        const u32x4 c = load_weight16(codes + quarter * 16);
        p.codes[0] = c.x;
        p.codes[1] = c.y;
        p.codes[2] = c.z;
        p.codes[3] = c.w;
        p.scales = nvfp4_two_scales(load_weight8(scales), quarter);
    } else if constexpr (kStep == 64) {
        const u32x2 c = load_weight8(codes + quarter * 8);
        p.codes[0] = c.x;
        p.codes[1] = c.y;
        p.scales = load_weight4(scales) >> (8 * quarter) & 0xffu;
    } else {
        p.codes[0] = nvfp4_four_codes(load_weight8(codes), quarter);
        p.scales = scales->bits;
    }
}

// The same of activations, which another launch wrote.
template <int kStep>
__device__ __forceinline__ void nvfp4_load(Nvfp4Piece<kStep> &p, const u8 *codes,
                                           const e4m3 *scales, u32 quarter) {
    if constexpr (kStep == 128) {
        const u32x4 c = *reinterpret_cast<const u32x4 *>(codes + quarter * 16);
        p.codes[0] = c.x;
        p.codes[1] = c.y;
        p.codes[2] = c.z;
        p.codes[3] = c.w;
        p.scales = u32(scales[quarter * 2].bits) | u32(scales[quarter * 2 + 1].bits) << 8;
    } else if constexpr (kStep == 64) {
        const u32x2 c = *reinterpret_cast<const u32x2 *>(codes + quarter * 8);
        p.codes[0] = c.x;
        p.codes[1] = c.y;
        p.scales = scales[quarter].bits;
    } else {
        p.codes[0] = *reinterpret_cast<const u16 *>(codes + quarter * 2);
        p.scales = scales->bits;
    }
}

// Scale of block `block` of a piece, lifted.
__device__ __forceinline__ float nvfp4_scale(u32 scales, int block) {
    e4m3 scale;
    scale.bits = u8(scales >> (8 * block));
    return e4m3_to_float(scale) * kNvfp4Lift;
}

// Code at nibble `index` of a word, times a lifted scale.
__device__ __forceinline__ float nvfp4_value(u32 word, int index, float scale) {
    const u32 top = word << (28 - 4 * index);
    return bits_float(u32(int(top) >> 6) & 0x81c00000u) * scale;
}

// All pairs of a piece as bf16, two values a word.
template <int kStep>
__device__ __forceinline__ void nvfp4_expand(u32 (&pairs)[kStep / 8], const Nvfp4Piece<kStep> &p) {
    float scale = nvfp4_scale(p.scales, 0);
#pragma unroll
    for (int i = 0; i < kStep / 8; ++i) {
        if (i == 8) // the second block
            scale = nvfp4_scale(p.scales, 1);
        const u32 word = p.codes[i / 4];
        pairs[i] =
            pack_bf16(nvfp4_value(word, 2 * i % 8, scale), nvfp4_value(word, 2 * i % 8 + 1, scale));
    }
}

// sum += 16 rows of weights times 8 tokens over one step: `low` is row lane / 4, `high` eight rows
// further.
template <int kStep>
__device__ __forceinline__ void nvfp4_multiply(float (&sum)[4], const Nvfp4Piece<kStep> &low,
                                               const Nvfp4Piece<kStep> &high,
                                               const u32 (&tokens)[kStep / 8]) {
    u32 a[kStep / 8];
    u32 b[kStep / 8];
    nvfp4_expand<kStep>(a, low);
    nvfp4_expand<kStep>(b, high);
#pragma unroll
    for (int i = 0; i < kStep / 8; i += 2) {
        const u32 rows[4] = {a[i], b[i], a[i + 1], b[i + 1]};
        const u32 columns[2] = {tokens[i], tokens[i + 1]};
        mma_bf16(sum, rows, columns);
    }
}

#endif
