/* SPDX-License-Identifier: Apache-2.0
 * s = fp32(r16(rms(table[token]))) on one rank, one block per row. */
#ifndef LATHE_EMBEDDING_EMBED_CUH
#define LATHE_EMBEDDING_EMBED_CUH

#include "embedding/row.cuh"

template <class C>
__device__ void embed(const int *tokens, const bf16 *table, int *faults, float *s) {
    using Shape = RowShape<C::kHidden, C::kThreads>;
    static_assert(C::kRows > 0, "one block per row");
    float *const scratch = reinterpret_cast<float *>(dynamic_shared());
    grid_trigger();
    grid_wait();

    const int token = tokens[block_id()];
    const bool valid = token >= 0 && token < C::kVocab;
    if (!valid && thread_id() == 0)
        gpu_atomic_or(reinterpret_cast<u32 *>(faults), 1u);
    const bf16 *const from = table + (valid ? static_cast<long long>(token) * C::kHidden : 0);

    Octet value[Shape::kPerThread];
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++) {
        const int octet = row_octet<C::kThreads>(i);
        if (row_has<Shape>(octet))
            value[i] = octet_of_bf16(valid ? load_weight16(from + octet * 8) : u32x4{0, 0, 0, 0});
    }
    embed_finish<Shape, C::kHidden, C::kThreads>(
        value, static_cast<double>(C::kEps), s + static_cast<long long>(block_id()) * C::kHidden,
        scratch);
}

#endif
