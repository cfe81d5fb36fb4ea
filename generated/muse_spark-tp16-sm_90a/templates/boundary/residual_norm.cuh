/* SPDX-License-Identifier: Apache-2.0
 * Gated residual and the next norm where no rank waits for another: nothing to sum but slices of k,
 * nothing to gather but columns that a library laid out rank after rank. kBlocks blocks a row. */
#ifndef LATHE_BOUNDARY_RESIDUAL_NORM_CUH
#define LATHE_BOUNDARY_RESIDUAL_NORM_CUH

#include "boundary/residual.cuh"

/* Element of the gathered branch, [kRanks][kRows][kColumns], at which octet `octet` of row `number`
 * starts. */
template <class C>
__device__ __forceinline__ long long residual_gathered(int number, int octet) {
    static_assert(C::kColumns % 8 == 0 &&
                      (C::kColumns == 0 || C::kRanks * C::kColumns == C::kHidden),
                  "the ranks' columns must make the width");
    constexpr int kRowPackets = C::kColumns == 0 ? 1 : C::kColumns / 8;
    const long long row = octet / kRowPackets * C::kRows + number;
    return row * C::kColumns + octet % kRowPackets * 8;
}

template <class C>
__device__ void residual_norm(const bf16 *branch, const float *branch_partials,
                              const bf16 *branch_columns, const float *s, const float *alpha,
                              const float *beta, const bf16 *branch_gain, const bf16 *gain,
                              float *s_out, float *aux, bf16 *x) {
    using R = Residual<C::kHidden, C::kThreads, C::kBlocks, C::kHasBranchGain == 1,
                       C::kBranchCenter, C::kCenter, C::kHasAux == 1>;
    const int number = row_number<typename R::Row>();
    const int first = row_part<typename R::Row>() * R::Row::kOctets;
    const long long at = static_cast<long long>(number) * C::kHidden + first * 8;
    constexpr long long kSlice = static_cast<long long>(C::kRows) * C::kHidden;

    ResidualWeights<R> weights;
    residual_weights<R>(weights, alpha, beta, branch_gain, gain);
    row_open<typename R::Row>(dynamic_shared());
    grid_trigger();
    grid_wait();

    u32x4 values[R::Row::kPerThread];
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        const int octet = row_octet<C::kThreads>(i);
        if (!row_has<typename R::Row>(octet))
            continue;
        if constexpr (C::kColumns > 0)
            values[i] =
                octet_load_bf16(branch_columns + residual_gathered<C>(number, first + octet));
        else
            values[i] =
                residual_branch<C::kSplits>(branch, branch_partials, at + octet * 8, kSlice);
    }
    Octet stream[R::Row::kPerThread];
    residual_stream<R>(stream, s + at);
    residual_finish<R>(values, weights, stream, s_out + at, C::kHasAux == 1 ? aux + at : aux,
                       x + at, static_cast<float>(C::kBranchEps), static_cast<float>(C::kEps),
                       dynamic_shared());
}

#endif
