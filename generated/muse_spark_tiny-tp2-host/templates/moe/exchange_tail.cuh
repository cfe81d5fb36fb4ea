// SPDX-License-Identifier: Apache-2.0
// Tail of experts that lie whole on different ranks: norm and weighted sum of the routes this rank
// has, rounded to bf16, then summed over the ranks by mailbox, ranks ascending: fp32 from +0,
// rounded once, or (kBf16Each) rounded after every addition. One block a token; a piece of eight
// values is one packet. A rank without routes pushes zeros and waits for nobody but the packets.
#ifndef LATHE_MOE_EXCHANGE_TAIL_CUH
#define LATHE_MOE_EXCHANGE_TAIL_CUH

#include "collective/lamport.cuh"
#include "moe/tail_rows.cuh"
#include "prims.cuh"

// Sum over the ranks of the packets at `offset`, kGroup ranks under way together.
template <int kGroup, bool kBf16Each>
__device__ __forceinline__ u32x4 exchange_tail_sum(const Exchange &e, u32 epoch, u64 offset) {
    float sum[8] = {};
    for (u32 first = 0; first < e.world; first += kGroup) {
        u32x4 packet[kGroup];
        const u32 count = e.world - first < kGroup ? e.world - first : kGroup;
        lamport_receive<kGroup>(e, epoch, offset, first, count, packet);
#pragma unroll
        for (u32 i = 0; i < kGroup; ++i)
            if (i < count)
                tail_add<kBf16Each>(sum, packet[i], first + i);
    }
    return tail_pack(sum);
}

template <class C>
__device__ void exchange_tail(const bf16 *rows, const int *expanded_to_permuted, const bf16 *gain,
                              const float *weights, bf16 *m, Mailbox *mailbox) {
    constexpr int kHeld = TailShape<C>::kHeld;
    const u32 token = block_id();

    u32x4 held_gain[kHeld];
    tail_gains<C, kHeld>(held_gain, gain);
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    grid_trigger();
    grid_wait();

    const u32 epoch = lamport_epoch(e);
    int row[C::kTopK];
    u32x4 held[C::kTopK][kHeld];
    float factor[C::kTopK];
    tail_routes<C>(row, expanded_to_permuted, token);
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
#pragma unroll
        for (int h = 0; h < kHeld; ++h)
            held[k][h] = tail_load<C>(rows, row[k], tail_piece<C>(h));
    }
    tail_factors<C, kHeld>(factor, held, held_gain, row, weights, token,
                           reinterpret_cast<float *>(dynamic_shared() + 128));
    const u64 first = u64(token) * C::kWidth;
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
        if (tail_piece<C>(h) < TailShape<C>::kPieces)
            lamport_push(e, epoch, (first + tail_piece<C>(h) * 8) * 2,
                         lamport_bf16_packet(tail_weighted<C, kHeld>(factor, held, held_gain, h)));
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
        if (tail_piece<C>(h) < TailShape<C>::kPieces)
            *reinterpret_cast<u32x4 *>(m + first + tail_piece<C>(h) * 8) =
                exchange_tail_sum<C::kGroup, C::kBf16Each == 1>(e, epoch,
                                                                (first + tail_piece<C>(h) * 8) * 2);
    if (thread_id() == 0) // behind the barrier of the sums: every thread has read the epoch
        lamport_close(e, epoch, grid_size());
}

#endif
