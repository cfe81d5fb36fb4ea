// SPDX-License-Identifier: Apache-2.0
// First routed GEMM as a launch of its own.
#ifndef LATHE_MOE_UNIT_GEMM1_CUH
#define LATHE_MOE_UNIT_GEMM1_CUH

#include "moe/unit_first.cuh"
#include "prims.cuh"

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
    // The tiles are settled: weights set out before the tokens are there.
    const u32 live = u32(ctas[0]);
    Unit1Source<C> source;
    source.ring = unit_ring<C::kStages, C::kUnitBytes>(kUnit1Barriers<C>, warp);
    source.units = units;
    source.tasks = live * u32(C::kOutBlocks);
    source.ahead = unit1_first<C>(team);
    if (!finishes)
        unit1_set_out<C>(source.ring, units, source.tasks, source.ahead, cta_expert);
    else if (lane_id() == 0)
        unit1_init_sums<C>(team);
    unit1_read_tiles<C>(permuted_to_token, cta_expert, cta_limit, live);
    grid_trigger();
    grid_wait();
    if (!finishes)
        unit1_stage<C>(codes, scales);
    block_sync();
    if (finishes)
        unit1_finish<C, 0>(gate_alpha, up_alpha, team, source.tasks, codes2, scales2, nullptr);
    else
        unit1_multiply<C>(source, permuted_to_token, team, source.tasks);
}

#endif
