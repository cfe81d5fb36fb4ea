// SPDX-License-Identifier: Apache-2.0
// Functions within 2 ulp, division and square root correctly rounded. Those of fp32 are computed in
// double and rounded once.
#ifndef LATHE_PRIMS_MATHS_CUH
#define LATHE_PRIMS_MATHS_CUH

#include "types.cuh"

static inline float divide_f32(float a, float b) {
    return a / b;
}
static inline float sqrt_f32(float x) {
    return __builtin_sqrtf(x);
}
static inline float rsqrt_f32(float x) {
    return (float)(1.0 / __builtin_sqrt((double)x));
}
static inline float fma_f32(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
static inline float exp_f32(float x) {
    return (float)__builtin_exp((double)x);
}
static inline float exp2_f32(float x) {
    return (float)__builtin_exp2((double)x);
}
// As exp2_f32, but zero below 2^-126.
static inline float exp2_flush_f32(float x) {
    return x < -126.0f ? 0.0f : exp2_f32(x);
}
static inline float log2_f32(float x) {
    return (float)__builtin_log2((double)x);
}
static inline float tanh_f32(float x) {
    return (float)__builtin_tanh((double)x);
}
static inline float sigmoid_f32(float x) {
    return (float)(1.0 / (1.0 + __builtin_exp(-(double)x)));
}
// As IEEE maxNum and minNum: a NaN gives way to a number.
static inline float max_f32(float a, float b) {
    return __builtin_fmaxf(a, b);
}
static inline float min_f32(float a, float b) {
    return __builtin_fminf(a, b);
}
static inline float abs_f32(float x) {
    return __builtin_fabsf(x);
}

static inline double sin_f64(double x) {
    return __builtin_sin(x);
}
static inline double cos_f64(double x) {
    return __builtin_cos(x);
}
static inline double exp2_f64(double x) {
    return __builtin_exp2(x);
}
static inline double log2_f64(double x) {
    return __builtin_log2(x);
}
static inline double pow_f64(double x, double y) {
    return __builtin_pow(x, y);
}
static inline double fabs_f64(double x) {
    return __builtin_fabs(x);
}
// Rounded by itself, whatever is added to it: kernels are compiled with -ffp-contract=off.
static inline double mul_f64(double a, double b) {
    return a * b;
}

#endif
