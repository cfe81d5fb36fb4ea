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
constexpr u32 kUnit1Barriers = kUnit1Zeros<C> + kUnitZeros<C::kExpanded, C::kChunks>;

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

template <class C>
__device__ __forceinline__ u32 unit1_tile(u32 task) {
    const u32 *tiles = reinterpret_cast<const u32 *>(dynamic_shared() + kUnit1Tiles<C>);
    return shared_load(tiles + task / u32(C::kOutBlocks));
}

// All tiles, live or not, with the first two tokens of each, and the zeros, by the whole block.
template <class C>
__device__ __forceinline__ void unit1_read_tiles(const int *permuted_to_token,
                                                 const int *cta_expert, const int *cta_limit) {
    u32 *tiles = reinterpret_cast<u32 *>(dynamic_shared() + kUnit1Tiles<C>);
    for (u32 tile = thread_id(); tile < u32(C::kMaxCtas); tile += block_threads()) {
        const int *tokens = permuted_to_token + tile * u32(C::kTile);
        const u32 own = (u32(gpu_load(tokens)) & 63u) | (u32(gpu_load(tokens + 1)) & 63u) << 6;
        shared_store(tiles + tile,
                     unit_tile(u32(gpu_load(cta_expert + tile)),
                               u32(gpu_load(cta_limit + tile)) - tile * u32(C::kTile), own));
    }
    u32 *zeros = reinterpret_cast<u32 *>(dynamic_shared() + kUnit1Zeros<C>);
    for (u32 i = thread_id(); i < kUnitZeros<C::kExpanded, C::kChunks> / 4; i += block_threads())
        shared_store(zeros + i, 0u);
}

// Token `column` of a tile of the task.
template <class C>
__device__ __forceinline__ u32 unit1_token(const int *permuted_to_token, u32 task, u32 tile,
                                           u32 column) {
    if (column < 2)
        return unit_tile_own(tile) >> 6 * column & 63u;
    return u32(permuted_to_token[task / u32(C::kOutBlocks) * u32(C::kTile) + column]);
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

// Units of a warp's tasks.
template <class C>
struct Unit1Source {
    UnitRing ring;
    const u8 *units;
    u32 tasks;
    u32 ahead; // the task being fetched
};

// Points the ring at the warp's units of the task ahead, gate before up: runs of kSteps / kSplit
// steps.
template <class C>
__device__ __forceinline__ void unit1_aim(Unit1Source<C> &source) {
    constexpr u32 kRun = u32(2 * C::kSteps / C::kSplit);
    source.ring.next = nullptr;
    source.ring.left = kRun;
    if (source.ahead >= source.tasks)
        return;
    const u32 expert = unit_tile_expert(unit1_tile<C>(source.ahead));
    const u32 pair = source.ahead % u32(C::kOutBlocks);
    const u32 unit = pair * u32(2 * C::kSteps) + warp_id() % u32(C::kSplit) * kRun;
    source.ring.next = source.units + (u64(expert) * u32(C::kUnits) + unit) * u32(C::kUnitBytes);
}

template <class C>
__device__ __forceinline__ void unit_refill(Unit1Source<C> &source, u32 slot) {
    unit_ring_fetch(source.ring, slot, u32(C::kUnitBytes));
    if (--source.ring.left == 0) {
        source.ahead += unit1_stride<C>();
        unit1_aim<C>(source);
    }
}

// Fills the warp's ring. By its first lane, behind the barrier that follows unit1_read_tiles().
template <class C>
__device__ __forceinline__ void unit1_set_out(Unit1Source<C> &source) {
    unit1_aim<C>(source);
#pragma unroll 1
    for (u32 slot = 0; slot < u32(C::kStages); ++slot)
        unit_refill(source, slot);
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

// Barriers of the team's sums. By one lane; mbar_init_fence() and a barrier of the block follow.
template <class C>
__device__ __forceinline__ void unit1_init_sums(u32 team) {
    for (u32 i = 0; i < 4; ++i)
        mbar_init(unit1_barrier<C>(team, i), i < 2 ? u32(C::kSplit) : 1);
}

// The set of rows whose turn it is next: gate and up units alternate.
template <int kSums>
__device__ __forceinline__ void unit1_swap(float (&sum)[kSums], float (&other)[kSums]) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
        const float done = sum[i];
        sum[i] = other[i];
        other[i] = done;
    }
}

