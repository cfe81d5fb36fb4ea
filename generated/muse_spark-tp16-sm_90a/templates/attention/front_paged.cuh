// SPDX-License-Identifier: Apache-2.0
// From the QKV product to the gated output of attention in one launch: QK norm, RoPE where the
// layer has it, the new rows of the KV cache, attention over the paged cache, o-norm and gate.
//
// Every block norms and rotates the queries of its slice. The step's own keys and values are made
// anew from the product by every team whose chunk has them, so that no slice waits for another; the
// blocks of the first slice write them to the cache. What former steps left there depends on no
// launch of this one, so a team's first chunks are on their way before the product is there.
#ifndef LATHE_ATTENTION_FRONT_PAGED_CUH
#define LATHE_ATTENTION_FRONT_PAGED_CUH

#include "attention/front_row.cuh"
#include "attention/paged_block.cuh"

template <class C>
__device__ void front_paged(const bf16 *qkvg, const float *qkvg_partials,
                            const long long *positions, const float *rope, const long long *slots,
                            bf16 *cache, const int *block_tables, const int *seq_lens, bf16 *y,
                            float *partial_o, float *partial_sums, u32 *counters) {
    paged_check<C>();
    static_assert(C::kWidth == 2 * (C::kHeads + C::kKvHeads) * C::kDim, "qkvg is q, k, v, gate");
    const PagedWork work = paged_divide<C>(seq_lens);
    const int *const table = block_tables + (i64)work.request * C::kTableWidth;
    const PagedProduct<C> from = {qkvg, qkvg_partials, positions, rope, slots, cache};
    PagedWalk walk;
    paged_set_out<C>(walk, work, from, table);
    paged_meet<C>();
    grid_trigger();
    grid_wait();
    paged_block<C>(work, walk, from, table, y, partial_o, partial_sums, counters);
}

#endif
