// SPDX-License-Identifier: Apache-2.0
// Tail of experts that every rank holds a slice of: a route's row is a partial sum over k on each
// rank. Rows travel by mailbox in (token, slot) order, never in permuted order, are summed over the
// ranks (ascending: fp32 from +0, rounded to bf16 once; or, kBf16Each, after every addition), and
// every rank norms and weights all of them alike. One block a token; a piece of eight values is one
// packet.
#ifndef LATHE_MOE_EXCHANGE_ROUTE_TAIL_CUH
#define LATHE_MOE_EXCHANGE_ROUTE_TAIL_CUH

#include "collective/lamport.cuh"
#include "moe/tail_rows.cuh"
#include "prims.cuh"

// Sends the rows of the token's routes; zeros for a route without a row.
template <class C>
__device__ __forceinline__ void route_tail_push(const Exchange &e, u32 epoch, const bf16 *rows,
                                                const int (&row)[C::kTopK], u32 token) {
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
#pragma unroll
        for (int h = 0; h < TailShape<C>::kHeld; ++h) {
            const u32 piece = tail_piece<C>(h);
            const u64 route = u64(token) * C::kTopK + u32(k);
            if (piece < TailShape<C>::kPieces)
                lamport_push(e, epoch, (route * C::kWidth + piece * 8) * 2,
                             lamport_bf16_packet(tail_load<C>(rows, row[k], piece)));
        }
    }
}

// Sums of routes `begin` to begin + kGroup - 1 at one piece, kGroup packets under way together.
template <class C, int kHeld>
__device__ __forceinline__ void route_tail_receive(u32x4 (&held)[C::kTopK][kHeld],
                                                   const Exchange &e, u32 epoch, u32 token,
                                                   int begin, int h) {
    const u64 route = u64(token) * C::kTopK + u32(begin);
    const u64 offset = (route * C::kWidth + tail_piece<C>(h) * 8) * 2;
    float sum[C::kGroup][8] = {};
    for (u32 source = 0; source < e.world; ++source) {
        u32x4 packet[C::kGroup];
        const u32 count = C::kTopK - begin < C::kGroup ? u32(C::kTopK - begin) : u32(C::kGroup);
        lamport_receive_run<C::kGroup>(e, epoch, offset, C::kWidth * 2, source, count, packet);
#pragma unroll
        for (int i = 0; i < C::kGroup; ++i)
            if (begin + i < C::kTopK)
                tail_add<C::kBf16Each == 1>(sum[i], packet[i], source);
    }
#pragma unroll
    for (int i = 0; i < C::kGroup; ++i)
        if (begin + i < C::kTopK)
            held[begin + i][h] = tail_pack(sum[i]);
}

template <class C>
__device__ void exchange_route_tail(const bf16 *rows, const int *expanded_to_permuted,
                                    const bf16 *gain, const float *weights, bf16 *m,
                                    Mailbox *mailbox) {
    constexpr int kHeld = TailShape<C>::kHeld;
    const u32 token = block_id();

    u32x4 held_gain[kHeld];
    tail_gains<C, kHeld>(held_gain, gain);
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    grid_trigger();
    grid_wait();

    const u32 epoch = lamport_epoch(e);
    int row[C::kTopK];
    u32x4 held[C::kTopK][kHeld] = {};
    float factor[C::kTopK];
    tail_routes<C>(row, expanded_to_permuted, token);
    route_tail_push<C>(e, epoch, rows, row, token);
#pragma unroll
    for (int begin = 0; begin < C::kTopK; begin += C::kGroup) {
#pragma unroll
        for (int h = 0; h < kHeld; ++h)
            if (tail_piece<C>(h) < TailShape<C>::kPieces)
                route_tail_receive<C, kHeld>(held, e, epoch, token, begin, h);
    }
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
#pragma unroll
        for (int h = 0; h < kHeld; ++h)
            if (row[k] < 0)
                held[k][h] = {};
    }
    tail_factors<C, kHeld>(factor, held, held_gain, row, weights, token,
                           reinterpret_cast<float *>(dynamic_shared() + 128));
    if (thread_id() == 0) // behind the barrier of the sums: every thread has read the epoch
        lamport_close(e, epoch, grid_size());
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
        if (tail_piece<C>(h) < TailShape<C>::kPieces)
            *reinterpret_cast<u32x4 *>(m + u64(token) * C::kWidth + tail_piece<C>(h) * 8) =
                tail_weighted<C, kHeld>(factor, held, held_gain, h);
}

#endif
