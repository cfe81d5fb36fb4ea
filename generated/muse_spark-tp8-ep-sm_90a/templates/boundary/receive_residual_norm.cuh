/* SPDX-License-Identifier: Apache-2.0
 * Gated residual and the next norm behind a branch that every rank published in its product's
 * launch: nothing to push, only to poll. One mailbox is bound: that of the ranks' columns, or that
 * of their partial sums. One block per row. */
#ifndef LATHE_BOUNDARY_RECEIVE_RESIDUAL_NORM_CUH
#define LATHE_BOUNDARY_RECEIVE_RESIDUAL_NORM_CUH

#include "boundary/exchange.cuh"
#include "boundary/residual.cuh"

template <class C>
__device__ void receive_residual_norm(Mailbox *columns, Mailbox *parts, const float *s,
                                      const float *alpha, const float *beta,
                                      const bf16 *branch_gain, const bf16 *gain, float *s_out,
                                      float *aux, bf16 *x) {
    using R = Residual<C::kHidden, C::kThreads, C::kHasBranchGain == 1, C::kBranchCenter,
                       C::kCenter, C::kHasAux == 1>;
    static_assert(C::kRows > 0, "one block per row");
    constexpr int kColumns = C::kColumns == 0 ? C::kHidden : C::kColumns;
    float *const scratch = reinterpret_cast<float *>(dynamic_shared() + 128);
    const long long row = static_cast<long long>(block_id()) * C::kHidden;

    ResidualWeights<R> weights;
    residual_weights<R>(weights, alpha, beta, branch_gain, gain);
    const Exchange e =
        lamport_open(C::kColumns == 0 ? parts : columns, reinterpret_cast<u64 *>(dynamic_shared()));
    grid_trigger();
    grid_wait();

    Octet stream[R::Row::kPerThread];
    residual_stream<R>(stream, s + row);
    const u32 epoch = lamport_epoch(e);
    u32x4 values[R::Row::kPerThread];
    exchange_row<typename R::Row, C::kHidden, C::kThreads, kColumns, C::kGroup, C::kBf16Each == 1>(
        values, e, epoch, block_id());
    block_sync(); /* every thread has read the epoch before the block arrives */
    if (thread_id() == 0)
        lamport_close(e, epoch, grid_size());
    residual_finish<R>(values, weights, stream, s_out + row, C::kHasAux == 1 ? aux + row : aux,
                       x + row, static_cast<float>(C::kBranchEps), static_cast<float>(C::kEps),
                       scratch);
}

#endif
