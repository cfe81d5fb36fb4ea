/* SPDX-License-Identifier: Apache-2.0
 * best[row] = the greatest logit of a row of this rank, as bits, and its lowest id. */
#ifndef LATHE_HEAD_BEST_CUH
#define LATHE_HEAD_BEST_CUH

#include "head/candidate.cuh"

template <class C>
__device__ void best_of_rank(const float *logits, u32 *candidates, u32 *counters, int *best) {
    static_assert(C::kRows > 0, "blocks along y are rows");
    grid_trigger();
    grid_wait();

    Candidate found;
    u32x2 *const scratch = reinterpret_cast<u32x2 *>(dynamic_shared());
    if (!argmax_row<C>(logits, candidates, counters, scratch, &found))
        return;
    if (lane_id() == 0)
        reinterpret_cast<u32x2 *>(best)[block_id_y()] = argmax_pack(found);
}

#endif
