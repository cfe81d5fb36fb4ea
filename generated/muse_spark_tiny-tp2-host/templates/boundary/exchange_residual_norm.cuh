/* SPDX-License-Identifier: Apache-2.0
 * Gated residual and the next norm behind an exchange: every rank pushes its branch to every rank,
 * then either sums the branches of all (kColumns is the whole width) or gathers their columns. All
 * ranks hold the same bits. One block per row. */
#ifndef LATHE_BOUNDARY_EXCHANGE_RESIDUAL_NORM_CUH
#define LATHE_BOUNDARY_EXCHANGE_RESIDUAL_NORM_CUH

#include "boundary/exchange.cuh"
#include "boundary/residual.cuh"

template <class C>
__device__ void exchange_residual_norm(const bf16 *branch, const float *branch_partials,
                                       const float *s, const float *alpha, const float *beta,
                                       const bf16 *branch_gain, const bf16 *gain, float *s_out,
                                       float *aux, bf16 *x, Mailbox *mailbox) {
    using R = Residual<C::kHidden, C::kThreads, C::kHasBranchGain == 1, C::kBranchCenter,
                       C::kCenter, C::kHasAux == 1>;
    constexpr int kRowPackets = C::kColumns / 8;
    constexpr int kOwn = (kRowPackets + C::kThreads - 1) / C::kThreads;
    constexpr long long kSlice = static_cast<long long>(C::kRows) * C::kColumns;
    float *const scratch = reinterpret_cast<float *>(dynamic_shared() + 128);
    const long long row = static_cast<long long>(block_id()) * C::kHidden;
    const long long branch_row = static_cast<long long>(block_id()) * C::kColumns;

    ResidualWeights<R> weights;
    residual_weights<R>(weights, alpha, beta, branch_gain, gain);
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    grid_trigger();
    grid_wait();

    Octet stream[R::Row::kPerThread];
    residual_stream<R>(stream, s + row);
    /* before the epoch is asked for, so that all loads are under way together */
    u32x4 own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
        const int packet = row_octet<C::kThreads>(i);
        if (packet < kRowPackets)
            own[i] = residual_branch<C::kSplits>(branch, branch_partials, branch_row + packet * 8,
                                                 kSlice);
    }
    const u32 epoch = lamport_epoch(e);
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
        const int packet = row_octet<C::kThreads>(i);
        if (packet < kRowPackets)
            lamport_push(e, epoch, static_cast<u64>(branch_row + packet * 8) * 2,
                         lamport_bf16_packet(own[i]));
    }
    u32x4 values[R::Row::kPerThread];
    exchange_row<typename R::Row, C::kHidden, C::kThreads, C::kColumns, C::kGroup,
                 C::kBf16Each == 1>(values, e, epoch, block_id());
    block_sync(); /* every thread has read the epoch before the block arrives */
    if (thread_id() == 0)
        lamport_close(e, epoch, grid_size());
    residual_finish<R>(values, weights, stream, s_out + row, C::kHasAux == 1 ? aux + row : aux,
                       x + row, static_cast<float>(C::kBranchEps), static_cast<float>(C::kEps),
                       scratch);
}

#endif
