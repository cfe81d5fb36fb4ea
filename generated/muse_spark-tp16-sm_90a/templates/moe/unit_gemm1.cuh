// SPDX-License-Identifier: Apache-2.0
// First routed GEMM, W4A4, on packed units: gate and up rows of 16 intermediate columns together,
// SwiGLU, and NVFP4 again from fp32. A task is one such pair of row sets for one tile. Teams of
// warps take tasks in strides over the whole grid, so that a tile's work spreads; a team's warps
// split k and fetch through rings of their own, and its finishing warp adds what they leave, so
// that they never wait for each other.
#ifndef LATHE_MOE_UNIT_GEMM1_CUH
#define LATHE_MOE_UNIT_GEMM1_CUH

#include "moe/requantise.cuh"
#include "moe/unit.cuh"
#include "moe/unit_ring.cuh"
#include "prims.cuh"

// Shared memory: the rings, the tokens, the sums, the tiles, zeros, barriers.
template <class C>
constexpr u32 kUnit1Warps = u32(C::kTeams) * u32(C::kSplit);
template <class C>
constexpr u32 kUnit1Tokens = kUnit1Warps<C> *u32(C::kStages) * u32(C::kUnitBytes);
template <class C>
constexpr u32 kUnit1Sums = kUnit1Tokens<C> + u32(C::kRows) * u32(C::kPitch);
template <class C> // two buffers of gate and up sums of two tokens, 16 columns each
constexpr u32 kUnit1Tiles = kUnit1Sums<C> + kUnit1Warps<C> * 2 * 256;
template <class C>
constexpr u32 kUnit1Zeros = kUnit1Tiles<C> + (u32(C::kMaxCtas) * 4 + 15) / 16 * 16;
template <class C>
constexpr u32 kUnit1Barriers = kUnit1Zeros<C> + 32;

constexpr u32 kUnit1Threads = 1; // named barrier of the warps that multiply

// Tasks of a team: the first one, and what lies between them.
template <class C>
__device__ __forceinline__ u32 unit1_first(u32 team) {
    return block_id() * u32(C::kTeams) + team;
}
template <class C>
__device__ __forceinline__ u32 unit1_stride() {
    return grid_size() * u32(C::kTeams);
}

// A live tile in one word: its expert, above the number of its tokens.
template <class C>
__device__ __forceinline__ u32 unit1_tile(u32 task) {
    const u32 *tiles = reinterpret_cast<const u32 *>(dynamic_shared() + kUnit1Tiles<C>);
    return shared_load(tiles + task / u32(C::kOutBlocks));
}

template <class C>
__device__ __forceinline__ void unit1_read_tiles(const int *cta_expert, const int *cta_limit,
                                                 u32 live) {
    u32 *tiles = reinterpret_cast<u32 *>(dynamic_shared() + kUnit1Tiles<C>);
    for (u32 tile = thread_id(); tile < live; tile += block_threads())
        shared_store(tiles + tile,
                     u32(cta_expert[tile]) << 8 | (u32(cta_limit[tile]) - tile * u32(C::kTile)));
    if (thread_id() < 8)
        shared_store(reinterpret_cast<u32 *>(dynamic_shared() + kUnit1Zeros<C>) + thread_id(), 0u);
}

// All tokens of the step, by the warps that multiply.
template <class C>
__device__ __forceinline__ void unit1_stage(const u8 *codes, const e4m3 *scales) {
    constexpr u32 kPieces = u32(C::kCodeBytes) / 16;
    for (u32 i = thread_id(); i < u32(C::kRows) * kPieces; i += kUnit1Warps<C> * 32) {
        const u32 row = i / kPieces;
        const u32 piece = i % kPieces;
        u8 *to = dynamic_shared() + kUnit1Tokens<C> + row * u32(C::kPitch);
        unit_stage<C::kExpanded>(
            to, u32(C::kCodeBytes), piece, reinterpret_cast<const u32x4 *>(codes)[i],
            *reinterpret_cast<const u16 *>(scales + row * u32(C::kBlocks) + piece * 2));
    }
}

