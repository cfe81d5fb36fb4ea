// SPDX-License-Identifier: Apache-2.0
// Packs experts' weights into units (moe/unit.cuh), a lane's 16 bytes of a chunk at a time. Units
// of a set of 16 rows stand in the order of k; where rows are gates and ups, the two units of one
// place stand together. Every e4m3 scale that is a number and not negative keeps its value; any
// other sets bit 4 of faults[0].
#ifndef LATHE_PREPARE_EXPERT_UNITS_CUH
#define LATHE_PREPARE_EXPERT_UNITS_CUH

#include "moe/unit.cuh"
#include "prims.cuh"

// A scale as a unit holds it. Subnormals, m * 2^-9, become normal.
__device__ __forceinline__ u8 expert_units_scale(u8 scale) {
    if (scale >= 8)
        return scale | 0x80u; // 16 more in an exponent of 5 bits
    u32 exponent = 17;
    u32 mantissa = scale;
    while (mantissa != 0 && mantissa < 8) {
        mantissa *= 2;
        --exponent;
    }
    return u8(exponent << 3 | (mantissa & 7u));
}

// Sixteen codes of row `row` at block `block` into two words; their scale is returned.
template <class C>
__device__ __forceinline__ u8 expert_units_block(const u8 *codes, const e4m3 *scales, u64 row,
                                                 u32 block, u32 (&words)[2], int *faults) {
    const u32x2 eight =
        *reinterpret_cast<const u32x2 *>(codes + row * u64(C::kCodeBytes) + block * 8);
    const u8 scale = scales[row * u64(C::kBlocks) + block].bits;
    const bool zero = (scale & 0x7fu) == 0;
    if (!zero && scale >= 0x7f)
        gpu_atomic_or(reinterpret_cast<u32 *>(faults), 4u);
    words[0] = zero ? 0 : unit_word(eight.x);
    words[1] = zero ? 0 : unit_word(eight.y);
    return expert_units_scale(scale & 0x7fu);
}

template <class C>
__device__ void expert_units(const u8 *codes, const e4m3 *scales, int *faults, u8 *units) {
    static_assert(C::kRows % (C::kPaired ? 32 : 16) == 0, "whole sets of 16 rows");
    static_assert(C::kBlocks == C::kSteps * C::kChunks * 4, "whole units along k");
    static_assert(C::kUnits == C::kRows / 16 * C::kSteps, "a unit for each of them");
    constexpr u32 kLanes = u32(C::kUnits) * u32(C::kChunks) * 32; // of an expert
    const u64 all = u64(C::kExperts) * kLanes;
    for (u64 i = u64(block_id()) * block_threads() + thread_id(); i < all;
         i += u64(grid_size()) * block_threads()) {
        const u64 expert = i / kLanes;
        const u32 lane = u32(i % 32);
        const u32 chunk = u32(i % kLanes) / 32 % u32(C::kChunks);
        const u32 unit = u32(i % kLanes) / u32(C::kChunks * 32);
        const u32 step = C::kPaired ? unit / 2 % u32(C::kSteps) : unit % u32(C::kSteps);
        const u32 set = C::kPaired ? unit / u32(2 * C::kSteps) : unit / u32(C::kSteps);
        const u32 half = C::kPaired ? unit % 2 : 0;
        const u64 row = expert * u64(C::kRows) + half * u32(C::kRows / 2) + set * 16 + lane / 4;
        const u32 block = (step * u32(C::kChunks) + chunk) * 4 + lane % 4;
        u32 low[2];
        u32 high[2];
        const u8 scale_low = expert_units_block<C>(codes, scales, row, block, low, faults);
        const u8 scale_high = expert_units_block<C>(codes, scales, row + 8, block, high, faults);
        u8 *to = units + (expert * u64(C::kUnits) + unit) * u64(C::kUnitBytes);
        reinterpret_cast<u32x4 *>(to)[chunk * 32 + lane] = u32x4{low[0], low[1], high[0], high[1]};
        *reinterpret_cast<u16 *>(to + u32(C::kChunks) * 512 +
                                 (lane * u32(C::kChunks) + chunk) * 2) =
            u16(scale_low | scale_high << 8);
    }
}

#endif
