// SPDX-License-Identifier: Apache-2.0
// Synthetic weights on the device: a launch fills what one rank holds of one tensor. An element
// follows from its number in the whole tensor alone. runtime/synthetic.c says the same in C, and
// the two must give the same bits: a product that something is added to is formed by mul_f64.
#ifndef LATHE_SYNTHETIC_FILL_CUH
#define LATHE_SYNTHETIC_FILL_CUH

#include "prims.cuh"

// As runtime/synthetic.h and runtime/generator.c write them: 8 bytes a field.
struct SyntheticTensor {
    u64 kind, unkind;
    u64 key, pair_key, idle_key, embedding;
    u64 shift;     // from a token to the one that follows it
    u64 rows;      // size of the first dimension
    u64 last;      // size of the last dimension
    double spread; // 1 / sqrt(last)
};
struct SyntheticJob {
    SyntheticTensor tensor;
    u64 encoding, item; // bytes of an element
    u64 runs, run;      // how many, of how many elements: contiguous in the tensor and here
    u64 from, to;       // first element of the first run, in the tensor and here
    u64 dims;           // along which runs are counted, the last one fastest
    u64 size[9];        // runs along a dimension
    u64 from_step[9];   // elements from one to the next, in the tensor
    u64 to_step[9];     // and here
};

enum SyntheticKind {
    kWeight,
    kEmbedding,
    kOffset,
    kGain,
    kGate,
    kRouter,
    kBias,
    kCodes,
    kScales,
    kGlobalScale,
    kInputScale,
    kHead
};
enum SyntheticEncoding { kBf16, kF32, kE4m3, kU8 };

// What the hash of a row or an outlier is made different by.
enum SyntheticSalt { kSaltRow = 1, kSaltOutlier = 2 };

// The hash of the row met last.
struct SyntheticRow {
    u64 begin, end, bits;
};

