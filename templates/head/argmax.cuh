/* SPDX-License-Identifier: Apache-2.0
 * token[row] = the lowest id among the greatest logits of a row. */
#ifndef LATHE_HEAD_ARGMAX_CUH
#define LATHE_HEAD_ARGMAX_CUH

#include "head/candidate.cuh"

template <class C>
__device__ void argmax(const float *logits, u32 *candidates, u32 *counters, int *token) {
    static_assert(C::kRows > 0, "blocks along y are rows");
    grid_trigger();
    grid_wait();

    Candidate best;
    u32x2 *const scratch = reinterpret_cast<u32x2 *>(dynamic_shared());
    if (!argmax_row<C>(logits, candidates, counters, scratch, &best))
        return;
    if (lane_id() == 0)
        token[block_id_y()] = best.id == kNobody ? 0 : static_cast<int>(best.id);
}

#endif
