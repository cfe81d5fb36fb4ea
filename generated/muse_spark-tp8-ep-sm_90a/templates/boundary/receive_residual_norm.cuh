/* SPDX-License-Identifier: Apache-2.0
 * Gated residual and the next norm behind a branch that every rank published in its product's
 * launch: nothing to push, only to poll. One mailbox is bound: that of the ranks' columns, or that
 * of their partial sums. kBlocks blocks a row. */
#ifndef LATHE_BOUNDARY_RECEIVE_RESIDUAL_NORM_CUH
#define LATHE_BOUNDARY_RECEIVE_RESIDUAL_NORM_CUH

#include "boundary/exchange.cuh"
#include "boundary/residual.cuh"

template <class C>
__device__ void receive_residual_norm(Mailbox *columns, Mailbox *parts, const float *s,
                                      const float *alpha, const float *beta,
                                      const bf16 *branch_gain, const bf16 *gain, float *s_out,
                                      float *aux, bf16 *x) {
    using R = Residual<C::kHidden, C::kThreads, C::kBlocks, C::kHasBranchGain == 1,
                       C::kBranchCenter, C::kCenter, C::kHasAux == 1>;
    using Row = typename R::Row;
    static_assert(C::kRows > 0, "kBlocks blocks a row");
    constexpr int kColumns = C::kColumns == 0 ? C::kHidden : C::kColumns;
    u8 *const shared = dynamic_shared() + 128;
    const int number = row_number<Row>();
    const long long at =
        static_cast<long long>(number) * C::kHidden + row_part<Row>() * Row::kOctets * 8;

    ResidualWeights<R> weights;
    residual_weights<R>(weights, alpha, beta, branch_gain, gain);
    const Exchange e =
        lamport_open(C::kColumns == 0 ? parts : columns, reinterpret_cast<u64 *>(dynamic_shared()));
    row_open<Row>(shared);
    grid_trigger();
    grid_wait();

    const u32 epoch = lamport_epoch(e);
    Octet stream[Row::kPerThread];
    residual_stream<R>(stream, s + at);
    u32x4 values[Row::kPerThread];
    exchange_row<Row, C::kRanks, kColumns, C::kGroup, C::kBf16Each == 1>(values, nullptr, e, epoch,
                                                                         number);
    /* keep: every thread has read the epoch before the block arrives; else another row's block may
     * advance it, and the emulator works on one row after the other */
    block_sync();
    u32 arrived = 0;
    if (thread_id() == 0)
        arrived = lamport_arrive(e);
    residual_finish<R>(values, weights, stream, s_out + at, C::kHasAux == 1 ? aux + at : aux,
                       x + at, static_cast<float>(C::kBranchEps), static_cast<float>(C::kEps),
                       shared);
    if (thread_id() == 0)
        lamport_leave(e, epoch, arrived, grid_size());
}

#endif
