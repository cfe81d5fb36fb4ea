/* SPDX-License-Identifier: Apache-2.0
 * Gated residual and the next norm behind an exchange: every rank pushes its branch to every rank,
 * then either sums the branches of all (kColumns is the whole width) or gathers their columns. The
 * sum is fp32 from +0, ranks ascending, and rounded to bf16 once, so all ranks hold the same bits.
 * One block per row; an octet of the branch is one packet. */
#ifndef LATHE_BOUNDARY_EXCHANGE_RESIDUAL_NORM_CUH
#define LATHE_BOUNDARY_EXCHANGE_RESIDUAL_NORM_CUH

#include "boundary/residual.cuh"
#include "collective/lamport.cuh"

/* Sum over the ranks of one octet, kGroup ranks under way together. */
template <int kGroup>
__device__ __forceinline__ u32x4 exchange_sum(const Exchange &e, u32 epoch, u64 offset) {
    Octet sum = {};
    for (u32 first = 0; first < e.world; first += kGroup) {
        u32x4 packet[kGroup];
        const u32 count = e.world - first < kGroup ? e.world - first : kGroup;
        lamport_receive<kGroup>(e, epoch, offset, first, count, packet);
#pragma unroll
        for (u32 i = 0; i < kGroup; i++) {
            if (i >= count)
                continue;
            const Octet part = octet_of_bf16(packet[i]);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum.v[j] += part.v[j];
        }
    }
    return octet_to_bf16(sum);
}

template <class C>
__device__ void exchange_residual_norm(const bf16 *branch, const float *branch_partials,
                                       const float *s, const float *alpha, const float *beta,
                                       const bf16 *branch_gain, const bf16 *gain, float *s_out,
                                       float *aux, bf16 *x, Mailbox *mailbox) {
    using R = Residual<C::kHidden, C::kThreads, C::kHasBranchGain == 1, C::kBranchCenter,
                       C::kCenter, C::kHasAux == 1>;
    static_assert(C::kHidden % C::kColumns == 0 && C::kColumns % 8 == 0,
                  "a rank's columns must be whole packets");
    constexpr int kRowPackets = C::kColumns / 8;
    constexpr long long kSlice = static_cast<long long>(C::kRows) * C::kColumns;
    float *const scratch = reinterpret_cast<float *>(dynamic_shared() + 128);
    const long long row = static_cast<long long>(block_id()) * C::kHidden;
    const long long branch_row = static_cast<long long>(block_id()) * C::kColumns;

    ResidualWeights<R> weights;
    residual_weights<R>(weights, alpha, beta, branch_gain, gain);
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    grid_trigger();
    grid_wait();

    const u32 epoch = lamport_epoch(e);
    for (int i = static_cast<int>(thread_id()); i < kRowPackets; i += C::kThreads) {
        const u32x4 own =
            residual_branch<C::kSplits>(branch, branch_partials, branch_row + i * 8, kSlice);
        lamport_push(e, epoch, static_cast<u64>(branch_row + i * 8) * 2, lamport_bf16_packet(own));
    }
    u32x4 values[R::Row::kPerThread];
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        const int octet = row_octet<C::kThreads>(i);
        if (!row_has<typename R::Row>(octet))
            continue;
        if constexpr (C::kColumns == C::kHidden) {
            values[i] =
                exchange_sum<C::kGroup>(e, epoch, static_cast<u64>(branch_row + octet * 8) * 2);
        } else {
            const u64 offset = static_cast<u64>(branch_row + octet % kRowPackets * 8) * 2;
            u32x4 packet[1];
            lamport_receive<1>(e, epoch, offset, static_cast<u32>(octet / kRowPackets), 1, packet);
            values[i] = packet[0];
        }
    }
    block_sync(); /* every thread has read the epoch before the block arrives */
    if (thread_id() == 0)
        lamport_close(e, epoch, grid_size());
    residual_finish<R>(values, weights, s + row, s_out + row, C::kHasAux == 1 ? aux + row : aux,
                       x + row, static_cast<float>(C::kBranchEps), static_cast<float>(C::kEps),
                       scratch);
}

#endif
