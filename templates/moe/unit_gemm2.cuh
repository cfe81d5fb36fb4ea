// SPDX-License-Identifier: Apache-2.0
// Second routed GEMM, W4A4, on packed units: rows of the permuted space, one per route, scaled and
// rounded to bf16; neither weighted nor summed. A task is 16 output columns of one tile over the
// whole intermediate width, by one warp: nothing is summed across warps, and once the rows have
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
constexpr u32 kUnit2Barriers = kUnit2Zeros<C> + kUnitZeros<C::kExpanded, C::kChunks>;

template <class C>
__device__ __forceinline__ u32 *unit2_tiles() {
    return reinterpret_cast<u32 *>(dynamic_shared() + kUnit2Tiles<C>);
}
template <class C>
__device__ __forceinline__ u16 *unit2_sources() {
    return reinterpret_cast<u16 *>(dynamic_shared() + kUnit2Sources<C>);
}
// Rows of live tiles lie one after the other in shared memory; unit2_sources() says which of all
// rows each is, and the word behind the last tile holds their number. By one warp, which asks for
// all tiles at once, live or not: a block that starts late holds up the others.
template <class C>
__device__ __forceinline__ void unit2_read_tiles(const int *cta_expert, const int *cta_limit,
                                                 u32 live) {
    constexpr u32 kPer = (u32(C::kMaxCtas) + 31) / 32;
    u32 limit[kPer];
    u32 expert[kPer];
#pragma unroll
    for (u32 i = 0; i < kPer; ++i) {
        const u32 tile = i * 32 + lane_id();
        limit[i] = tile < u32(C::kMaxCtas) ? u32(gpu_load(cta_limit + tile)) : 0;
        expert[i] = tile < u32(C::kMaxCtas) ? u32(gpu_load(cta_expert + tile)) : 0;
    }
    u32 base = 0;
#pragma unroll
    for (u32 part = 0; part < kPer; ++part) {
        const u32 tile = part * 32 + lane_id();
        const u32 count = tile < live ? limit[part] - tile * u32(C::kTile) : 0;
        u32 end = count; // inclusive sum over lanes
#pragma unroll
        for (u32 distance = 1; distance < 32; distance *= 2) {
            const u32 below = warp_shuffle(end, (lane_id() - distance) & 31);
            if (lane_id() >= distance)
                end += below;
        }
        const u32 row = base + end - count;
        if (tile < live)
            shared_store(unit2_tiles<C>() + tile, unit_tile(expert[part], count, row));
        for (u32 i = 0; i < count; ++i)
            shared_store(unit2_sources<C>() + row + i, u16(tile * u32(C::kTile) + i));
        base += warp_shuffle(end, 31);
    }
    if (lane_id() == 0)
        shared_store(unit2_tiles<C>() + live, unit_tile(0, 0, base));
}

