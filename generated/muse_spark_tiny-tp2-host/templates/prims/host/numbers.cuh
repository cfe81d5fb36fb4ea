// SPDX-License-Identifier: Apache-2.0
// Conversions between number formats in integer arithmetic, the bits those of the instructions.
#ifndef LATHE_PRIMS_NUMBERS_CUH
#define LATHE_PRIMS_NUMBERS_CUH

#include "types.cuh"

static inline u32 float_bits(float x) {
    u32 bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}
static inline float bits_float(u32 bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}
static inline u64 double_bits(double x) {
    u64 bits;
    __builtin_memcpy(&bits, &x, 8);
    return bits;
}
static inline double bits_double(u64 bits) {
    double x;
    __builtin_memcpy(&x, &bits, 8);
    return x;
}

static inline float bf16_to_float(bf16 x) {
    return bits_float((u32)x.bits << 16);
}
// A NaN becomes 0x7fff, whatever its payload and sign.
static inline bf16 float_to_bf16(float x) {
    const u32 bits = float_bits(x);
    bf16 y;
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        y.bits = 0x7fff;
    else
        y.bits = (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    return y;
}
static inline u32 pack_bf16(float lo, float hi) {
    return float_to_bf16(lo).bits | ((u32)float_to_bf16(hi).bits << 16);
}
static inline float bf16_low(u32 pair) {
    return bits_float(pair << 16);
}
static inline float bf16_high(u32 pair) {
    return bits_float(pair & 0xffff0000u);
}

// The value itself, which the compiler keeps in a register and does not make again.
static inline u32 keep_register(u32 value) {
    return value;
}

// Both products of two pairs, each rounded once; subnormals are kept, a NaN becomes 0x7fff. fp32
// holds what decides the rounding: 16 bits of a product down to its 2^-149, and below 2^-134 all is
// zero.
static inline u32 multiply_bf16(u32 a, u32 b) {
    return pack_bf16(bf16_low(a) * bf16_low(b), bf16_high(a) * bf16_high(b));
}
// Byte i of the result is byte s of b:a, s being nibble i of `selector` (0 to 7).
static inline u32 permute_bytes(u32 a, u32 b, u32 selector) {
    const u64 both = (u64)b << 32 | a;
    u32 result = 0;
    for (u32 i = 0; i < 4; ++i)
        result |= (u32)(both >> (8 * (selector >> (4 * i) & 7u)) & 0xffu) << (8 * i);
    return result;
}

// 4 exponent bits of bias 7, 3 of mantissa; no infinity; 0x7f is NaN, 0x7e is 448.
static inline e4m3 float_to_e4m3(float x) {
    const u32 bits = float_bits(x);
    const u32 magnitude = bits & 0x7fffffffu;
    const u32 sign = (bits >> 24) & 0x80u;
    e4m3 y;
    if (magnitude > 0x7f800000u) {
        y.bits = 0x7f; // NaN loses its sign
    } else if (magnitude >= 0x43e80000u) {
        y.bits = (u8)(sign | 0x7eu); // 464, half-way to the missing 480, and beyond
    } else if (magnitude < 0x3c800000u) {
        // Below 2^-6 the codes count units of 2^-9. Adding 2^14 leaves that unit as the last place.
        const float sum = bits_float(magnitude) + 16384.0f;
        y.bits = (u8)(sign | (float_bits(sum) & 0xfu));
    } else {
        const u32 rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
        y.bits = (u8)(sign | ((rounded >> 20) - (120u << 3)));
    }
    return y;
}
static inline float e4m3_to_float(e4m3 x) {
    const u32 magnitude = x.bits & 0x7fu;
    const u32 sign = (u32)(x.bits & 0x80u) << 24;
    if (magnitude == 0x7fu)
        return bits_float(0x7fffffffu);
    if (magnitude < 8)
        return bits_float(float_bits((float)magnitude * 0x1p-9f) | sign);
    return bits_float(((magnitude + (120u << 3)) << 20) | sign);
}

// The code's even neighbour takes a tie: 0.25 0.75 1.25 1.75 2.5 3.5 5.
static inline u32 float_to_e2m1(float x) {
    const u32 bits = float_bits(x);
    const float a = bits_float(bits & 0x7fffffffu);
    if (a != a)
        return 7u;
    const u32 magnitude = (u32)(a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) +
                          (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return magnitude | ((bits >> 28) & 8u);
}
static inline float e2m1_to_float(u32 code) {
    const float values[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return bits_float(float_bits(values[code & 7u]) | ((code & 8u) << 28));
}

#endif
