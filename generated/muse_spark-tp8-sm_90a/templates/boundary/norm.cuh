/* SPDX-License-Identifier: Apache-2.0
 * x = r16(rms(s) * (center + gain)). kBlocks blocks a row, which stays in registers between the two
 * passes. */
#ifndef LATHE_BOUNDARY_NORM_CUH
#define LATHE_BOUNDARY_NORM_CUH

#include "boundary/row.cuh"

template <class C>
__device__ void norm(const float *s, const bf16 *gain, bf16 *x) {
    using Shape = RowShape<C::kHidden, C::kThreads, C::kBlocks>;
    static_assert(C::kRows > 0, "kBlocks blocks a row");
    const int start = row_part<Shape>() * Shape::kOctets * 8;
    const long long at = static_cast<long long>(row_number<Shape>()) * C::kHidden + start;

    u32x4 weight[Shape::kPerThread];
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++)
        if (row_has<Shape>(row_octet<C::kThreads>(i)))
            weight[i] = load_weight16(gain + start + row_octet<C::kThreads>(i) * 8);
    row_open<Shape>(dynamic_shared());
    grid_trigger();
    grid_wait();

    Octet value[Shape::kPerThread];
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++)
        if (row_has<Shape>(row_octet<C::kThreads>(i))) {
            value[i] = octet_load(s + at + row_octet<C::kThreads>(i) * 8);
            sums[0] += octet_square_sum(value[i]);
        }
    row_sums<Shape>(sums, dynamic_shared(), 0);
    const float mean = sums[0] / static_cast<float>(C::kHidden);
    const float scale = rsqrt_f32(mean + static_cast<float>(C::kEps));

#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++)
        if (row_has<Shape>(row_octet<C::kThreads>(i))) {
            const Octet w = octet_of_bf16(weight[i]);
            Octet out;
#pragma unroll
            for (int j = 0; j < 8; j++)
                out.v[j] = value[i].v[j] * scale * (w.v[j] + static_cast<float>(C::kCenter));
            octet_store_bf16(x + at + row_octet<C::kThreads>(i) * 8, octet_to_bf16(out));
        }
}

#endif
