/* SPDX-License-Identifier: Apache-2.0
 * Gated residual and the next norm behind an exchange: every rank pushes its branch to every rank,
 * then either sums the branches of all (kColumns is the whole width) or gathers their columns. All
 * ranks hold the same bits. kBlocks blocks a row. */
#ifndef LATHE_BOUNDARY_EXCHANGE_RESIDUAL_NORM_CUH
#define LATHE_BOUNDARY_EXCHANGE_RESIDUAL_NORM_CUH

#include "boundary/exchange.cuh"
#include "boundary/residual.cuh"

template <class C>
__device__ void exchange_residual_norm(const bf16 *branch, const float *branch_partials,
                                       const float *s, const float *alpha, const float *beta,
                                       const bf16 *branch_gain, const bf16 *gain, float *s_out,
                                       float *aux, bf16 *x, Mailbox *mailbox) {
    using R = Residual<C::kHidden, C::kThreads, C::kBlocks, C::kHasBranchGain == 1,
                       C::kBranchCenter, C::kCenter, C::kHasAux == 1>;
    using Row = typename R::Row;
    constexpr bool kSum = C::kColumns == C::kHidden;
    constexpr int kRowPackets = C::kColumns / 8;
    /* Of the row's packets that this rank sends, those that fall to a block, and to a thread. */
    constexpr int kShare = (kRowPackets + C::kBlocks - 1) / C::kBlocks;
    constexpr int kOwn = (kShare + C::kThreads - 1) / C::kThreads;
    constexpr long long kSlice = static_cast<long long>(C::kRows) * C::kColumns;
    u8 *const shared = dynamic_shared() + 128;
    const int number = row_number<Row>(), part = row_part<Row>();
    const long long at = static_cast<long long>(number) * C::kHidden + part * Row::kOctets * 8;
    const long long branch_at = static_cast<long long>(number) * C::kColumns + part * kShare * 8;
    constexpr bool kEven = kShare * C::kBlocks == kRowPackets && kShare % C::kThreads == 0;
    const int most = kRowPackets - part * kShare < kShare ? kRowPackets - part * kShare : kShare;

    ResidualWeights<R> weights;
    residual_weights<R>(weights, alpha, beta, branch_gain, gain);
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    row_open<Row>(shared);
    grid_trigger();
    grid_wait();

    /* before the epoch is asked for, so that all loads are under way together */
    u32x4 own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
        const int packet = row_octet<C::kThreads>(i);
        if (kEven || packet < most)
            own[i] = residual_branch<C::kSplits>(branch, branch_partials, branch_at + packet * 8,
                                                 kSlice);
    }
    const u32 epoch = lamport_epoch(e);
    Octet stream[Row::kPerThread];
    residual_stream<R>(stream, s + at);
#pragma unroll
    for (int i = 0; i < kOwn; i++) {
        const int packet = row_octet<C::kThreads>(i);
        if (!kEven && packet >= most)
            continue;
        const u64 offset = static_cast<u64>(branch_at + packet * 8) * 2;
        own[i] = lamport_bf16_packet(own[i]);
        if constexpr (kSum)
            lamport_push_others<C::kRanks>(e, epoch, offset, own[i]);
        else
            lamport_push(e, epoch, offset, own[i]);
    }
    block_sync(); /* every thread has read the epoch before the block arrives */
    u32 arrived = 0;
    if (thread_id() == 0)
        arrived = lamport_arrive(e);
    u32x4 values[Row::kPerThread];
    exchange_row<Row, C::kRanks, C::kColumns, C::kGroup, C::kBf16Each == 1>(
        values, kSum ? own : nullptr, e, epoch, number);
    residual_finish<R>(values, weights, stream, s_out + at, C::kHasAux == 1 ? aux + at : aux,
                       x + at, static_cast<float>(C::kBranchEps), static_cast<float>(C::kEps),
                       shared);
    if (thread_id() == 0)
        lamport_leave(e, epoch, arrived, grid_size());
}

#endif