// A tile of one token, which stands at `row`.
template <class C>
__device__ __forceinline__ void unit1_narrow(Unit1Source<C> &source, u32 row, u32 team, u32 &turn) {
    const u32 g = lane_id() / 4;
    const u32 t = lane_id() % 4;
    const u32 rank = warp_id() % u32(C::kSplit);
    float sum[2] = {0, 0}; // of the set whose turn it is
    float other[2] = {0, 0};
#pragma unroll 1
    for (u32 step = 0; step < u32(C::kSteps / C::kSplit); ++step) {
        const u32 first = (rank * u32(C::kSteps / C::kSplit) + step) * u32(C::kChunks);
        const UnitToken token = unit_narrow_view<C::kChunks, C::kExpanded>(
            row, kUnit1Zeros<C>, u32(C::kCodeBytes), first);
#pragma unroll 1
        for (u32 half = 0; half < 2; ++half) {
            UnitPiece<C::kChunks> piece;
            unit_take<C::kStages, C::kUnitBytes>(piece, source);
            unit_narrow<C::kChunks, C::kExpanded>(sum, piece, token);
            unit1_swap(sum, other);
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

// A tile of `count` tokens; `row`: where the lane's stands, one a column.
template <class C>
__device__ __forceinline__ void unit1_wide(Unit1Source<C> &source, u32 count, u32 row, u32 team,
                                           u32 &turn) {
    const u32 g = lane_id() / 4;
    const u32 t = lane_id() % 4;
    const u32 rank = warp_id() % u32(C::kSplit);
    float sum[4] = {0, 0, 0, 0}; // of the set whose turn it is
    float other[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (u32 step = 0; step < u32(C::kSteps / C::kSplit); ++step) {
        const u32 first = (rank * u32(C::kSteps / C::kSplit) + step) * u32(C::kChunks);
        const UnitToken token =
            unit_view<C::kExpanded>(g < count, row, kUnit1Zeros<C>, u32(C::kCodeBytes), first);
#pragma unroll 1
        for (u32 half = 0; half < 2; ++half) {
            UnitPiece<C::kChunks> piece;
            unit_take<C::kStages, C::kUnitBytes>(piece, source);
            unit_wide<C::kChunks, C::kExpanded>(sum, piece, token);
            unit1_swap(sum, other);
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
__device__ __forceinline__ void unit1_multiply(Unit1Source<C> &source, const int *permuted_to_token,
                                               u32 team, u32 tasks) {
    u32 turn = 0;
    for (u32 task = unit1_first<C>(team); task < tasks; task += unit1_stride<C>()) {
        const u32 tile = unit1_tile<C>(task);
        const u32 count = unit_tile_count(tile);
        const u32 column = lane_id() / 4 < count ? lane_id() / 4 : 0;
        const u32 row = kUnit1Tokens<C> +
                        unit1_token<C>(permuted_to_token, task, tile, column) * u32(C::kPitch);
        if (count == 1)
            unit1_narrow<C>(source, row, team, turn);
        else
            unit1_wide<C>(source, count, row, team, turn);
    }
}

// Two tokens at a time: lanes 0 to 15 the columns of the first, the others those of the second.
template <class C>
__device__ __forceinline__ void unit1_finish(const float *gate_alpha, const float *up_alpha,
                                             u32 team, u32 tasks, u8 *codes2, e4m3 *scales2) {
    u32 turn = 0;
    for (u32 task = unit1_first<C>(team); task < tasks; task += unit1_stride<C>()) {
        const u32 tile = unit1_tile<C>(task);
        const u32 count = unit_tile_count(tile);
        const float gate_scalar = bits_float(load_weight4(gate_alpha + unit_tile_expert(tile)));
        const float up_scalar = bits_float(load_weight4(up_alpha + unit_tile_expert(tile)));
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
    static_assert(C::kExperts > 0 && C::kExperts < 1 << 16, "an expert is 16 bits of a word");
    static_assert(C::kRows <= 32, "a token is six bits of a word");
    static_assert(C::kPermuted > C::kMaxCtas * C::kTile, "tokens of all tiles");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    static_assert(C::kOutBytes == C::kOutBlocks * 8, "codes and scales of one width");
    static_assert(C::kTile == 8, "a tile is the columns of one tensor-core operation");
    static_assert(C::kSteps % C::kSplit == 0, "warps have equal shares of k");
    const u32 warp = warp_id();
    const bool finishes = warp >= kUnit1Warps<C>;
    const u32 team = finishes ? warp - kUnit1Warps<C> : warp / u32(C::kSplit);
    // The tiles are settled, and read past L1, where a line of an earlier step may be: weights set
    // out before the tokens are there.
    const u32 live = u32(gpu_load(ctas));
    Unit1Source<C> source;
    source.ring = unit_ring<C::kStages, C::kUnitBytes>(kUnit1Barriers<C>, warp);
    source.units = units;
    source.tasks = live * u32(C::kOutBlocks);
    source.ahead = unit1_first<C>(team);
    if (lane_id() == 0) {
        if (finishes)
            unit1_init_sums<C>(team);
        else
            unit_ring_init(source.ring, u32(C::kStages));
        mbar_init_fence();
    }
    unit1_read_tiles<C>(permuted_to_token, cta_expert, cta_limit);
    block_sync();
    if (!finishes && lane_id() == 0)
        unit1_set_out<C>(source);
    grid_trigger();
    grid_wait();
    if (finishes) {
        unit1_finish<C>(gate_alpha, up_alpha, team, source.tasks, codes2, scales2);
        return;
    }
    unit1_stage<C>(codes, scales);
    block_sync_named(kUnit1Threads, kUnit1Warps<C> * 32);
    unit1_multiply<C>(source, permuted_to_token, team, source.tasks);
}

#endif
