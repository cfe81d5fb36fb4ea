// SPDX-License-Identifier: Apache-2.0
// Second routed GEMM, W4A4, on packed units: rows of the permuted space, one per route, scaled and
// rounded to bf16; neither weighted nor summed. A task is 16 output columns of one tile over the
// whole intermediate width, by one warp: nothing is summed across warps, and after the rows have
// come to shared memory warps never wait for each other. They take tasks in strides over the grid.
#ifndef LATHE_MOE_UNIT_GEMM2_CUH
#define LATHE_MOE_UNIT_GEMM2_CUH

#include "moe/unit.cuh"
#include "moe/unit_ring.cuh"
#include "prims.cuh"

// Shared memory: the rings, the rows, the tiles, where rows come from, zeros, barriers.
template <class C>
constexpr u32 kUnit2Rows = u32(C::kWarps) * u32(C::kStages) * u32(C::kUnitBytes);
template <class C>
constexpr u32 kUnit2Tiles = kUnit2Rows<C> + u32(C::kRoutes) * u32(C::kPitch);
template <class C>
constexpr u32 kUnit2Sources = kUnit2Tiles<C> + (u32(C::kMaxCtas) + 1) * 4;
template <class C>
constexpr u32 kUnit2Zeros = (kUnit2Sources<C> + u32(C::kRoutes) * 2 + 15) / 16 * 16;
template <class C>
constexpr u32 kUnit2Barriers = kUnit2Zeros<C> + 32;

// A tile in one word: its expert (16 bits), the number of its tokens (4), its first row (12).
template <class C>
__device__ __forceinline__ u32 *unit2_tiles() {
    return reinterpret_cast<u32 *>(dynamic_shared() + kUnit2Tiles<C>);
}
template <class C>
__device__ __forceinline__ u16 *unit2_sources() {
    return reinterpret_cast<u16 *>(dynamic_shared() + kUnit2Sources<C>);
}
// Rows of live tiles lie one after the other in shared memory. By one warp.
template <class C>
__device__ __forceinline__ void unit2_read_tiles(const int *cta_expert, const int *cta_limit,
                                                 u32 live) {
    u32 base = 0;
    for (u32 first = 0; first < live; first += 32) {
        const u32 tile = first + lane_id();
        u32 count = 0;
        if (tile < live)
            count = u32(cta_limit[tile]) - tile * u32(C::kTile);
        u32 end = count; // inclusive sum over lanes
#pragma unroll
        for (u32 distance = 1; distance < 32; distance *= 2) {
            const u32 below = warp_shuffle(end, (lane_id() - distance) & 31);
            if (lane_id() >= distance)
                end += below;
        }
        const u32 row = base + end - count;
        if (tile < live)
            shared_store(unit2_tiles<C>() + tile, u32(cta_expert[tile]) | count << 16 | row << 20);
        for (u32 i = 0; i < count; ++i)
            shared_store(unit2_sources<C>() + row + i, u16(tile * u32(C::kTile) + i));
        base += warp_shuffle(end, 31);
    }
    if (lane_id() == 0)
        shared_store(unit2_tiles<C>() + live, base << 20);
    if (lane_id() < 8)
        shared_store(reinterpret_cast<u32 *>(dynamic_shared() + kUnit2Zeros<C>) + lane_id(), 0u);
}

template <class C>
__device__ __forceinline__ void unit2_stage(const u8 *codes2, const e4m3 *scales2, u32 live) {
    constexpr u32 kPieces = u32(C::kCodeBytes) / 16;
    const u32 rows = shared_load(unit2_tiles<C>() + live) >> 20;
#pragma unroll 2
    for (u32 i = thread_id(); i < rows * kPieces; i += u32(C::kWarps) * 32) {
        const u32 row = i / kPieces;
        const u32 piece = i % kPieces;
        const u32 from = shared_load(unit2_sources<C>() + row);
        unit_stage<C::kExpanded>(
            dynamic_shared() + kUnit2Rows<C> + row * u32(C::kPitch), u32(C::kCodeBytes), piece,
            *reinterpret_cast<const u32x4 *>(codes2 + from * u32(C::kCodeBytes) + piece * 16),
            *reinterpret_cast<const u16 *>(scales2 + from * u32(C::kBlocks) + piece * 2));
    }
}

// Points the ring at the units of `task`: one after the other along k.
template <class C>
__device__ __forceinline__ void unit2_aim(UnitRing &ring, const u8 *units, u32 task, u32 tasks) {
    ring.next = nullptr;
    ring.left = u32(C::kSteps);
    if (task >= tasks)
        return;
    constexpr u32 kSlices = u32(C::kWidth) / 16;
    const u64 expert = shared_load(unit2_tiles<C>() + task / kSlices) & 0xffffu;
    ring.next =
        units + (expert * u32(C::kUnits) + task % kSlices * u32(C::kSteps)) * u32(C::kUnitBytes);
}

template <class C>
__device__ __forceinline__ void unit2_fetch(UnitRing &ring, u32 slot, const u8 *units, u32 &ahead,
                                            u32 tasks) {
    unit_ring_fetch<C::kUnitBytes>(ring, slot);
    if (ring.next != nullptr)
        ring.next += C::kUnitBytes;
    if (--ring.left == 0) {
        ahead += grid_size() * u32(C::kWarps);
        unit2_aim<C>(ring, units, ahead, tasks);
    }
}

template <class C>
__device__ __forceinline__ void unit2_take(UnitPiece<C::kChunks> &piece, UnitRing &ring,
                                           const u8 *units, u32 &ahead, u32 tasks) {
    unit_read<C::kChunks>(piece, unit_ring_wait<C::kUnitBytes>(ring));
    warp_sync();
    unit2_fetch<C>(ring, ring.slot, units, ahead, tasks);
    unit_ring_turn(ring, u32(C::kStages));
}

