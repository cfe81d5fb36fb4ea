// SPDX-License-Identifier: Apache-2.0
// Functions within 2 ulp, division and square root correctly rounded. Must be compiled without fast
// maths: that would change exp, log and the treatment of subnormals.
#ifndef LATHE_PRIMS_MATHS_CUH
#define LATHE_PRIMS_MATHS_CUH

#include "types.cuh"

__device__ __forceinline__ float divide_f32(float a, float b) {
    return __fdiv_rn(a, b);
}
__device__ __forceinline__ float sqrt_f32(float x) {
    return __fsqrt_rn(x);
}
__device__ __forceinline__ float rsqrt_f32(float x) {
    return rsqrtf(x);
}
__device__ __forceinline__ float fma_f32(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
}
__device__ __forceinline__ float exp_f32(float x) {
    return expf(x);
}
__device__ __forceinline__ float exp2_f32(float x) {
    return exp2f(x);
}
// As exp2_f32, but zero below 2^-126.
__device__ __forceinline__ float exp2_flush_f32(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float log2_f32(float x) {
    return log2f(x);
}
__device__ __forceinline__ float tanh_f32(float x) {
    return tanhf(x);
}
// The exponential never exceeds one, so neither its error nor its overflow reaches the result.
__device__ __forceinline__ float sigmoid_f32(float x) {
    const float e = expf(-fabsf(x));
    return __fdiv_rn(x < 0.0f ? e : 1.0f, 1.0f + e);
}
// As IEEE maxNum and minNum: a NaN gives way to a number.
__device__ __forceinline__ float max_f32(float a, float b) {
    return fmaxf(a, b);
}
__device__ __forceinline__ float min_f32(float a, float b) {
    return fminf(a, b);
}
__device__ __forceinline__ float abs_f32(float x) {
    return fabsf(x);
}

__device__ __forceinline__ double sin_f64(double x) {
    return sin(x);
}
__device__ __forceinline__ double cos_f64(double x) {
    return cos(x);
}
__device__ __forceinline__ double exp2_f64(double x) {
    return exp2(x);
}
__device__ __forceinline__ double log2_f64(double x) {
    return log2(x);
}
__device__ __forceinline__ double pow_f64(double x, double y) {
    return pow(x, y);
}
__device__ __forceinline__ double fabs_f64(double x) {
    return fabs(x);
}
// Rounded by itself, whatever is added to it: never part of an fma.
__device__ __forceinline__ double mul_f64(double a, double b) {
    return __dmul_rn(a, b);
}

#endif
