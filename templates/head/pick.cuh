/* SPDX-License-Identifier: Apache-2.0
 * token[row] = the id of the best among the ranks' candidates; a warp a row, a lane a rank. */
#ifndef LATHE_HEAD_PICK_CUH
#define LATHE_HEAD_PICK_CUH

#include "head/candidate.cuh"

template <class C>
__device__ void pick(const int *best, int *token) {
    static_assert(C::kRanks <= 32 && C::kRows > 0, "a lane a rank");
    const u32 lane = lane_id(), row = block_id();
    grid_trigger();
    grid_wait();

    Candidate found = argmax_nobody();
    if (lane < C::kRanks) {
        found = argmax_unpack(reinterpret_cast<const u32x2 *>(best)[lane * C::kRows + row]);
        if (found.id != kNobody)
            found.id += lane * C::kVocab;
    }
    found = argmax_warp(found);
    if (lane == 0)
        token[row] = found.id == kNobody ? 0 : static_cast<int>(found.id);
}

#endif
