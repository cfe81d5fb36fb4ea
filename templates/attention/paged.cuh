// SPDX-License-Identifier: Apache-2.0
// Attention of a verify step over the paged cache, then o-norm and gate; queries and gate are
// tensors, and the step's own keys stand in the cache already.
#ifndef LATHE_ATTENTION_PAGED_CUH
#define LATHE_ATTENTION_PAGED_CUH

#include "attention/paged_block.cuh"

template <class C>
struct PagedTensors {
    const bf16 *q, *gate, *cache;
};

template <class C>
__device__ __forceinline__ void paged_row(u32 (&words)[C::kDim / 8], const PagedTensors<C> &from,
                                          int row, int head) {
    paged_load_row<C::kDim>(words, from.q + (row * C::kHeads + head) * C::kDim);
}

template <class C>
__device__ __forceinline__ u32x2 paged_gate(const PagedTensors<C> &from, int row, int head,
                                            int channel) {
    return *(const u32x2 *)(from.gate + (row * C::kHeads + head) * C::kDim + channel);
}

// The step's own keys stand in the cache like all others.
template <class C>
__device__ __forceinline__ int paged_old(const PagedTensors<C> &, int) {
    return kPagedUnit;
}

template <class C>
__device__ __forceinline__ void paged_renew(u8 *, const PagedTensors<C> &, int, int, bool, int, int,
                                            int) {}

template <class C>
__device__ void paged_attention(const bf16 *q, const bf16 *cache, const int *block_tables,
                                const int *seq_lens, const bf16 *gate, bf16 *y, float *partial_o,
                                float *partial_sums, u32 *counters) {
    paged_check<C>();
    paged_meet<C>();
    grid_trigger();
    grid_wait();

    const PagedWork work = paged_divide<C>(seq_lens);
    const int *const table = block_tables + (i64)work.request * C::kTableWidth;
    const PagedTensors<C> from = {q, gate, cache};
    PagedWalk walk;
    paged_set_out<C>(walk, work, from, table);
    paged_block<C>(work, walk, from, table, y, partial_o, partial_sums, counters);
}

#endif
