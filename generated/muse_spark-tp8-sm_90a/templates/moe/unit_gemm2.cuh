// SPDX-License-Identifier: Apache-2.0
// Second routed GEMM as a launch of its own.
#ifndef LATHE_MOE_UNIT_GEMM2_CUH
#define LATHE_MOE_UNIT_GEMM2_CUH

#include "moe/unit_second.cuh"
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
constexpr u32 kUnit2Barriers = kUnit2Zeros<C> + kUnitZeros<C::kExpanded, C::kChunks>;

template <class C>
__device__ __forceinline__ u32 *unit2_tiles() {
    return reinterpret_cast<u32 *>(dynamic_shared() + kUnit2Tiles<C>);
}
template <class C>
__device__ __forceinline__ u16 *unit2_sources() {
    return reinterpret_cast<u16 *>(dynamic_shared() + kUnit2Sources<C>);
}
// Fixed for unit_take().
template <class C>
struct Unit2Shape {
    static constexpr int kSlotBytes = C::kUnitBytes, kUnitBytes = C::kUnitBytes;
    static constexpr int kChunks = C::kChunks, kSteps = C::kSteps, kUnits = C::kUnits;
    static constexpr int kStages = C::kStages, kWarps = C::kWarps, kExpanded = C::kExpanded;
    static constexpr int kCodeBytes = C::kCodeBytes, kPitch = C::kPitch;
    static constexpr int kWidth = C::kWidth, kTile = C::kTile;
};

// Units of a warp's tasks.
template <class C>
struct Unit2Source {
    UnitRing ring;
    const u8 *units;
    u32 tasks;
    u32 ahead; // the task being fetched
};

template <class C>
__device__ __forceinline__ void unit_refill(Unit2Source<C> &source, u32 slot) {
    unit_ring_fetch(source.ring, slot, u32(C::kUnitBytes), u32(C::kUnitBytes));
    if (--source.ring.left == 0) {
        source.ahead += unit2_stride<C>();
        u32 tile = 0;
        if (source.ahead < source.tasks)
            tile = shared_load(unit2_tiles<C>() + source.ahead / (u32(C::kWidth) / 16));
        unit2_aim<C>(source.ring, source.units, source.ahead, source.tasks, unit_tile_expert(tile));
    }
}

// Expert of a task, straight from what routing left; of any, where there is no such task.
template <class C>
__device__ __forceinline__ u32 unit2_expert(const int *cta_expert, u32 task) {
    const u32 tile = task / (u32(C::kWidth) / 16);
    return u32(cta_expert[tile < u32(C::kMaxCtas) ? tile : u32(C::kMaxCtas) - 1]);
}

// The warp's ring, and its first fetches under way: they wait for two loads and nothing else.
template <class C>
__device__ __forceinline__ void unit2_set_out(Unit2Source<C> &source, const int *cta_expert) {
    if (lane_id() != 0)
        return;
    unit_ring_init(source.ring, u32(C::kStages));
    mbar_init_fence();
    unit2_aim<C>(source.ring, source.units, source.ahead, source.tasks,
                 unit2_expert<C>(cta_expert, source.ahead));
#pragma unroll
    for (u32 slot = 0; slot < u32(C::kStages); ++slot) {
        unit_ring_fetch(source.ring, slot, u32(C::kUnitBytes), u32(C::kUnitBytes));
        if (--source.ring.left == 0) {
            source.ahead += unit2_stride<C>();
            unit2_aim<C>(source.ring, source.units, source.ahead, source.tasks,
                         unit2_expert<C>(cta_expert, source.ahead));
        }
    }
}

template <class C>
__device__ __forceinline__ void unit2_stage(const u8 *codes2, const e4m3 *scales2, u32 live) {
    constexpr u32 kPieces = u32(C::kCodeBytes) / 16;
    const u32 rows = unit_tile_own(shared_load(unit2_tiles<C>() + live));
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

template <class C>
__device__ void unit_gemm2(const u8 *codes2, const e4m3 *scales2, const u8 *units,
                           const float *alpha, const int *cta_expert, const int *cta_limit,
                           const int *ctas, bf16 *rows) {
    static_assert(C::kExperts > 0 && C::kExperts < 1 << 16, "an expert is 16 bits of a word");
    static_assert(C::kRoutes < 1 << 12, "a row is 12 bits of a word");
    static_assert(C::kMaxRows >= C::kMaxCtas * C::kTile, "rows of all tiles");
    static_assert(C::kOutRows >= C::kMaxRows, "an output row for each input row");
    static_assert(C::kTile == 8, "a tile is the columns of one tensor-core operation");
    // The tiles are settled: weights set out before the rows are there.
    const u32 live = u32(ctas[0]);
    Unit2Source<C> source;
    source.ring = unit_ring<C::kStages, C::kUnitBytes>(kUnit2Barriers<C>, warp_id());
    source.units = units;
    source.tasks = live * (u32(C::kWidth) / 16);
    source.ahead = unit2_first<C>();
    unit2_set_out<C>(source, cta_expert);
    if (warp_id() == 0)
        unit2_read_tiles<C>(unit2_tiles<C>(), unit2_sources<C>(), cta_expert, cta_limit, live);
    u32 *zeros = reinterpret_cast<u32 *>(dynamic_shared() + kUnit2Zeros<C>);
    for (u32 i = thread_id(); i < kUnitZeros<C::kExpanded, C::kChunks> / 4; i += block_threads())
        shared_store(zeros + i, 0u);
    block_sync();
    grid_trigger();
    grid_wait();
    unit2_stage<C>(codes2, scales2, live);
    block_sync();
    for (u32 task = unit2_first<C>(); task < source.tasks; task += unit2_stride<C>()) {
        const u32 tile = shared_load(unit2_tiles<C>() + task / (u32(C::kWidth) / 16));
        unit2_task<Unit2Shape<C>>(source, tile, task,
                                  kUnit2Rows<C> + unit_tile_own(tile) * u32(C::kPitch),
                                  kUnit2Zeros<C>, alpha, rows);
    }
}

#endif