// Points the ring at the warp's units of `task`: runs of kSteps / kSplit steps, gate before up.
template <class C>
__device__ __forceinline__ void unit1_aim(UnitRing &ring, const u8 *units, u32 task, u32 tasks) {
    constexpr u32 kRun = u32(2 * C::kSteps / C::kSplit);
    ring.next = nullptr;
    ring.left = kRun;
    if (task >= tasks)
        return;
    const u64 expert = unit1_tile<C>(task) >> 8;
    const u32 pair = task % u32(C::kOutBlocks);
    const u32 unit = pair * u32(2 * C::kSteps) + warp_id() % u32(C::kSplit) * kRun;
    ring.next = units + (expert * u32(C::kUnits) + unit) * u32(C::kUnitBytes);
}

// Fetches into `slot` and moves on; `ahead` is the task being fetched.
template <class C>
__device__ __forceinline__ void unit1_fetch(UnitRing &ring, u32 slot, const u8 *units, u32 &ahead,
                                            u32 tasks) {
    unit_ring_fetch<C::kUnitBytes>(ring, slot);
    if (ring.next != nullptr)
        ring.next += C::kUnitBytes;
    if (--ring.left == 0) {
        ahead += unit1_stride<C>();
        unit1_aim<C>(ring, units, ahead, tasks);
    }
}

// The next unit in registers; its stage is free again and refilled.
template <class C>
__device__ __forceinline__ void unit1_take(UnitPiece<C::kChunks> &piece, UnitRing &ring,
                                           const u8 *units, u32 &ahead, u32 tasks) {
    unit_read<C::kChunks>(piece, unit_ring_wait<C::kUnitBytes>(ring));
    warp_sync();
    unit1_fetch<C>(ring, ring.slot, units, ahead, tasks);
    unit_ring_turn(ring, u32(C::kStages));
}

// Where the sums of a chunk of two tokens go: [buffer][warp][gate, up][token][column].
template <class C>
__device__ __forceinline__ float *unit1_sums(u32 team, u32 buffer) {
    return reinterpret_cast<float *>(dynamic_shared() + kUnit1Sums<C>) +
           (team * 2 + buffer) * u32(C::kSplit) * 64;
}
template <class C>
__device__ __forceinline__ u64 *unit1_barrier(u32 team, u32 which) {
    u64 *barriers = reinterpret_cast<u64 *>(dynamic_shared() + kUnit1Barriers<C>);
    return barriers + kUnit1Warps<C> * u32(C::kStages) + team * 4 + which; // 2 full, 2 empty
}

// Before and after a warp leaves sums in a buffer; `turn` counts chunks.
template <class C>
__device__ __forceinline__ void unit1_open(u32 team, u32 turn) {
    if (turn >= 2)
        mbar_wait(unit1_barrier<C>(team, 2 + turn % 2), (turn / 2 - 1) & 1);
}
template <class C>
__device__ __forceinline__ void unit1_close(u32 team, u32 turn) {
    warp_sync();
    if (lane_id() == 0)
        mbar_arrive(unit1_barrier<C>(team, turn % 2));
}

