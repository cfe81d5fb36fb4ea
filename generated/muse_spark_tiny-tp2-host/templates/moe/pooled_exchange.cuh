// SPDX-License-Identifier: Apache-2.0
// The pooled row of a block gathered over ranks: every rank pushes its own columns to all, then
// takes the columns of all, its own included, so that all ranks norm the same bits.
#ifndef LATHE_MOE_POOLED_EXCHANGE_CUH
#define LATHE_MOE_POOLED_EXCHANGE_CUH

#include "collective/lamport.cuh"
#include "moe/pooled.cuh"
#include "prims.cuh"

constexpr u32 kPooledPointers = 128; // bytes of shared memory that lamport_open() takes

// Sends this rank's columns of the row, two packets for sixteen values.
template <class C>
__device__ __forceinline__ void pooled_push(const Exchange &e, u32 epoch, const bf16 *columns,
                                            const float *partials, u64 row) {
    for (u32 block = thread_id(); block < u32(C::kColumns / 16); block += u32(C::kWarps * 32)) {
        const u64 at = row * C::kColumns + block * 16;
        u32x4 packet[2];
        if constexpr (C::kSplits == 0) {
            const u32x4 *from = reinterpret_cast<const u32x4 *>(columns + at);
            packet[0] = from[0];
            packet[1] = from[1];
        } else {
            float v[16];
            pooled_sum<C::kSplits>(v, partials + at, u64(C::kRows) * C::kColumns);
            packet[0] = pooled_pack(v);
            packet[1] = pooled_pack(v + 8);
        }
        lamport_push(e, epoch, at * 2, lamport_bf16_packet(packet[0]));
        lamport_push(e, epoch, at * 2 + 16, lamport_bf16_packet(packet[1]));
    }
}

// The thread's slots of the whole row, each out of the columns of one rank.
template <class C, int kSlots>
__device__ __forceinline__ void pooled_gather(float (&v)[kSlots][16], const Exchange &e, u32 epoch,
                                              u64 row) {
    constexpr u32 kRankBlocks = C::kColumns / 16;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
        const u32 block = u32(slot) * u32(C::kWarps * 32) + thread_id();
        if (block < u32(C::kWidth / 16)) {
            const u64 at = row * C::kColumns + block % kRankBlocks * 16;
            u32x4 packet[2];
            lamport_receive_run<2>(e, epoch, at * 2, 16, block / kRankBlocks, 2, packet);
            pooled_unpack(v[slot], packet[0]);
            pooled_unpack(v[slot] + 8, packet[1]);
        }
    }
}

#endif