// A tile of one token: `out` is its row at the task's first column.
template <class C>
__device__ __forceinline__ void unit2_narrow(UnitRing &ring, const u8 *units, u32 &ahead, u32 tasks,
                                             u32 row, float scalar, bf16 *out) {
    const u32 g = lane_id() / 4;
    const u32 t = lane_id() % 4;
    float sum[2] = {0, 0};
#pragma unroll 1
    for (u32 step = 0; step < u32(C::kSteps); ++step) {
        const u32 first = step * u32(C::kChunks);
        UnitPiece<C::kChunks> piece;
        unit2_take<C>(piece, ring, units, ahead, tasks);
        unit_narrow<C::kChunks, C::kExpanded>(
            sum, piece,
            unit_view<C::kExpanded>(g == 2 * t, row, kUnit2Zeros<C>, u32(C::kCodeBytes), first),
            unit_view<C::kExpanded>(g == 2 * t + 1, row, kUnit2Zeros<C>, u32(C::kCodeBytes),
                                    first));
    }
    const float low = unit_quad(sum[0]);
    const float high = unit_quad(sum[1]);
    if (t < 2)
        out[g + 8 * t] = float_to_bf16((t == 0 ? low : high) * kUnitNarrow * scalar);
}

// A tile of `count` tokens; `row`: the lane's, one a column. `out`: the tile's first row.
template <class C>
__device__ __forceinline__ void unit2_wide(UnitRing &ring, const u8 *units, u32 &ahead, u32 tasks,
                                           u32 count, u32 row, float scalar, bf16 *out) {
    const u32 g = lane_id() / 4;
    const u32 t = lane_id() % 4;
    float sum[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (u32 step = 0; step < u32(C::kSteps); ++step) {
        UnitPiece<C::kChunks> piece;
        unit2_take<C>(piece, ring, units, ahead, tasks);
        unit_wide<C::kChunks, C::kExpanded>(sum, piece,
                                            unit_view<C::kExpanded>(g < count, row, kUnit2Zeros<C>,
                                                                    u32(C::kCodeBytes),
                                                                    step * u32(C::kChunks)));
    }
#pragma unroll
    for (u32 j = 0; j < 4; ++j) // row g or g + 8 of the first or second token
        if (2 * t + j % 2 < count)
            out[u64(2 * t + j % 2) * C::kWidth + g + j / 2 * 8] =
                float_to_bf16(sum[j] * kUnitWide<C::kExpanded> * scalar);
}

template <class C>
__device__ __forceinline__ void unit2_multiply(UnitRing &ring, const u8 *units, const float *alpha,
                                               u32 tasks, u32 ahead, bf16 *rows) {
    constexpr u32 kSlices = u32(C::kWidth) / 16;
    const u32 stride = grid_size() * u32(C::kWarps);
    for (u32 task = block_id() * u32(C::kWarps) + warp_id(); task < tasks; task += stride) {
        const u32 index = task / kSlices;
        const u32 tile = shared_load(unit2_tiles<C>() + index);
        const u32 count = tile >> 16 & 15u;
        const u32 column = lane_id() / 4 < count ? lane_id() / 4 : 0;
        const u32 row = kUnit2Rows<C> + ((tile >> 20) + column) * u32(C::kPitch);
        const float scalar = bits_float(load_weight4(alpha + (tile & 0xffffu)));
        bf16 *out = rows + u64(index * u32(C::kTile)) * C::kWidth + task % kSlices * 16;
        if (count == 1)
            unit2_narrow<C>(ring, units, ahead, tasks, row, scalar, out);
        else
            unit2_wide<C>(ring, units, ahead, tasks, count, row, scalar, out);
    }
}

template <class C>
__device__ void unit_gemm2(const u8 *codes2, const e4m3 *scales2, const u8 *units,
                           const float *alpha, const int *cta_expert, const int *cta_limit,
                           const int *ctas, bf16 *rows) {
    static_assert(C::kExperts > 0 && C::kExperts < 1 << 16, "an expert is 16 bits of a word");
    static_assert(C::kRoutes < 1 << 12, "a row is 12 bits of a word");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    static_assert(C::kOutRows >= C::kMaxRows, "an output row for each input row");
    static_assert(C::kTile == 8, "a tile is the columns of one tensor-core operation");
    constexpr u32 kSlices = u32(C::kWidth) / 16;
    u8 *shared = dynamic_shared();
    UnitRing ring = unit_ring<C::kStages, C::kUnitBytes>(
        shared, reinterpret_cast<u64 *>(shared + kUnit2Barriers<C>), warp_id());
    if (lane_id() == 0) {
        unit_ring_init(ring, u32(C::kStages));
        mbar_init_fence();
    }
    const u32 live =
        u32(ctas[0]); // the tiles are settled: weights set out before the rows are there
    const u32 tasks = live * kSlices;
    if (warp_id() == 0)
        unit2_read_tiles<C>(cta_expert, cta_limit, live);
    block_sync();
    u32 ahead = block_id() * u32(C::kWarps) + warp_id();
    unit2_aim<C>(ring, units, ahead, tasks);
    for (u32 slot = 0; slot < u32(C::kStages); ++slot)
        unit2_fetch<C>(ring, slot, units, ahead, tasks);
    grid_trigger();
    grid_wait();
    unit2_stage<C>(codes2, scales2, live);
    block_sync();
    unit2_multiply<C>(ring, units, alpha, tasks, ahead, rows);
}

#endif
