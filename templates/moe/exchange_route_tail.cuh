// SPDX-License-Identifier: Apache-2.0
// Tail of experts that every rank holds a slice of: a route's row is a partial sum over k on each
// rank. Rows travel by mailbox in (token, slot) order, never in permuted order, are summed over the
// ranks (ascending: fp32 from +0, rounded to bf16 once; or, kBf16Each, after every addition), and
// every rank norms and weights all of them alike. kBlocks blocks a token, each with its part of the
// columns of all routes; an octet of a route is one packet and one thread's work.
#ifndef LATHE_MOE_EXCHANGE_ROUTE_TAIL_CUH
#define LATHE_MOE_EXCHANGE_ROUTE_TAIL_CUH

#include "boundary/exchange.cuh"
#include "moe/tail_rows.cuh"
#include "prims.cuh"

// A block's octets of its token's routes, and what they leave in shared memory behind the pointers
// of the exchange; tails.lua counts the same bytes.
template <class C>
struct RouteTail {
    static_assert(C::kRoutes == C::kRows * C::kTopK, "a row of the permuted space for each route");
    static_assert(C::kExpertRows > 0 && C::kWidth % (8 * C::kBlocks) == 0,
                  "each block has whole octets");
    static constexpr u32 kThreads = C::kWarps * 32;
    static constexpr u32 kColumns = C::kWidth / C::kBlocks;
    static constexpr u32 kOctets = kColumns / 8; // of one route
    static constexpr u32 kItems = C::kTopK * kOctets;
    static constexpr int kHeld = int((kItems + kThreads - 1) / kThreads);
    static constexpr u32 kSums = C::kTopK * C::kBlocks;

    u64 *arrived;   // of the sums of all blocks
    u32x4 *values;  // [kTopK][kOctets]: the routes' rows, summed over the ranks
    float *squares; // [kTopK][kOctets]: of the gained values
    float *sums;    // [kTopK][kBlocks]
};

template <class C>
__device__ __forceinline__ RouteTail<C> route_tail_shared(u8 *shared) {
    using T = RouteTail<C>;
    RouteTail<C> t;
    t.arrived = reinterpret_cast<u64 *>(shared);
    t.values = reinterpret_cast<u32x4 *>(shared + 16);
    t.squares = reinterpret_cast<float *>(shared + 16 + T::kItems * 16);
    t.sums = t.squares + T::kItems;
    return t;
}

// The h-th of the octets that are a thread's own.
struct RouteOctet {
    u32 item; // of the block's
    bool exists;
    u32 route;  // of the step's, by token and slot
    u32 column; // its first
    u64 offset; // bytes into what a rank sends
};

template <class C>
__device__ __forceinline__ RouteOctet route_tail_octet(int h, u32 token, u32 part) {
    using T = RouteTail<C>;
    RouteOctet o;
    o.item = u32(h) * T::kThreads + thread_id();
    o.exists = o.item < T::kItems;
    o.route = token * u32(C::kTopK) + o.item / T::kOctets;
    o.column = part * T::kColumns + o.item % T::kOctets * 8;
    o.offset = (u64(o.route) * C::kWidth + o.column) * 2;
    return o;
}

// Before grid_wait(), since the blocks of a token meet here.
template <class C>
__device__ __forceinline__ void route_tail_open(const RouteTail<C> &t) {
    if constexpr (C::kBlocks > 1) {
        if (thread_id() == 0) {
            mbar_init(t.arrived, 1);
            mbar_init_fence();
            mbar_expect(t.arrived, 4 * RouteTail<C>::kSums);
        }
        cluster_sync();
    }
}

// Leaves a route's octet, and the sum of its squares once it has its gain.
template <class C>
__device__ __forceinline__ void route_tail_keep(const RouteTail<C> &t, u32 item, u32x4 value,
                                                u32x4 gain) {
    float v[8];
    float sum = 0;
    tail_scale(v, value, gain, float(C::kCenter));
#pragma unroll
    for (int i = 0; i < 8; ++i)
        sum += v[i] * v[i];
    shared_store(t.values + item, value);
    shared_store(t.squares + item, sum);
}

// Sums of squares of each route, one warp a route at a time, to all blocks of the token.
template <class C>
__device__ __forceinline__ void route_tail_sums(const RouteTail<C> &t, u32 part) {
    using T = RouteTail<C>;
    block_sync();
    for (u32 k = warp_id(); k < u32(C::kTopK); k += u32(C::kWarps)) {
        float sum = 0;
        for (u32 i = lane_id(); i < T::kOctets; i += 32)
            sum += shared_load(t.squares + k * T::kOctets + i);
        sum = warp_sum(sum);
        float *const to = t.sums + k * u32(C::kBlocks) + part;
        if constexpr (C::kBlocks > 1) {
            if (lane_id() < u32(C::kBlocks))
                cluster_send(lane_id(), to, sum, t.arrived);
        } else if (lane_id() == 0) {
            shared_store(to, sum);
        }
    }
    if constexpr (C::kBlocks > 1)
        cluster_wait(t.arrived, 0);
    else
        block_sync();
}