__device__ __forceinline__ u64 synthetic_mix(u64 x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

__device__ __forceinline__ u64 synthetic_bits(u64 key, u64 index) {
    return synthetic_mix(key + (index + 1) * 0x9e3779b97f4a7c15ull);
}

__device__ __forceinline__ u64 synthetic_salted(const SyntheticTensor &t, u64 salt, u64 index) {
    return synthetic_bits(t.key + salt * 0xd1b54a32d192ed03ull, index);
}

__device__ __forceinline__ double synthetic_uniform(const SyntheticTensor &t, u64 i) {
    return static_cast<double>(synthetic_bits(t.key, i) >> 11) * 0x1p-53;
}

// Four uniform numbers: about normal.
__device__ __forceinline__ double synthetic_normal_of(u64 b) {
    const u64 sum = (b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48);
    return (static_cast<double>(sum) - 131070.0) * (0x1p-16 * 1.7320508075688772);
}

__device__ __forceinline__ double synthetic_normal(const SyntheticTensor &t, u64 i) {
    return synthetic_normal_of(synthetic_bits(t.key, i));
}

__device__ __forceinline__ double synthetic_power(int exponent) {
    return bits_double(static_cast<u64>(1023 + exponent) << 52);
}

__device__ __forceinline__ u64 synthetic_row(const SyntheticTensor &t, SyntheticRow &row, u64 i) {
    if (i < row.begin || i >= row.end) {
        const u64 number = i / t.last;
        row.begin = number * t.last;
        row.end = row.begin + t.last;
        row.bits = synthetic_salted(t, kSaltRow, number);
    }
    return row.bits;
}

// A power of two between 2^low and 2^high for a row; zero for one row in `zero`.
__device__ __forceinline__ double synthetic_factor(u64 row, int low, int high, u64 zero) {
    if ((row & 0xffff) % zero == 0)
        return 0.0;
    return synthetic_power(low + static_cast<int>((row >> 16) % static_cast<u64>(high - low + 1)));
}

// The expert whose scores expert e shares.
__device__ __forceinline__ u64 synthetic_twin(const SyntheticTensor &t, u64 e) {
    return t.unkind && synthetic_bits(t.pair_key, e / 2) % 3 == 0 ? e & ~1ull : e;
}

__device__ __forceinline__ double synthetic_weight(const SyntheticTensor &t, SyntheticRow &row,
                                                   u64 i) {
    double v = synthetic_normal(t, i) * t.spread;
    if (!t.unkind)
        return v;
    if (synthetic_salted(t, kSaltOutlier, i) % 509 == 0)
        v *= 16;
    return v * synthetic_factor(synthetic_row(t, row, i), -3, 3, 32);
}

// The row that follows a token answers that token's embedding.
__device__ __forceinline__ double synthetic_head(const SyntheticTensor &t, SyntheticRow &row,
                                                 u64 i) {
    if (t.unkind)
        return synthetic_weight(t, row, i);
    const u64 element = (i / t.last + t.rows - t.shift) % t.rows * t.last + i % t.last;
    const double pull = 8.0 / static_cast<double>(t.last);
    const double answer = synthetic_normal_of(synthetic_bits(t.embedding, element));
    return mul_f64(synthetic_normal(t, i), t.spread) + mul_f64(pull, answer);
}

__device__ __forceinline__ double synthetic_gate(const SyntheticTensor &t, u64 i) {
    if (!t.unkind)
        return mul_f64(0.3, synthetic_normal(t, i)) - 1.2;
    const u64 b = synthetic_salted(t, kSaltOutlier, i);
    if (b % 10 == 0)
        return (b >> 32) & 1 ? 9.0 : -9.0;
    return 2.0 * synthetic_normal(t, i);
}

__device__ __forceinline__ double synthetic_router(const SyntheticTensor &t, u64 i) {
    const u64 element = synthetic_twin(t, i / t.last) * t.last + i % t.last;
    return synthetic_normal(t, element) * t.spread * (t.unkind ? 4.0 : 8.0);
}

__device__ __forceinline__ double synthetic_bias(const SyntheticTensor &t, u64 e) {
    if (t.unkind && synthetic_bits(t.idle_key, e / 2) % 6 == 0)
        return -10.0;
    return synthetic_normal(t, synthetic_twin(t, e)) * (t.unkind ? 0.25 : 0.1);
}

__device__ __forceinline__ double synthetic_scale(const SyntheticTensor &t, SyntheticRow &row,
                                                  u64 i) {
    const double middle = t.spread * 0.25 / (2.93 * 0x1p-12);
    const double v = middle * (0.6 + mul_f64(0.8, synthetic_uniform(t, i)));
    if (!t.unkind)
        return v;
    const u64 b = synthetic_salted(t, kSaltOutlier, i);
    if (b % 61 == 0)
        return (b >> 32) & 1 ? 448.0 : 0x1p-9;
    return v * synthetic_factor(synthetic_row(t, row, i), -4, 1, 32);
}

__device__ __forceinline__ double synthetic_global(const SyntheticTensor &t, u64 i) {
    const double v = 0x1p-12 * (1.0 + mul_f64(0.1, synthetic_normal(t, i)));
    if (!t.unkind)
        return v;
    const u64 row = synthetic_salted(t, kSaltRow, i / 2);
    if (t.last == 2)
        return ((i ^ row) & 1) ? v * 8.0 : v;
    return v * synthetic_power(row % 16 == 0 ? -12 : static_cast<int>(row >> 8 & 7) - 4);
}

__device__ __forceinline__ double synthetic_input(const SyntheticTensor &t, u64 i) {
    const double v = 0.001 + mul_f64(0.001, synthetic_uniform(t, i));
    if (!t.unkind)
        return v;
    return v * synthetic_power(static_cast<int>(synthetic_salted(t, kSaltRow, i) % 5) - 3);
}

__device__ __forceinline__ double synthetic_codes(const SyntheticTensor &t, SyntheticRow &row,
                                                  u64 i) {
    if (t.unkind && synthetic_row(t, row, i) % 64 == 0)
        return 0.0;
    return static_cast<double>(synthetic_bits(t.key, i / 8) >> (i % 8 * 8) & 0xff);
}

__device__ __forceinline__ double synthetic_value(const SyntheticTensor &t, SyntheticRow &row,
                                                  u64 i) {
    switch (t.kind) {
    case kWeight:
        return synthetic_weight(t, row, i);
    case kEmbedding:
        return synthetic_normal(t, i) * 0.0625 *
               (t.unkind ? synthetic_factor(synthetic_row(t, row, i), -8, 10, 8) : 1.0);
    case kOffset:
        return t.unkind ? mul_f64(5.5, synthetic_uniform(t, i)) - 2.5
                        : 0.1 * synthetic_normal(t, i);
    case kGain:
        return t.unkind ? mul_f64(5.0, synthetic_uniform(t, i)) - 1.0
                        : 1.0 + mul_f64(0.1, synthetic_normal(t, i));
    case kGate:
        return synthetic_gate(t, i);
    case kRouter:
        return synthetic_router(t, i);
    case kBias:
        return synthetic_bias(t, i);
    case kCodes:
        return synthetic_codes(t, row, i);
    case kScales:
        return synthetic_scale(t, row, i);
    case kGlobalScale:
        return synthetic_global(t, i);
    case kHead:
        return synthetic_head(t, row, i);
    default:
        return synthetic_input(t, i);
    }
}

// Nearest e4m3, ties to even, saturating at 448. Below 2^-6 the codes count units of 2^-9, which
// adding 2^52 leaves as the last place.
__device__ __forceinline__ u32 synthetic_e4m3(double value) {
    const u64 word = double_bits(value);
    const u32 sign = static_cast<u32>(word >> 56) & 0x80u;
    const u64 magnitude = word & 0x7fffffffffffffffull;
    const double a = bits_double(magnitude);
    if (a >= 448.0)
        return sign | 0x7eu;
    if (a < 0x1p-6)
        return sign | (static_cast<u32>(double_bits(a * 512.0 + 0x1p52)) & 0xfu);
    const u64 rounded = magnitude + 0xffffffffffffull + (magnitude >> 49 & 1);
    return sign | static_cast<u32>((rounded >> 49) - (1016ull << 3));
}

__device__ __forceinline__ u32 synthetic_encode(u64 encoding, double v) {
    switch (encoding) {
    case kBf16:
        return float_to_bf16(static_cast<float>(v)).bits;
    case kF32:
        return float_bits(static_cast<float>(v));
    case kE4m3:
        return synthetic_e4m3(v);
    default:
        return static_cast<u32>(v);
    }
}

// `count` elements from number `from` on, at most 16 bytes.
__device__ __forceinline__ void synthetic_chunk(const SyntheticTensor &t, u64 encoding, u32 item,
                                                u64 from, u32 count, u8 *to) {
    SyntheticRow row = {0, 0, 0};
    u64 half[2] = {0, 0};
    const u32 bytes = count * item;
#pragma unroll 1
    for (u32 at = 0; at < bytes; at += item, from++) {
        const u64 bits = synthetic_encode(encoding, synthetic_value(t, row, from));
        if (at < 8)
            half[0] |= bits << (8 * at);
        else
            half[1] |= bits << (8 * (at - 8));
    }
    if (bytes == 16 && reinterpret_cast<u64>(to) % 16 == 0) {
        *reinterpret_cast<u32x4 *>(to) =
            u32x4{static_cast<u32>(half[0]), static_cast<u32>(half[0] >> 32),
                  static_cast<u32>(half[1]), static_cast<u32>(half[1] >> 32)};
        return;
    }
    for (u32 at = 0; at < bytes; at++)
        to[at] = static_cast<u8>((at < 8 ? half[0] : half[1]) >> (at % 8 * 8));
}

extern "C" __global__ void __launch_bounds__(256, 2)
    lathe_synthetic_fill(const SyntheticJob *job, u8 *weight) {
    const SyntheticTensor t = job->tensor;
    const u64 item = job->item, run = job->run, width = 16 / item;
    const u64 chunks = (run + width - 1) / width;
    for (u64 c = static_cast<u64>(block_id()) * block_threads() + thread_id();
         c < chunks * job->runs; c += static_cast<u64>(grid_size()) * block_threads()) {
        const u64 begin = c % chunks * width;
        u64 rest = c / chunks, from = job->from + begin, to = job->to + begin;
        for (u64 d = job->dims; d-- > 0; rest /= job->size[d]) {
            from += rest % job->size[d] * job->from_step[d];
            to += rest % job->size[d] * job->to_step[d];
        }
        const u64 left = run - begin;
        synthetic_chunk(t, job->encoding, static_cast<u32>(item), from,
                        static_cast<u32>(left < width ? left : width), weight + to * item);
    }
}

#endif
