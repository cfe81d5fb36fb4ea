/* SPDX-License-Identifier: Apache-2.0
 * s = fp32(r16(rms(e))), one block per row. */
#ifndef LATHE_EMBEDDING_NORM_CUH
#define LATHE_EMBEDDING_NORM_CUH

#include "embedding/row.cuh"

template <class C>
__device__ void embed_norm(const bf16 *e, float *s) {
    using Shape = RowShape<C::kHidden, C::kThreads>;
    static_assert(C::kRows > 0, "one block per row");
    float *const scratch = reinterpret_cast<float *>(dynamic_shared());
    const long long start = static_cast<long long>(block_id()) * C::kHidden;
    grid_trigger();
    grid_wait();

    Octet value[Shape::kPerThread];
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++) {
        const int octet = row_octet<C::kThreads>(i);
        if (row_has<Shape>(octet))
            value[i] = octet_of_bf16(octet_load_bf16(e + start + octet * 8));
    }
    embed_finish<Shape, C::kHidden, C::kThreads>(value, static_cast<double>(C::kEps), s + start,
                                                 scratch);
}

#endif