// A tile of one token.
template <class C>
__device__ __forceinline__ void unit1_narrow(UnitRing &ring, const u8 *units, u32 &ahead, u32 tasks,
                                             u32 row, u32 team, u32 &turn) {
    const u32 g = lane_id() / 4;
    const u32 t = lane_id() % 4;
    const u32 rank = warp_id() % u32(C::kSplit);
    float sum[2] = {0, 0}; // of the set whose turn it is
    float other[2] = {0, 0};
#pragma unroll 1
    for (u32 i = 0; i < u32(2 * C::kSteps / C::kSplit); ++i) {
        const u32 first = (rank * u32(C::kSteps / C::kSplit) + i / 2) * u32(C::kChunks);
        UnitPiece<C::kChunks> piece;
        unit1_take<C>(piece, ring, units, ahead, tasks);
        unit_narrow<C::kChunks, C::kExpanded>(
            sum, piece,
            unit_view<C::kExpanded>(g == 2 * t, row, kUnit1Zeros<C>, u32(C::kCodeBytes), first),
            unit_view<C::kExpanded>(g == 2 * t + 1, row, kUnit1Zeros<C>, u32(C::kCodeBytes),
                                    first));
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const float done = sum[j];
            sum[j] = other[j];
            other[j] = done;
        }
    }
    const float gate_low = unit_quad(sum[0]) * kUnitNarrow;
    const float gate_high = unit_quad(sum[1]) * kUnitNarrow;
    const float up_low = unit_quad(other[0]) * kUnitNarrow;
    const float up_high = unit_quad(other[1]) * kUnitNarrow;
    unit1_open<C>(team, turn);
    float *at = unit1_sums<C>(team, turn % 2) + rank * 64 + t / 2 * 32 + t % 2 * 8 + g;
    shared_store(at, t == 0 ? gate_low : t == 1 ? gate_high : t == 2 ? up_low : up_high);
    unit1_close<C>(team, turn++);
}

// A tile of `count` tokens; `row`: the lane's token, one a column.
template <class C>
__device__ __forceinline__ void unit1_wide(UnitRing &ring, const u8 *units, u32 &ahead, u32 tasks,
                                           u32 count, u32 row, u32 team, u32 &turn) {
    const u32 g = lane_id() / 4;
    const u32 t = lane_id() % 4;
    const u32 rank = warp_id() % u32(C::kSplit);
    float sum[4] = {0, 0, 0, 0}; // of the set whose turn it is
    float other[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (u32 i = 0; i < u32(2 * C::kSteps / C::kSplit); ++i) {
        const u32 first = (rank * u32(C::kSteps / C::kSplit) + i / 2) * u32(C::kChunks);
        UnitPiece<C::kChunks> piece;
        unit1_take<C>(piece, ring, units, ahead, tasks);
        unit_wide<C::kChunks, C::kExpanded>(
            sum, piece,
            unit_view<C::kExpanded>(g < count, row, kUnit1Zeros<C>, u32(C::kCodeBytes), first));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float done = sum[j];
            sum[j] = other[j];
            other[j] = done;
        }
    }
    for (u32 chunk = 0; 2 * chunk < count; ++chunk) {
        unit1_open<C>(team, turn);
        if (t == chunk) {
            float *at = unit1_sums<C>(team, turn % 2) + rank * 64 + g;
#pragma unroll
            for (u32 j = 0; j < 4; ++j) { // row g or g + 8 of the first or second token
                shared_store(at + j % 2 * 16 + j / 2 * 8, sum[j] * kUnitWide<C::kExpanded>);
                shared_store(at + 32 + j % 2 * 16 + j / 2 * 8, other[j] * kUnitWide<C::kExpanded>);
            }
        }
        unit1_close<C>(team, turn++);
    }
}

template <class C>
__device__ __forceinline__ void unit1_multiply(UnitRing &ring, const u8 *units,
                                               const int *permuted_to_token, u32 team, u32 tasks,
                                               u32 ahead) {
    u32 turn = 0;
    for (u32 task = unit1_first<C>(team); task < tasks; task += unit1_stride<C>()) {
        const u32 count = unit1_tile<C>(task) & 255u;
        const u32 column = lane_id() / 4 < count ? lane_id() / 4 : 0;
        const int *tokens = permuted_to_token + task / u32(C::kOutBlocks) * u32(C::kTile);
        const u32 row = kUnit1Tokens<C> + u32(tokens[column]) * u32(C::kPitch);
        if (count == 1)
            unit1_narrow<C>(ring, units, ahead, tasks, row, team, turn);
        else
            unit1_wide<C>(ring, units, ahead, tasks, count, row, team, turn);
    }
}

