// SPDX-License-Identifier: Apache-2.0
// Second routed GEMM, W4A4, on packed units: rows of the permuted space, one per route, scaled and
// rounded to bf16; neither weighted nor summed. A task is 16 output columns of one tile over the
// whole intermediate width, by one warp: nothing is summed across warps, and once the rows have
// come to shared memory warps never wait for each other. They take tasks in strides over the grid.
#ifndef LATHE_MOE_UNIT_SECOND_CUH
#define LATHE_MOE_UNIT_SECOND_CUH

#include "moe/unit.cuh"
#include "moe/unit_ring.cuh"
#include "prims.cuh"

// Rows of live tiles lie one after the other in shared memory; `sources` says which of all rows
// each is, and the word behind the last tile holds their number. By one warp.
template <class C>
__device__ __forceinline__ void unit2_read_tiles(u32 *tiles, u16 *sources, const int *cta_expert,
                                                 const int *cta_limit, u32 live) {
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
            shared_store(tiles + tile, unit_tile(u32(cta_expert[tile]), count, row));
        for (u32 i = 0; i < count; ++i)
            shared_store(sources + row + i, u16(tile * u32(C::kTile) + i));
        base += warp_shuffle(end, 31);
    }
    if (lane_id() == 0)
        shared_store(tiles + live, unit_tile(0, 0, base));
}

// Points the ring at the units of `task`, one after the other along k. `expert`: the task's.
template <class C>
__device__ __forceinline__ void unit2_aim(UnitRing &ring, const u8 *units, u32 task, u32 tasks,
                                          u32 expert) {
    constexpr u32 kSlices = u32(C::kWidth) / 16;
    const u32 unit = task % kSlices * u32(C::kSteps);
    ring.next =
        task < tasks ? units + (u64(expert) * u32(C::kUnits) + unit) * u32(C::kUnitBytes) : nullptr;
    ring.left = u32(C::kSteps);
}

template <class C>
__device__ __forceinline__ u32 unit2_first() {
    return block_id() * u32(C::kWarps) + warp_id();
}
template <class C>
__device__ __forceinline__ u32 unit2_stride() {
    return grid_size() * u32(C::kWarps);
}

// A tile of one token: `out` is its row at the task's first column.
template <class C, class S>
__device__ __forceinline__ void unit2_narrow(S &source, u32 row, u32 zeros, float scalar,
                                             bf16 *out) {
    const u32 g = lane_id() / 4;
    const u32 t = lane_id() % 4;
    float sum[2] = {0, 0};
#pragma unroll 1
    for (u32 step = 0; step < u32(C::kSteps); ++step) {
        const UnitToken token = unit_narrow_view<C::kChunks, C::kExpanded>(
            row, zeros, u32(C::kCodeBytes), step * u32(C::kChunks));
        UnitPiece<C::kChunks> piece;
        unit_take<C::kStages, C::kSlotBytes>(piece, source);
        unit_narrow<C::kChunks, C::kExpanded>(sum, piece, token);
    }
    const float low = unit_quad(sum[0]);
    const float high = unit_quad(sum[1]);
    if (t < 2)
        out[g + 8 * t] = float_to_bf16((t == 0 ? low : high) * kUnitNarrow * scalar);
}

// A tile of `count` tokens, one a column, the first at `row`. `out`: the tile's first row.
template <class C, class S>
__device__ __forceinline__ void unit2_wide(S &source, u32 count, u32 row, u32 zeros, float scalar,
                                           bf16 *out) {
    const u32 g = lane_id() / 4;
    const u32 t = lane_id() % 4;
    const u32 mine = row + (g < count ? g : 0) * u32(C::kPitch);
    float sum[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (u32 step = 0; step < u32(C::kSteps); ++step) {
        const UnitToken token = unit_view<C::kExpanded>(g < count, mine, zeros, u32(C::kCodeBytes),
                                                        step * u32(C::kChunks));
        UnitPiece<C::kChunks> piece;
        unit_take<C::kStages, C::kSlotBytes>(piece, source);
        unit_wide<C::kChunks, C::kExpanded>(sum, piece, token);
    }
#pragma unroll
    for (u32 j = 0; j < 4; ++j) // row g or g + 8 of the first or second token
        if (2 * t + j % 2 < count)
            out[u64(2 * t + j % 2) * C::kWidth + g + j / 2 * 8] =
                float_to_bf16(sum[j] * kUnitWide<C::kExpanded> * scalar);
}

// One task of tile `tile`, the first of whose rows stands at `row` in shared memory.
template <class C, class S>
__device__ __forceinline__ void unit2_task(S &source, u32 tile, u32 task, u32 row, u32 zeros,
                                           const float *alpha, bf16 *rows) {
    constexpr u32 kSlices = u32(C::kWidth) / 16;
    const u32 count = unit_tile_count(tile);
    const float scalar = bits_float(load_weight4(alpha + unit_tile_expert(tile)));
    bf16 *out = rows + u64(task / kSlices * u32(C::kTile)) * C::kWidth + task % kSlices * 16;
    if (count == 1)
        unit2_narrow<C>(source, row, zeros, scalar, out);
    else
        unit2_wide<C>(source, count, row, zeros, scalar, out);
}

#endif
