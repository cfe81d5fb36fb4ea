// SPDX-License-Identifier: Apache-2.0
// NVFP4 operands of the tensor core, weights and activations cut alike.
// A piece is what one lane holds of one row over kStep consecutive k:
//   kStep 128: 16 bytes, two blocks of 16 codes | 64: 8 bytes, one block | 16: 2 bytes, a quarter
//   of a block.
// e2m1 * e4m3 is exact in bf16. Operands carry a factor of 2^-8, so that a code becomes a float by
// shifting it to bits 24..22 (the value times 2^-126, 0.5 as a subnormal); products carry 2^-16.
#ifndef LATHE_MOE_NVFP4_CUH
#define LATHE_MOE_NVFP4_CUH

#include "moe/routed.cuh"
#include "prims.cuh"

constexpr float kNvfp4Lift =
    3.3230699894622897e35f;                   // 2^118: what is missing to 2^-126 * 2^118 = 2^-8
constexpr float kNvfp4Product = 65536.0f;     // restores a sum of products
constexpr float kNvfp4WeightProduct = 256.0f; // the same with bf16 activations

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
__device__ __forceinline__ RoutedPairs<kStep> nvfp4_expand(const Nvfp4Piece<kStep> &p) {
    RoutedPairs<kStep> out;
    float scale = nvfp4_scale(p.scales, 0);
#pragma unroll
    for (int i = 0; i < kStep / 8; ++i) {
        if (i == 8) // the second block
            scale = nvfp4_scale(p.scales, 1);
        const u32 word = p.codes[i / 4];
        out.pairs[i] =
            pack_bf16(nvfp4_value(word, 2 * i % 8, scale), nvfp4_value(word, 2 * i % 8 + 1, scale));
    }
    return out;
}

// Weights of the routed GEMMs, as the checkpoint has them: rows of kBlocks blocks; a slice is
// kSlice rows further than the one before, its second set of 16 rows kSet rows further than its
// first. `codes` and `scales` point at row lane / 4 of the expert.
template <int kStep, int kBlocks, int kSlice, int kSet>
struct Nvfp4Weights {
    using Piece = Nvfp4Piece<kStep>;
    const u8 *codes;
    const e4m3 *scales;

    __device__ __forceinline__ void load(Piece (&w)[4], u32 slice, u32 step) const {
        const u8 *from = codes + slice * u32(kSlice * kBlocks * 8) + step * u32(kStep / 2);
        const e4m3 *from_scales = scales + slice * u32(kSlice * kBlocks) + step * u32(kStep / 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 row = u32(i / 2 * kSet + i % 2 * 8);
            nvfp4_load_weight<kStep>(w[i], from + row * u32(kBlocks * 8),
                                     from_scales + row * u32(kBlocks), lane_id() % 4);
        }
    }

    static __device__ __forceinline__ RoutedPairs<kStep> pairs(const Piece &w) {
        return nvfp4_expand<kStep>(w);
    }
};

// Activations that another launch quantised: rows of kBlocks blocks.
template <int kStep, int kBlocks>
struct Nvfp4Tokens {
    const u8 *codes;
    const e4m3 *scales;

    __device__ __forceinline__ void load(RoutedPairs<kStep> &x, u64 row, u32 step) const {
        Nvfp4Piece<kStep> piece;
        nvfp4_load<kStep>(piece, codes + row * u32(kBlocks * 8) + step * u32(kStep / 2),
                          scales + row * u32(kBlocks) + step * u32(kStep / 16), lane_id() % 4);
        x = nvfp4_expand<kStep>(piece);
    }
};

#endif