// Two tokens at a time: lanes 0 to 15 the columns of the first, the others those of the second.
template <class C>
__device__ __forceinline__ void unit1_finish(const float *gate_alpha, const float *up_alpha,
                                             u32 team, u32 tasks, u8 *codes2, e4m3 *scales2) {
    u32 turn = 0;
    for (u32 task = unit1_first<C>(team); task < tasks; task += unit1_stride<C>()) {
        const u32 tile = unit1_tile<C>(task);
        const u32 count = tile & 255u;
        const float gate_scalar = bits_float(load_weight4(gate_alpha + (tile >> 8)));
        const float up_scalar = bits_float(load_weight4(up_alpha + (tile >> 8)));
        const u64 first = task / u32(C::kOutBlocks) * u32(C::kTile) + lane_id() / 16;
        for (u32 token = 0; token < count; token += 2, ++turn) {
            mbar_wait(unit1_barrier<C>(team, turn % 2), turn / 2 & 1);
            const float *at = unit1_sums<C>(team, turn % 2) + lane_id();
            float raw_gate = 0;
            float raw_up = 0;
#pragma unroll
            for (int warp = 0; warp < C::kSplit; ++warp) {
                raw_gate += shared_load(at + warp * 64);
                raw_up += shared_load(at + warp * 64 + 32);
            }
            warp_sync();
            if (lane_id() == 0)
                mbar_arrive(unit1_barrier<C>(team, 2 + turn % 2));
            const float gate = raw_gate * gate_scalar;
            const float v = gate * sigmoid_f32(gate) * raw_up * up_scalar;
            requantise_block<C>(v, lane_id() % 16, first + token, task % u32(C::kOutBlocks),
                                token + lane_id() / 16 < count, codes2, scales2);
        }
    }
}

template <class C>
__device__ void unit_gemm1(const u8 *codes, const e4m3 *scales, const u8 *units,
                           const int *permuted_to_token, const int *cta_expert,
                           const int *cta_limit, const int *ctas, const float *gate_alpha,
                           const float *up_alpha, u8 *codes2, e4m3 *scales2) {
    static_assert(C::kExperts > 0 && C::kExperts < 1 << 24, "an expert is 24 bits of a word");
    static_assert(C::kPermuted > C::kMaxCtas * C::kTile, "tokens of all tiles");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    static_assert(C::kOutBytes == C::kOutBlocks * 8, "codes and scales of one width");
    static_assert(C::kTile == 8, "a tile is the columns of one tensor-core operation");
    static_assert(C::kSteps % C::kSplit == 0, "warps have equal shares of k");
    const u32 warp = warp_id();
    const bool finishes = warp >= kUnit1Warps<C>;
    const u32 team = finishes ? warp - kUnit1Warps<C> : warp / u32(C::kSplit);
    u8 *shared = dynamic_shared();
    UnitRing ring = unit_ring<C::kStages, C::kUnitBytes>(
        shared, reinterpret_cast<u64 *>(shared + kUnit1Barriers<C>), warp);
    if (lane_id() == 0) {
        if (finishes)
            for (u32 i = 0; i < 4; ++i)
                mbar_init(unit1_barrier<C>(team, i), i < 2 ? u32(C::kSplit) : 1);
        else
            unit_ring_init(ring, u32(C::kStages));
        mbar_init_fence();
    }
    const u32 live =
        u32(ctas[0]); // the tiles are settled: weights set out before the tokens are there
    const u32 tasks = live * u32(C::kOutBlocks);
    unit1_read_tiles<C>(cta_expert, cta_limit, live);
    block_sync();
    u32 ahead = unit1_first<C>(team);
    if (!finishes) {
        unit1_aim<C>(ring, units, ahead, tasks);
        for (u32 slot = 0; slot < u32(C::kStages); ++slot)
            unit1_fetch<C>(ring, slot, units, ahead, tasks);
    }
    grid_trigger();
    grid_wait();
    if (finishes) {
        unit1_finish<C>(gate_alpha, up_alpha, team, tasks, codes2, scales2);
        return;
    }
    unit1_stage<C>(codes, scales);
    block_sync_named(kUnit1Threads, kUnit1Warps<C> * 32);
    unit1_multiply<C>(ring, units, permuted_to_token, team, tasks, ahead);
}

#endif
