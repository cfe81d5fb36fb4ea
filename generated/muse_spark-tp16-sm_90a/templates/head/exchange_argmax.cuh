/* SPDX-License-Identifier: Apache-2.0
 * token[row] = the lowest id among the greatest logits of a row whose vocabulary lies over the
 * ranks, kVocab apiece in the order of ranks. The block that knows this rank's best of a row pushes
 * it to every rank and picks among what all ranks pushed; a lane serves a rank. */
#ifndef LATHE_HEAD_EXCHANGE_ARGMAX_CUH
#define LATHE_HEAD_EXCHANGE_ARGMAX_CUH

#include "collective/lamport.cuh"
#include "head/candidate.cuh"

constexpr u32 kNobodySent =
    0x7fffffffu; /* kNobody as a packet holds it: not the word of an empty one */

/* A candidate with its id in the whole vocabulary. A value that beat another is no NaN, so no word
 * is that of an empty packet. */
__device__ __forceinline__ u32x4 argmax_packet(Candidate best, u32 first) {
    return {float_bits(best.value), best.id == kNobody ? kNobodySent : best.id + first, 0, 0};
}

__device__ __forceinline__ Candidate argmax_of_packet(u32x4 packet) {
    return {bits_float(packet.x), packet.y == kNobodySent ? kNobody : packet.y};
}

/* The best over the ranks, in every lane of the warp that calls. */
__device__ __forceinline__ Candidate argmax_exchange(const Exchange &e, u32 epoch, u32 row,
                                                     u32x4 own) {
    const u32 lane = lane_id();
    Candidate best = argmax_nobody();
    if (lane < e.world) {
        const u64 offset = static_cast<u64>(row) * 16;
        peer_store16(lamport_slot(e, lane, e.rank, epoch) + offset, own);
        u32x4 packet[1];
        lamport_receive<1>(e, epoch, offset, lane, 1, packet);
        best = argmax_of_packet(packet[0]);
    }
    return argmax_warp(best);
}

template <class C>
__device__ void exchange_argmax(const float *logits, u32 *candidates, u32 *counters, int *token,
                                Mailbox *mailbox) {
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    grid_trigger();
    grid_wait();

    Candidate best;
    u32x2 *const scratch = reinterpret_cast<u32x2 *>(dynamic_shared() + 128);
    if (!argmax_row<C>(logits, candidates, counters, scratch, &best))
        return;
    const u32 row = block_id_y(), epoch = lamport_epoch(e);
    best = argmax_exchange(e, epoch, row, argmax_packet(best, e.rank * C::kVocab));
    if (lane_id() != 0)
        return;
    token[row] = best.id == kNobody ? 0 : static_cast<int>(best.id);
    lamport_close(e, epoch, C::kRows); /* of the blocks that received */
}

#endif
