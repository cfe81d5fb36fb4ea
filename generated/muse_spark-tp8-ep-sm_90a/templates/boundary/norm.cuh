/* SPDX-License-Identifier: Apache-2.0
 * x = r16(rms(s) * (center + gain)). One block per row; the row stays in registers between the two
 * passes. */
#ifndef LATHE_BOUNDARY_NORM_CUH
#define LATHE_BOUNDARY_NORM_CUH

#include "boundary/row.cuh"

template <class C>
__device__ void norm(const float *s, const bf16 *gain, bf16 *x) {
    using Shape = RowShape<C::kHidden, C::kThreads>;
    static_assert(C::kRows > 0, "one block per row");
    float *const scratch = reinterpret_cast<float *>(dynamic_shared());
    const long long row = static_cast<long long>(block_id()) * C::kHidden;

    u32x4 weight[Shape::kPerThread];
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++)
        if (row_has<Shape>(row_octet<C::kThreads>(i)))
            weight[i] = load_weight16(gain + row_octet<C::kThreads>(i) * 8);
    grid_trigger();
    grid_wait();

    Octet value[Shape::kPerThread];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++)
        if (row_has<Shape>(row_octet<C::kThreads>(i))) {
            value[i] = octet_load(s + row + row_octet<C::kThreads>(i) * 8);
            squares += octet_square_sum(value[i]);
        }
    const float mean = row_sum<C::kThreads>(squares, scratch) / static_cast<float>(C::kHidden);
    const float scale = rsqrt_f32(mean + static_cast<float>(C::kEps));

#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++)
        if (row_has<Shape>(row_octet<C::kThreads>(i))) {
            const Octet w = octet_of_bf16(weight[i]);
            Octet out;
#pragma unroll
            for (int j = 0; j < 8; j++)
                out.v[j] = value[i].v[j] * scale * (w.v[j] + static_cast<float>(C::kCenter));
            octet_store_bf16(x + row + row_octet<C::kThreads>(i) * 8, octet_to_bf16(out));
        }
}

#endif
