/* SPDX-License-Identifier: Apache-2.0
 * partial = the token's row where this rank's shard of the table has it, else zero. One block per
 * row. */
#ifndef LATHE_EMBEDDING_LOOKUP_CUH
#define LATHE_EMBEDDING_LOOKUP_CUH

#include "embedding/row.cuh"

template <class C>
__device__ void lookup(const int *tokens, const bf16 *table, const int *rank, int *faults,
                       bf16 *partial) {
    using Shape = RowShape<C::kHidden, C::kThreads>;
    static_assert(C::kRows > 0, "one block per row");
    grid_trigger();
    grid_wait();

    const int row = embed_shard_row<C::kVocab>(tokens[block_id()], static_cast<u32>(rank[0]),
                                               static_cast<u32>(rank[1]), faults);
    const bf16 *const from = table + (row >= 0 ? static_cast<long long>(row) * C::kHidden : 0);
    bf16 *const to = partial + static_cast<long long>(block_id()) * C::kHidden;
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++) {
        const int octet = row_octet<C::kThreads>(i);
        if (row_has<Shape>(octet))
            octet_store_bf16(to + octet * 8,
                             row >= 0 ? load_weight16(from + octet * 8) : u32x4{0, 0, 0, 0});
    }
}

#endif
