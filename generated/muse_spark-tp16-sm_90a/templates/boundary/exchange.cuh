/* SPDX-License-Identifier: Apache-2.0
 * What a boundary receives: an octet of the branch from every rank, summed, or from the rank whose
 * columns it lies in. An octet is one packet; the payload of a rank is [rows][columns] in bf16.
 *
 * Orders of a sum, ranks ascending: fp32 from +0, rounded to bf16 once; or (kBf16Each) from rank
 * 0's value, rounded to bf16 after every addition. */
#ifndef LATHE_BOUNDARY_EXCHANGE_CUH
#define LATHE_BOUNDARY_EXCHANGE_CUH

#include "boundary/row.cuh"
#include "collective/lamport.cuh"

/* Adds a rank's octet to the sum of those before it. */
template <bool kBf16Each>
__device__ __forceinline__ void exchange_add(Octet &sum, u32x4 packet, u32 rank) {
    const Octet part = octet_of_bf16(packet);
    if (kBf16Each && rank == 0) {
        sum = part;
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        sum.v[j] += part.v[j];
    if constexpr (kBf16Each)
        sum = octet_of_bf16(octet_to_bf16(sum));
}

/* Sum over the ranks of one octet, kGroup ranks under way together. */
template <int kGroup, bool kBf16Each>
__device__ __forceinline__ u32x4 exchange_sum(const Exchange &e, u32 epoch, u64 offset) {
    Octet sum = {};
    for (u32 first = 0; first < e.world; first += kGroup) {
        u32x4 packet[kGroup];
        const u32 count = e.world - first < kGroup ? e.world - first : kGroup;
        lamport_receive<kGroup>(e, epoch, offset, first, count, packet);
#pragma unroll
        for (u32 i = 0; i < kGroup; i++)
            if (i < count)
                exchange_add<kBf16Each>(sum, packet[i], first + i);
    }
    return octet_to_bf16(sum);
}

/* A thread's octets of row `row` of the branch. kColumns: a rank's columns; the whole width: the
 * ranks are summed. */
template <class Row, int kHidden, int kThreads, int kColumns, int kGroup, bool kBf16Each>
__device__ __forceinline__ void exchange_row(u32x4 (&values)[Row::kPerThread], const Exchange &e,
                                             u32 epoch, u32 row) {
    static_assert(kHidden % kColumns == 0 && kColumns % 8 == 0,
                  "a rank's columns must be whole packets");
    constexpr int kRowPackets = kColumns / 8;
    const u64 start = static_cast<u64>(row) * kColumns * 2;
#pragma unroll
    for (int i = 0; i < Row::kPerThread; i++) {
        const int octet = row_octet<kThreads>(i);
        if (!row_has<Row>(octet))
            continue;
        if constexpr (kColumns == kHidden) {
            values[i] =
                exchange_sum<kGroup, kBf16Each>(e, epoch, start + static_cast<u64>(octet) * 16);
        } else {
            const u64 offset = start + static_cast<u64>(octet % kRowPackets) * 16;
            u32x4 packet[1];
            lamport_receive<1>(e, epoch, offset, static_cast<u32>(octet / kRowPackets), 1, packet);
            values[i] = packet[0];
        }
    }
}

#endif
