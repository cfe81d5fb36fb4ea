// SPDX-License-Identifier: Apache-2.0
// Conversions between number formats, all exact or rounded to nearest, ties to even.
#ifndef LATHE_PRIMS_NUMBERS_CUH
#define LATHE_PRIMS_NUMBERS_CUH

#include "types.cuh"

__device__ __forceinline__ u32 float_bits(float x) {
    return __float_as_uint(x);
}
__device__ __forceinline__ float bits_float(u32 bits) {
    return __uint_as_float(bits);
}
__device__ __forceinline__ u64 double_bits(double x) {
    return (u64)__double_as_longlong(x);
}
__device__ __forceinline__ double bits_double(u64 bits) {
    return __longlong_as_double((i64)bits);
}

__device__ __forceinline__ float bf16_to_float(bf16 x) {
    return bits_float((u32)x.bits << 16);
}
// A NaN becomes 0x7fff, whatever its payload and sign.
__device__ __forceinline__ bf16 float_to_bf16(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
__device__ __forceinline__ u32 pack_bf16(float lo, float hi) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}
__device__ __forceinline__ float bf16_low(u32 pair) {
    return bits_float(pair << 16);
}
__device__ __forceinline__ float bf16_high(u32 pair) {
    return bits_float(pair & 0xffff0000u);
}

// The value itself, which the compiler keeps in a register and does not make again.
__device__ __forceinline__ u32 keep_register(u32 value) {
    asm volatile("" : "+r"(value));
    return value;
}

// Both products of two pairs, each rounded once; subnormals are kept, a NaN becomes 0x7fff.
__device__ __forceinline__ u32 multiply_bf16(u32 a, u32 b) {
    u32 product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}
// Byte i of the result is byte s of b:a, s being nibble i of `selector` (0 to 7).
__device__ __forceinline__ u32 permute_bytes(u32 a, u32 b, u32 selector) {
    return __byte_perm(a, b, selector);
}

__device__ __forceinline__ e4m3 float_to_e4m3(float x) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    e4m3 y;
    y.bits = (u8)(pair & 0xffu);
    return y;
}
__device__ __forceinline__ float e4m3_to_float(e4m3 x) {
    u32 halves;
    float y;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)x.bits));
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((u16)(halves & 0xffffu)));
    return y;
}

// By comparison, since the instruction exists only from sm_100a on. The code's even neighbour takes
// a tie: 0.25 0.75 1.25 1.75 2.5 3.5 5.
__device__ __forceinline__ u32 float_to_e2m1(float x) {
    const u32 bits = float_bits(x);
    const float a = bits_float(bits & 0x7fffffffu);
    if (a != a)
        return 7u;
    const u32 magnitude = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                          (a >= 3.5f) + (a > 5.0f);
    return magnitude | ((bits >> 28) & 8u);
}
// Codes 0 and 1 are the subnormals 0 and 0.5; the rest are fp32 with the exponent shifted.
__device__ __forceinline__ float e2m1_to_float(u32 code) {
    const u32 magnitude = code & 7u;
    const u32 normal = (magnitude << 22) + (126u << 23);
    const u32 subnormal = magnitude != 0 ? 0x3f000000u : 0u;
    return bits_float((magnitude > 1 ? normal : subnormal) | ((code & 8u) << 28));
}

#endif
