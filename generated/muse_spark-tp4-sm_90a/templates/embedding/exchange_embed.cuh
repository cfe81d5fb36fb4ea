/* SPDX-License-Identifier: Apache-2.0
 * The embedded stream where each rank holds kVocab rows of the table, in the order of ranks: every
 * rank pushes the rows of its own tokens and zeros for the others, and sums what all pushed: fp32
 * from +0, ranks ascending. Zeros are pushed too: what a rank may push next rests on its having
 * heard from every peer (collective/lamport.cuh). One block per row. */
#ifndef LATHE_EMBEDDING_EXCHANGE_EMBED_CUH
#define LATHE_EMBEDDING_EXCHANGE_EMBED_CUH

#include "boundary/exchange.cuh"
#include "embedding/row.cuh"

template <class C>
__device__ void exchange_embed(const int *tokens, const bf16 *table, int *faults, float *s,
                               Mailbox *mailbox) {
    using Shape = RowShape<C::kHidden, C::kThreads>;
    static_assert(C::kRows > 0, "one block per row");
    float *const scratch = reinterpret_cast<float *>(dynamic_shared() + 128);
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    grid_trigger();
    grid_wait();

    const u32 epoch = lamport_epoch(e);
    const int row = embed_shard_row<C::kVocab>(tokens[block_id()], e.rank, e.world, faults);
    const bf16 *const from = table + (row >= 0 ? static_cast<long long>(row) * C::kHidden : 0);
    const u64 start = static_cast<u64>(block_id()) * C::kHidden * 2;
    for (int octet = static_cast<int>(thread_id()); octet < Shape::kOctets; octet += C::kThreads) {
        const u32x4 own = row >= 0 ? load_weight16(from + octet * 8) : u32x4{0, 0, 0, 0};
        lamport_push(e, epoch, start + static_cast<u64>(octet) * 16, lamport_bf16_packet(own));
    }
    u32x4 sums[Shape::kPerThread];
    exchange_row<Shape, C::kRanks, C::kHidden, C::kGroup, false>(sums, nullptr, e, epoch,
                                                                 static_cast<int>(block_id()));
    block_sync(); /* every thread has read the epoch before the block arrives */
    if (thread_id() == 0)
        lamport_close(e, epoch, grid_size());

    Octet value[Shape::kPerThread];
#pragma unroll
    for (int i = 0; i < Shape::kPerThread; i++)
        if (row_has<Shape>(row_octet<C::kThreads>(i)))
            value[i] = octet_of_bf16(sums[i]);
    embed_finish<Shape, C::kHidden, C::kThreads>(
        value, static_cast<double>(C::kEps), s + static_cast<long long>(block_id()) * C::kHidden,
        scratch);
}

#endif