// Factor of a route's row: its weight over its root mean square, zero where there is no row.
template <class C>
__device__ __forceinline__ float route_tail_factor(const RouteTail<C> &t, int row, float weight,
                                                   int k) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i)
        sum += shared_load(t.sums + k * C::kBlocks + i);
    const float inverse = rsqrt_f32(sum / float(C::kWidth) + float(C::kEps));
    return row >= 0 ? weight * inverse : 0.0f;
}

// The weighted sum in slot order, two neighbouring columns a thread, rounded to bf16.
template <class C>
__device__ __forceinline__ void route_tail_write(const RouteTail<C> &t,
                                                 const float (&factor)[C::kTopK], const bf16 *gain,
                                                 bf16 *m) {
    using T = RouteTail<C>;
    const u32 *const values = reinterpret_cast<const u32 *>(t.values);
    for (u32 i = thread_id(); i < T::kColumns / 2; i += T::kThreads) {
        const u32 w = load_weight4(gain + i * 2);
        float low = 0;
        float high = 0;
#pragma unroll
        for (int k = 0; k < C::kTopK; ++k) {
            const u32 y = shared_load(values + u32(k) * (T::kColumns / 2) + i);
            low += (float(C::kCenter) + bf16_low(w)) * bf16_low(y) * factor[k];
            high += (float(C::kCenter) + bf16_high(w)) * bf16_high(y) * factor[k];
        }
        *reinterpret_cast<u32 *>(m + i * 2) = pack_bf16(low, high);
    }
}

template <class C>
__device__ void exchange_route_tail(const bf16 *rows, const int *expanded_to_permuted,
                                    const bf16 *gain, const float *weights, bf16 *m,
                                    Mailbox *mailbox) {
    using T = RouteTail<C>;
    const u32 token = block_id() / u32(C::kBlocks);
    const u32 part = block_id() % u32(C::kBlocks);
    const u32 column = part * T::kColumns;
    const RouteTail<C> tail = route_tail_shared<C>(dynamic_shared() + 128);

    u32x4 octet_gain[T::kHeld];
#pragma unroll
    for (int h = 0; h < T::kHeld; ++h) {
        const RouteOctet o = route_tail_octet<C>(h, token, part);
        if (o.exists)
            octet_gain[h] = load_weight16(gain + o.column);
    }
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    // Settled, and read past L1, where a line of an earlier step may be.
    int own_row[T::kHeld];
#pragma unroll
    for (int h = 0; h < T::kHeld; ++h) {
        const RouteOctet o = route_tail_octet<C>(h, token, part);
        own_row[h] = -1;
        if (o.exists)
            own_row[h] = gpu_load(expanded_to_permuted + o.route);
    }
    int row[C::kTopK];
    float weight[C::kTopK];
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k) {
        row[k] = gpu_load(expanded_to_permuted + token * u32(C::kTopK) + u32(k));
        weight[k] = gpu_load(weights + token * u32(C::kTopK) + u32(k));
    }
    route_tail_open<C>(tail);
    grid_trigger();
    grid_wait();

    u32x4 own[T::kHeld];
#pragma unroll
    for (int h = 0; h < T::kHeld; ++h) {
        const RouteOctet o = route_tail_octet<C>(h, token, part);
        if (o.exists)
            own[h] = lamport_bf16_packet(tail_load<C>(rows, own_row[h], o.column / 8));
    }
    const u32 epoch = lamport_epoch(e);
#pragma unroll
    for (int h = 0; h < T::kHeld; ++h) {
        const RouteOctet o = route_tail_octet<C>(h, token, part);
        if (o.exists)
            lamport_push_others<C::kRanks>(e, epoch, o.offset, own[h]);
    }
    // keep: every thread has read the epoch before the block arrives; else another token's block
    // may advance it, which one schedule in hundreds shows
    block_sync();
    u32 arrived = 0;
    if (thread_id() == 0)
        arrived = lamport_arrive(e);
#pragma unroll
    for (int h = 0; h < T::kHeld; ++h) {
        const RouteOctet o = route_tail_octet<C>(h, token, part);
        const u32x4 value = exchange_sum_with<C::kRanks, C::kGroup, C::kBf16Each == 1>(
            e, epoch, o.offset, own[h], o.exists);
        if (o.exists)
            route_tail_keep<C>(tail, o.item, value, octet_gain[h]);
    }
    route_tail_sums<C>(tail, part);
    float factor[C::kTopK];
#pragma unroll
    for (int k = 0; k < C::kTopK; ++k)
        factor[k] = route_tail_factor<C>(tail, row[k], weight[k], k);
    route_tail_write<C>(tail, factor, gain + column, m + u64(token) * C::kWidth + column);
    if (thread_id() == 0)
        lamport_leave(e, epoch, arrived, grid_size());
}

#endif