template <class C>
__device__ __forceinline__ void unit2_stage(const u8 *codes2, const e4m3 *scales2, u32 live) {
    constexpr u32 kPieces = u32(C::kCodeBytes) / 16;
    const u32 rows = unit_tile_own(shared_load(unit2_tiles<C>() + live));
#pragma unroll 4
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

// Tasks of a warp: the first one, and what lies between them.
template <class C>
__device__ __forceinline__ u32 unit2_first() {
    return block_id() * u32(C::kWarps) + warp_id();
}
template <class C>
__device__ __forceinline__ u32 unit2_stride() {
    return grid_size() * u32(C::kWarps);
}

// Units of a warp's tasks.
template <class C>
struct Unit2Source {
    UnitRing ring;
    const u8 *units;
    u32 tasks;
    u32 ahead; // the task being fetched
};

template <class C>
__device__ __forceinline__ u32 unit2_tile(u32 task) {
    return shared_load(unit2_tiles<C>() + task / (u32(C::kWidth) / 16));
}

// Points the ring at the units of the task ahead, one after the other along k.
template <class C>
__device__ __forceinline__ void unit2_aim(Unit2Source<C> &source) {
    source.ring.next = nullptr;
    source.ring.left = u32(C::kSteps);
    if (source.ahead >= source.tasks)
        return;
    const u64 expert = unit_tile_expert(unit2_tile<C>(source.ahead));
    const u32 unit = source.ahead % (u32(C::kWidth) / 16) * u32(C::kSteps);
    source.ring.next = source.units + (expert * u32(C::kUnits) + unit) * u32(C::kUnitBytes);
}

template <class C>
__device__ __forceinline__ void unit_refill(Unit2Source<C> &source, u32 slot) {
    unit_ring_fetch(source.ring, slot, u32(C::kUnitBytes));
    if (--source.ring.left == 0) {
        source.ahead += unit2_stride<C>();
        unit2_aim<C>(source);
    }
}

// Fills the warp's ring. By its first lane, behind the barrier that follows unit2_read_tiles().
template <class C>
__device__ __forceinline__ void unit2_set_out(Unit2Source<C> &source) {
    unit2_aim<C>(source);
#pragma unroll 1
    for (u32 slot = 0; slot < u32(C::kStages); ++slot)
        unit_refill(source, slot);
}

// A tile of one token: `out` is its row at the task's first column.
template <class C>
__device__ __forceinline__ void unit2_narrow(Unit2Source<C> &source, u32 row, float scalar,
                                             bf16 *out) {
    const u32 g = lane_id() / 4;
    const u32 t = lane_id() % 4;
    float sum[2] = {0, 0};
#pragma unroll 1
    for (u32 step = 0; step < u32(C::kSteps); ++step) {
        const UnitToken token = unit_narrow_view<C::kChunks, C::kExpanded>(
            row, kUnit2Zeros<C>, u32(C::kCodeBytes), step * u32(C::kChunks));
        UnitPiece<C::kChunks> piece;
        unit_take<C::kStages, C::kUnitBytes>(piece, source);
        unit_narrow<C::kChunks, C::kExpanded>(sum, piece, token);
    }
    const float low = unit_quad(sum[0]);
    const float high = unit_quad(sum[1]);
    if (t < 2)
        out[g + 8 * t] = float_to_bf16((t == 0 ? low : high) * kUnitNarrow * scalar);
}

// A tile of `count` tokens, one a column, the first at `row`. `out`: the tile's first row.
template <class C>
__device__ __forceinline__ void unit2_wide(Unit2Source<C> &source, u32 count, u32 row, float scalar,
                                           bf16 *out) {
    const u32 g = lane_id() / 4;
    const u32 t = lane_id() % 4;
    const u32 mine = row + (g < count ? g : 0) * u32(C::kPitch);
    float sum[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (u32 step = 0; step < u32(C::kSteps); ++step) {
        const UnitToken token = unit_view<C::kExpanded>(g < count, mine, kUnit2Zeros<C>,
                                                        u32(C::kCodeBytes), step * u32(C::kChunks));
        UnitPiece<C::kChunks> piece;
        unit_take<C::kStages, C::kUnitBytes>(piece, source);
        unit_wide<C::kChunks, C::kExpanded>(sum, piece, token);
    }
#pragma unroll
    for (u32 j = 0; j < 4; ++j) // row g or g + 8 of the first or second token
        if (2 * t + j % 2 < count)
            out[u64(2 * t + j % 2) * C::kWidth + g + j / 2 * 8] =
                float_to_bf16(sum[j] * kUnitWide<C::kExpanded> * scalar);
}

template <class C>
__device__ __forceinline__ void unit2_multiply(Unit2Source<C> &source, const float *alpha,
                                               bf16 *rows) {
    constexpr u32 kSlices = u32(C::kWidth) / 16;
    for (u32 task = unit2_first<C>(); task < source.tasks; task += unit2_stride<C>()) {
        const u32 tile = unit2_tile<C>(task);
        const u32 count = unit_tile_count(tile);
        const u32 row = kUnit2Rows<C> + unit_tile_own(tile) * u32(C::kPitch);
        const float scalar = bits_float(load_weight4(alpha + unit_tile_expert(tile)));
        bf16 *out = rows + u64(task / kSlices * u32(C::kTile)) * C::kWidth + task % kSlices * 16;
        if (count == 1)
            unit2_narrow<C>(source, row, scalar, out);
        else
            unit2_wide<C>(source, count, row, scalar, out);
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
    // The tiles are settled, and read past L1, where a line of an earlier step may be: weights set
    // out before the rows are there.
    const u32 live = u32(gpu_load(ctas));
    Unit2Source<C> source;
    source.ring = unit_ring<C::kStages, C::kUnitBytes>(kUnit2Barriers<C>, warp_id());
    source.units = units;
    source.tasks = live * (u32(C::kWidth) / 16);
    source.ahead = unit2_first<C>();
    if (lane_id() == 0) {
        unit_ring_init(source.ring, u32(C::kStages));
        mbar_init_fence();
    }
    if (warp_id() == 0)
        unit2_read_tiles<C>(cta_expert, cta_limit, live);
    u32 *zeros = reinterpret_cast<u32 *>(dynamic_shared() + kUnit2Zeros<C>);
    for (u32 i = thread_id(); i < kUnitZeros<C::kExpanded, C::kChunks> / 4; i += block_threads())
        shared_store(zeros + i, 0u);
    block_sync();
    if (lane_id() == 0)
        unit2_set_out<C>(source);
    grid_trigger();
    grid_wait();
    unit2_stage<C>(codes2, scales2, live);
    block_sync();
    unit2_multiply<C>(source, alpha, rows);
}

#endif
