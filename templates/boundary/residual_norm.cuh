/* SPDX-License-Identifier: Apache-2.0
 * Gated residual and the next norm where no rank waits for another: nothing to sum but slices of k,
 * nothing to gather but columns that a library laid out rank after rank. One block per row. */
#ifndef LATHE_BOUNDARY_RESIDUAL_NORM_CUH
#define LATHE_BOUNDARY_RESIDUAL_NORM_CUH

#include "boundary/residual.cuh"

/* Element of the gathered branch, [kRanks][kRows][kColumns], at which the row's octet starts. */
template <class C>
__device__ __forceinline__ long long residual_gathered(int octet) {
    static_assert(C::kColumns % 8 == 0 &&
                      (C::kColumns == 0 || C::kRanks * C::kColumns == C::kHidden),
                  "the ranks' columns must make the width");
    constexpr int kRowPackets = C::kColumns == 0 ? 1 : C::kColumns / 8;
    const long long row = octet / kRowPackets * C::kRows + static_cast<int>(block_id());
    return row * C::kColumns + octet % kRowPackets * 8;
}

template <class C>
__device__ void residual_norm(const bf16 *branch, const float *branch_partials,
                              const bf16 *branch_columns, const float *s, const float *alpha,
                              const float *beta, const bf16 *branch_gain, const bf16 *gain,
                              float *s_out, float *aux, bf16 *x) {
    using R = Residual<C::kHidden, C::kThreads, C::kHasBranchGain == 1, C::kBranchCenter,
                       C::kCenter, C::kHasAux == 1>;
    float *const scratch = reinterpret_cast<float *>(dynamic_shared());
    const long long row = static_cast<long long>(block_id()) * C::kHidden;
    constexpr long long kSlice = static_cast<long long>(C::kRows) * C::kHidden;

    ResidualWeights<R> weights;
    residual_weights<R>(weights, alpha, beta, branch_gain, gain);
    grid_trigger();
    grid_wait();

    Octet stream[R::Row::kPerThread];
    residual_stream<R>(stream, s + row);
    u32x4 values[R::Row::kPerThread];
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        const int octet = row_octet<C::kThreads>(i);
        if (!row_has<typename R::Row>(octet))
            continue;
        if constexpr (C::kColumns > 0)
            values[i] = octet_load_bf16(branch_columns + residual_gathered<C>(octet));
        else
            values[i] =
                residual_branch<C::kSplits>(branch, branch_partials, row + octet * 8, kSlice);
    }
    residual_finish<R>(values, weights, stream, s_out + row, C::kHasAux == 1 ? aux + row : aux,
                       x + row, static_cast<float>(C::kBranchEps), static_cast<float>(C::kEps),
                       scratch);
}

#endif
