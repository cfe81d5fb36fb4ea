// SPDX-License-Identifier: Apache-2.0
// The main loop of the routed GEMMs whose weights lie as in the checkpoint. A block works on one
// tile of one expert, eight tokens at a time, and on slices of two sets of 16 weight rows; its
// warps split k and leave their sums in shared memory, where 16 threads a token add them. How
// operands lie is the kernel's: bf16_rows.cuh, nvfp4_rows.cuh.
#ifndef LATHE_MOE_ROUTED_CUH
#define LATHE_MOE_ROUTED_CUH

#include "prims.cuh"

constexpr int kRoutedTokens = 8; // columns of one tensor-core operation
constexpr int kRoutedPitch =
    20; // floats from token to token: 16 rows, and stores without bank conflicts
constexpr int kRoutedSums =
    kRoutedTokens * kRoutedPitch; // floats of one warp and one set of 16 rows

// What one lane holds of one row over kStep consecutive k, as bf16, two values a word. The sum over
// k runs in any order, so each lane of a quad takes values that are neighbours in memory.
template <int kStep>
struct RoutedPairs {
    u32 pairs[kStep / 8];
};

// Piece `quarter` (0..3) of a bf16 row that another launch wrote; `row` points at the row's step.
template <int kStep>
__device__ __forceinline__ void routed_load(RoutedPairs<kStep> &p, const bf16 *row, u32 quarter) {
    const bf16 *from = row + quarter * u32(kStep / 4);
    if constexpr (kStep == 16) {
        const u32x2 v = *reinterpret_cast<const u32x2 *>(from);
        p.pairs[0] = v.x;
        p.pairs[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < kStep / 32; ++i) {
            const u32x4 v = *reinterpret_cast<const u32x4 *>(from + i * 8);
            p.pairs[4 * i] = v.x;
            p.pairs[4 * i + 1] = v.y;
            p.pairs[4 * i + 2] = v.z;
            p.pairs[4 * i + 3] = v.w;
        }
    }
}

// sum += 16 rows of weights times 8 tokens over one step: `low` is row lane / 4, `high` eight rows
// further.
template <int kStep>
__device__ __forceinline__ void routed_multiply(float (&sum)[4], const RoutedPairs<kStep> &low,
                                                const RoutedPairs<kStep> &high,
                                                const RoutedPairs<kStep> &tokens) {
#pragma unroll
    for (int i = 0; i < kStep / 8; i += 2) {
        const u32 rows[4] = {low.pairs[i], high.pairs[i], low.pairs[i + 1], high.pairs[i + 1]};
        const u32 columns[2] = {tokens.pairs[i], tokens.pairs[i + 1]};
        mma_bf16(sum, rows, columns);
    }
}

// Stores a warp's sums of both sets of rows into its part of [kWarps][2][token][row].
__device__ __forceinline__ void routed_store(float *buffer, const float (&first)[4],
                                             const float (&second)[4]) {
    const u32 row = lane_id() / 4;
    const u32 token = lane_id() % 4 * 2;
    float *at = buffer + warp_id() * u32(2 * kRoutedSums) + token * u32(kRoutedPitch) + row;
    shared_store(at, first[0]);
    shared_store(at + kRoutedPitch, first[1]);
    shared_store(at + 8, first[2]);
    shared_store(at + kRoutedPitch + 8, first[3]);
    at += kRoutedSums;
    shared_store(at, second[0]);
    shared_store(at + kRoutedPitch, second[1]);
    shared_store(at + 8, second[2]);
    shared_store(at + kRoutedPitch + 8, second[3]);
}

// Sum over the warps, in order, of set `set` (0, 1) at one token and row.
template <int kWarps>
__device__ __forceinline__ float routed_sum(const float *buffer, u32 set, u32 token, u32 row) {
    const float *at = buffer + set * u32(kRoutedSums) + token * u32(kRoutedPitch) + row;
    float sum = 0;
#pragma unroll 4 // more would cost the main loop its registers
    for (int warp = 0; warp < kWarps; ++warp)
        sum += shared_load(at + warp * 2 * kRoutedSums);
    return sum;
}

// Rows `first` to `limit` - 1 of a slice of kSlice columns of `to`, two neighbours a thread:
// sums.value(buffer, token, column), rounded to bf16.
template <class C, u32 kWidth, u32 kSlice, class Sums>
__device__ __forceinline__ void routed_write(bf16 *to, const Sums &sums, const float *buffer,
                                             u32 first, u32 limit, u32 slice) {
    constexpr u32 kPairs = kSlice / 2;
    for (u32 i = thread_id(); i < kPairs * u32(kRoutedTokens); i += u32(C::kWarps * 32)) {
        const u32 column = i % kPairs * 2;
        const u32 token = i / kPairs;
        if (first + token >= limit)
            continue;
        bf16 *out = to + u64(first + token) * kWidth + slice * kSlice + column;
        *reinterpret_cast<u32 *>(out) =
            pack_bf16(sums.value(buffer, token, column), sums.value(buffer, token, column + 1));
    }
}

// The second GEMM's output: a sum times `product` times `scale`.
template <class C, u32 kWidth>
struct RoutedRows {
    float product, scale;
    bf16 *rows;

    __device__ __forceinline__ float value(const float *buffer, u32 token, u32 column) const {
        return routed_sum<C::kWarps>(buffer, column / 16, token, column % 16) * product * scale;
    }

    __device__ __forceinline__ void write(const float *buffer, u32 first, u32 limit,
                                          u32 slice) const {
        routed_write<C, kWidth, 32>(rows, *this, buffer, first, limit, slice);
    }
};

