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

/* What is there before the first rank's octet is added: rank 0's value is then that octet itself
 * where every sum is rounded, its sign of zero too. */
template <bool kBf16Each>
__device__ __forceinline__ Octet exchange_nothing() {
    constexpr float kZero = kBf16Each ? -0.0f : 0.0f;
    return {{kZero, kZero, kZero, kZero, kZero, kZero, kZero, kZero}};
}

/* Adds the next rank's octet to the sum of those before it. */
template <bool kBf16Each>
__device__ __forceinline__ void exchange_add(Octet &sum, u32x4 packet) {
    const Octet part = octet_of_bf16(packet);
#pragma unroll
    for (int j = 0; j < 8; j++)
        sum.v[j] += part.v[j];
    if constexpr (kBf16Each)
        sum = octet_of_bf16(octet_to_bf16(sum));
}

/* Sum over the ranks of one octet, kGroup ranks under way together. All threads of a warp call;
 * `has`: whether this one's octet exists. */
template <int kRanks, int kGroup_, bool kBf16Each>
__device__ __forceinline__ u32x4 exchange_sum(const Exchange &e, u32 epoch, u64 offset, bool has) {
    constexpr int kGroup = kGroup_ < kRanks ? kGroup_ : kRanks;
    Octet sum = exchange_nothing<kBf16Each>();
#pragma unroll
    for (int first = 0; first < kRanks; first += kGroup) {
        const int count = kRanks - first < kGroup ? kRanks - first : kGroup;
        u32x4 packet[kGroup] = {};
        if (has)
            lamport_receive<kGroup>(e, epoch, offset, static_cast<u32>(first),
                                    static_cast<u32>(count), packet);
        warp_sync(); /* keep: lanes leave their wait one by one; what follows they do together */
#pragma unroll
        for (int i = 0; i < kGroup; i++)
            if (i < count)
                exchange_add<kBf16Each>(sum, packet[i]);
    }
    return octet_to_bf16(sum);
}

/* The same where this rank's packet, `own`, did not go through its slot. */
template <int kRanks, int kGroup_, bool kBf16Each>
__device__ __forceinline__ u32x4 exchange_sum_with(const Exchange &e, u32 epoch, u64 offset,
                                                   u32x4 own, bool has) {
    constexpr int kOthers = kRanks - 1;
    constexpr int kGroup = kGroup_ < kOthers ? kGroup_ : kOthers > 0 ? kOthers : 1;
    Octet sum = exchange_nothing<kBf16Each>();
#pragma unroll
    for (int first = 0; first < kOthers; first += kGroup) {
        const int count = kOthers - first < kGroup ? kOthers - first : kGroup;
        u32x4 packet[kGroup] = {};
        if (has)
            lamport_receive_others<kGroup>(e, epoch, offset, static_cast<u32>(first),
                                           static_cast<u32>(count), packet);
        warp_sync(); /* keep: as above */
#pragma unroll
        for (int i = 0; i < kGroup; i++) {
            if (i >= count)
                continue;
            if (static_cast<u32>(first + i) == e.rank)
                exchange_add<kBf16Each>(sum, own);
            exchange_add<kBf16Each>(sum, packet[i]);
        }
    }
    if (e.rank == kOthers)
        exchange_add<kBf16Each>(sum, own);
    return octet_to_bf16(sum);
}

/* A thread's octets of the branch, of row `number`. kColumns: a rank's columns; the whole width:
 * the ranks are summed. `own`: this rank's packets of the same octets, where they are summed and
 * did not go through its slot; else null. */
template <class Row, int kRanks, int kColumns, int kGroup, bool kBf16Each>
__device__ __forceinline__ void exchange_row(u32x4 (&values)[Row::kPerThread], const u32x4 *own,
                                             const Exchange &e, u32 epoch, int number) {
    constexpr int kHidden = Row::kOctets * 8 * Row::kBlocks;
    static_assert(kHidden % kColumns == 0 && kColumns % 8 == 0,
                  "a rank's columns must be whole packets");
    constexpr int kRowPackets = kColumns / 8;
    const u64 start = static_cast<u64>(number) * kColumns * 2;
#pragma unroll
    for (int i = 0; i < Row::kPerThread; i++) {
        const int octet = row_part<Row>() * Row::kOctets + row_octet<Row::kThreads>(i);
        const bool has = row_has<Row>(row_octet<Row::kThreads>(i));
        if constexpr (kColumns == kHidden) {
            const u64 offset = start + static_cast<u64>(octet) * 16;
            values[i] =
                own ? exchange_sum_with<kRanks, kGroup, kBf16Each>(e, epoch, offset, own[i], has)
                    : exchange_sum<kRanks, kGroup, kBf16Each>(e, epoch, offset, has);
        } else {
            const u64 offset = start + static_cast<u64>(octet % kRowPackets) * 16;
            u32x4 packet[1] = {};
            if (has)
                lamport_receive<1>(e, epoch, offset, static_cast<u32>(octet / kRowPackets), 1,
                                   packet);
            warp_sync(); /* keep: as above */
            values[i] = packet[0];
        }
    }
}

#endif
