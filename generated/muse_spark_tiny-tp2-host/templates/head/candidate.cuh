/* SPDX-License-Identifier: Apache-2.0
 * Candidates for the greatest logit of a row: lowest id among equals, NaN skipped. kBlocks blocks a
 * row leave a candidate each; the last one to arrive at the row's counter picks among them and
 * leaves the counter zero. */
#ifndef LATHE_HEAD_CANDIDATE_CUH
#define LATHE_HEAD_CANDIDATE_CUH

#include "prims.cuh"

/* A candidate; `id` is kNobody where only NaN was seen. */
struct Candidate {
    float value;
    u32 id;
};
constexpr u32 kNobody = 0xffffffffu;

__device__ __forceinline__ Candidate argmax_nobody() {
    return {bits_float(0xff800000u), kNobody}; /* -infinity */
}

__device__ __forceinline__ u32x2 argmax_pack(Candidate c) {
    return {float_bits(c.value), c.id};
}

__device__ __forceinline__ Candidate argmax_unpack(u32x2 packed) {
    return {bits_float(packed.x), packed.y};
}

/* The better of two: greater value, then lower id. NaN never gets in, since it compares with
 * nothing. */
__device__ __forceinline__ Candidate argmax_better(Candidate best, Candidate other) {
    const bool wins = other.value > best.value || (other.value == best.value && other.id < best.id);
    return wins ? other : best;
}

__device__ __forceinline__ Candidate argmax_warp(Candidate best) {
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2) {
        const Candidate other = {warp_shuffle_xor(best.value, mask),
                                 warp_shuffle_xor(best.id, mask)};
        best = argmax_better(best, other);
    }
    return best;
}

/* The block's best, known to its first warp. `scratch`: one candidate per warp. */
template <int kThreads>
__device__ __forceinline__ Candidate argmax_block(Candidate best, u32x2 *scratch) {
    best = argmax_warp(best);
    if (lane_id() == 0)
        shared_store(scratch + warp_id(), argmax_pack(best));
    block_sync();
    if (warp_id() != 0)
        return best;
    return argmax_warp(lane_id() < kThreads / 32 ? argmax_unpack(shared_load(scratch + lane_id()))
                                                 : argmax_nobody());
}

/* The block's share of a row, four neighbours at a time. */
template <class C>
__device__ __forceinline__ Candidate argmax_scan(const float *row) {
    constexpr int kQuads = C::kVocab / 4;
    Candidate best = argmax_nobody();
    for (int i = static_cast<int>(block_id()) * C::kThreads + static_cast<int>(thread_id());
         i < kQuads; i += C::kBlocks * C::kThreads) {
        const f32x4 v = *reinterpret_cast<const f32x4 *>(row + i * 4);
        const u32 id = static_cast<u32>(i) * 4;
        best = argmax_better(best, {v.x, id});
        best = argmax_better(best, {v.y, id + 1});
        best = argmax_better(best, {v.z, id + 2});
        best = argmax_better(best, {v.w, id + 3});
    }
    return best;
}

/* Leaves the candidate for the row's last block; true in that one, whose warp may then read all of
 * them. The counter is zero again when the launch ends. */
__device__ __forceinline__ bool argmax_last(Candidate best, u32x2 *to, u32 *counter, u32 blocks) {
    u32 arrived = 0;
    if (lane_id() == 0) {
        gpu_store(to, argmax_pack(best));
        gpu_fence(); /* keep: else a block may be counted before its candidate lands */
        arrived = gpu_atomic_add(counter, 1u);
        gpu_fence(); /* keep: no load below may run ahead of the arrivals */
        if (arrived == blocks - 1)
            gpu_store(counter, 0u);
    }
    const bool last = warp_shuffle(arrived, 0u) == blocks - 1;
    warp_sync(); /* keep: the other lanes' loads come after lane 0's fence; on the host a shuffle is
                    such a point too */
    return last;
}

/* The best of the whole row: true in the first warp of one block, which then knows it. `scratch`: a
 * candidate per warp. */
template <class C>
__device__ __forceinline__ bool argmax_row(const float *logits, u32 *candidates, u32 *counters,
                                           u32x2 *scratch, Candidate *best) {
    static_assert(C::kThreads % 32 == 0 && C::kBlocks <= 32,
                  "the last block's first warp takes a candidate per lane");
    const u32 row = block_id_y();
    *best = argmax_scan<C>(logits + static_cast<long long>(row) * C::kVocab);
    *best = argmax_block<C::kThreads>(*best, scratch);
    if (warp_id() != 0)
        return false;
    if constexpr (C::kBlocks > 1) {
        u32x2 *const found = reinterpret_cast<u32x2 *>(candidates) + row * C::kBlocks;
        if (!argmax_last(*best, found + block_id(), counters + row, C::kBlocks))
            return false;
        *best = argmax_warp(lane_id() < C::kBlocks ? argmax_unpack(gpu_load(found + lane_id()))
                                                   : argmax_nobody());
    }
    return true;
}

#endif