// The first GEMM's output: gate and up, each with its scale, through SwiGLU in fp32.
template <class C, u32 kWidth>
struct RoutedSwiglu {
    float product, gate_scale, up_scale;
    bf16 *act;

    __device__ __forceinline__ float value(const float *buffer, u32 token, u32 column) const {
        const float gate = routed_sum<C::kWarps>(buffer, 0, token, column) * product * gate_scale;
        const float up = routed_sum<C::kWarps>(buffer, 1, token, column) * product * up_scale;
        return gate * sigmoid_f32(gate) * up;
    }

    __device__ __forceinline__ void write(const float *buffer, u32 first, u32 limit,
                                          u32 slice) const {
        routed_write<C, kWidth, 16>(act, *this, buffer, first, limit, slice);
    }
};

// Activations: rows of kWidth bf16 values.
template <int kStep, u32 kWidth>
struct RoutedTokens {
    const bf16 *rows;

    __device__ __forceinline__ void load(RoutedPairs<kStep> &x, u64 row, u32 step) const {
        routed_load(x, rows + row * kWidth + step * u32(kStep), lane_id() % 4);
    }
};

// A block's share: rows of its tile with a route, and the expert whose weights they meet.
struct RoutedTile {
    u32 first, limit; // rows
    u32 expert;
};

template <class C>
__device__ __forceinline__ RoutedTile routed_tile(const int *cta_expert, const int *cta_limit) {
    const u32 first = block_id() * u32(C::kTile);
    const u32 limit = u32(cta_limit[block_id()]);
    return {first, limit < first + C::kTile ? limit : first + C::kTile,
            u32(cta_expert[block_id()])};
}

// Where the warp's step `held` of pass `pass` lies: warps own runs of kHeld steps.
template <class C>
__device__ __forceinline__ u32 routed_step(u32 pass, int held) {
    return (pass * u32(C::kWarps) + warp_id()) * u32(C::kHeld) + u32(held);
}

// Multiplies the tile's tokens by slices block_id_y() * kSlices and on, of `kAll`, over `kSteps`
// steps of k.
//   Weights::Piece, weights.load(piece[4], slice, step): rows g and g + 8 of the slice's first set,
//     then of its second, with g = lane / 4; Weights::pairs(piece) are their values.
//   tokens.load(pairs, row, step): the same of a row of activations: row `token_of[i]` for row i of
//     the permuted space, or row i itself where token_of is null.
//   out.write(buffer, first, limit, slice): rows `first` to `limit` - 1, from the warps' sums.
template <class C, u32 kSteps, u32 kAll, class Weights, class Tokens, class Out>
__device__ __forceinline__ void routed_gemm(const RoutedTile &tile, const Weights &weights,
                                            const Tokens &tokens, const int *token_of,
                                            const Out &out) {
    static_assert(C::kTile % kRoutedTokens == 0, "a tile is whole groups of eight tokens");
    constexpr u32 kPasses = (kSteps + C::kHeld * C::kWarps - 1) / (C::kHeld * C::kWarps);
    const u32 begin = block_id_y() * u32(C::kSlices);
    const u32 end = begin + C::kSlices < kAll ? begin + C::kSlices : kAll;
    const u32 units = (end - begin) * kPasses; // a unit is one pass over k of one slice
    float *shared = reinterpret_cast<float *>(dynamic_shared()); // two buffers, used in turn
    u32 turn = 0;

    for (u32 first = tile.first; first < tile.limit; first += kRoutedTokens) {
        typename Weights::Piece w[C::kHeld][4];
        RoutedPairs<C::kStep> x[C::kHeld];
#pragma unroll
        for (int held = 0; held < C::kHeld; ++held)
            if (routed_step<C>(0, held) < kSteps)
                weights.load(w[held], begin, routed_step<C>(0, held));
        const bool live = first + lane_id() / 4 < tile.limit; // this lane's column has a token
        u64 row = first + lane_id() / 4;
        if (token_of != nullptr && live)
            row = u64(token_of[row]);
        float low[4];
        float high[4];
        for (u32 unit = 0; unit < units; ++unit) {
            const u32 pass = unit % kPasses;
            const u32 next_pass = (unit + 1) % kPasses;
            const u32 next_slice = begin + (unit + 1) / kPasses;
            if (kPasses > 1 || unit == 0) {
#pragma unroll
                for (int held = 0; held < C::kHeld; ++held) {
                    x[held] = {};
                    if (live && routed_step<C>(pass, held) < kSteps)
                        tokens.load(x[held], row, routed_step<C>(pass, held));
                }
            }
            if (pass == 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    low[i] = high[i] = 0;
            }
#pragma unroll
            for (int held = 0; held < C::kHeld; ++held) {
                if (routed_step<C>(pass, held) < kSteps) {
                    routed_multiply(low, Weights::pairs(w[held][0]), Weights::pairs(w[held][1]),
                                    x[held]);
                    routed_multiply(high, Weights::pairs(w[held][2]), Weights::pairs(w[held][3]),
                                    x[held]);
                }
                // The registers are free: the next unit's weights travel while this one is
                // finished.
                if (unit + 1 < units && routed_step<C>(next_pass, held) < kSteps)
                    weights.load(w[held], next_slice, routed_step<C>(next_pass, held));
            }
            if (next_pass == 0) {
                float *buffer = shared + (turn++ & 1) * u32(C::kWarps * 2 * kRoutedSums);
                routed_store(buffer, low, high);
                block_sync();
                out.write(buffer, first, tile.limit, begin + unit / kPasses);
            }
        }
    }
}

#endif
