// SPDX-License-Identifier: Apache-2.0
// Routing in one block. A warp selects the experts of a token; each local expert then has a word
// with one bit per token, so that counts, the rank of a route within its expert and the tokens of a
// tile are bit counts: nothing is sorted, nothing depends on the order in which warps arrive, every
// output is written once.
#ifndef LATHE_MOE_ROUTING_CUH
#define LATHE_MOE_ROUTING_CUH

#include "prims.cuh"

// Shared memory of the block.
struct RoutingShared {
    u32 *chosen; // [kLocal] bit t: token t takes this local expert
    u32 *first;  // [kLocal] first tile of the expert
    u32 *route;  // [kRoutes] local expert of each route, kNowhere for others
    u32 *tile;   // [kMaxCtas] expert of each live tile
    u32 *live;   // [1] number of live tiles
    u32 *padded; // [1] bit t: token t is padding
    float *bias; // [kExperts]
};

constexpr u32 kNowhere = 0xffffffffu;

__device__ __forceinline__ u32 routing_count_bits(u32 word) {
    word = word - ((word >> 1) & 0x55555555u);
    word = (word & 0x33333333u) + ((word >> 2) & 0x33333333u);
    word = (word + (word >> 4)) & 0x0f0f0f0fu;
    return (word * 0x01010101u) >> 24;
}

// Position of the set bit that has `rank` set bits below it.
__device__ __forceinline__ u32 routing_find_bit(u32 word, u32 rank) {
    for (; rank > 0; --rank)
        word &= word - 1;
    return routing_count_bits((word & (0u - word)) - 1);
}

template <class C>
__device__ __forceinline__ RoutingShared routing_shared(u8 *shared) {
    RoutingShared s;
    s.chosen = reinterpret_cast<u32 *>(shared);
    s.first = s.chosen + C::kLocal;
    s.route = s.first + C::kLocal;
    s.tile = s.route + C::kRoutes;
    s.live = s.tile + C::kMaxCtas;
    s.padded = s.live + 1;
    s.bias = reinterpret_cast<float *>(s.padded + 1);
    return s;
}

// Before grid_wait(): what does not hang on another launch.
template <class C>
__device__ __forceinline__ void routing_open(const RoutingShared &s, const float *bias,
                                             const long long *slots) {
    static_assert(C::kRows <= 32, "a token is one bit of a word");
    if (warp_id() == 0) {
        const u32 padded = warp_ballot(lane_id() < u32(C::kRows) && slots[lane_id()] < 0);
        if (lane_id() == 0)
            shared_store(s.padded, padded);
    }
    for (u32 e = thread_id(); e < u32(C::kLocal); e += u32(C::kWarps * 32))
        shared_store(s.chosen + e, 0u);
    for (u32 e = thread_id(); e < u32(C::kExperts); e += u32(C::kWarps * 32))
        shared_store(s.bias + e, bits_float(load_weight4(bias + e)));
}

// Keys as integers in the same order: the larger key first, a NaN as minus infinity. Zero is below
// all of them: an expert that is taken.
__device__ __forceinline__ u32 routing_key(float key) {
    const u32 bits = key == key ? float_bits(key + 0.0f) : 0xff800000u; // + 0: one zero only
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

// Logits of token `t`, a lane's experts being 32 apart; partial sums are added in their order.
template <class C, int kHeld>
__device__ __forceinline__ void routing_logits(float (&value)[kHeld], const float *logits, u32 t) {
    constexpr int kParts = C::kLogitSplits > 0 ? C::kLogitSplits : 1;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            const u32 expert = u32(i) * 32 + lane_id();
            if (expert >= u32(C::kExperts))
                continue;
            const u32 row = u32(part) * u32(C::kRows) + t;
            const float next = logits[row * u32(C::kExperts) + expert];
            value[i] = part == 0 ? next : value[i] + next;
        }
}

// The best expert that is not taken, its score with it: the largest key, then the lowest id. It is
// taken on return.
template <int kHeld>
__device__ __forceinline__ u32 routing_take(u32 (&key)[kHeld], const float (&score)[kHeld],
                                            float &best_score) {
    u32 best = key[0];
    u32 slot = 0;
    best_score = score[0];
#pragma unroll
    for (int i = 1; i < kHeld; ++i)
        if (key[i] > best) {
            best = key[i];
            slot = u32(i);
            best_score = score[i];
        }
    const u32 most = warp_max(best);
    const u32 id = warp_min(best == most ? slot * 32 + lane_id() : kNowhere);
    best_score = warp_shuffle(best_score, id % 32);
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
        if (u32(i) * 32 + lane_id() == id)
            key[i] = 0;
    return id;
}

// Selects the experts of token `t`: lane k holds the k-th id and weight on return.
template <class C, int kHeld>
__device__ __forceinline__ void routing_select(const float *logits, const float *bias, u32 t,
                                               u32 &my_id, float &my_weight) {
    u32 key[kHeld];
    float score[kHeld];
    routing_logits<C, kHeld>(score, logits, t);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const u32 expert = u32(i) * 32 + lane_id();
        key[i] = 0;
        if (expert < u32(C::kExperts)) {
            score[i] = sigmoid_f32(float(C::kScale) * score[i]);
            key[i] = routing_key(score[i] + shared_load(bias + expert));
        }
    }
    float sum = 0;
    float my_score = 0;
    my_id = kNowhere;
    for (u32 k = 0; k < u32(C::kTopK); ++k) {
        float best_score;
        const u32 id = routing_take<kHeld>(key, score, best_score);
        if (k == lane_id()) {
            my_id = id;
            my_score = best_score;
        }
        sum += best_score;
    }
    my_weight = divide_f32(my_score, sum + float(C::kEpsilon));
    if (C::kBf16Weights)
        my_weight = bf16_to_float(float_to_bf16(my_weight));
}

// Selection for all tokens: ids, weights, and the local experts' bits.
template <class C>
__device__ __forceinline__ void routing_tokens(const RoutingShared &s, const float *logits,
                                               const int *rank, int *ids, float *weights) {
    constexpr int kHeld = (C::kExperts + 31) / 32;
    const u32 offset = C::kLocal == C::kExperts ? 0 : u32(rank[0]) * u32(C::kLocal);
    for (u32 t = warp_id(); t < u32(C::kRows); t += u32(C::kWarps)) {
        u32 id = kNowhere;
        float weight = 0;
        if ((shared_load(s.padded) >> t & 1u) == 0)
            routing_select<C, kHeld>(logits, s.bias, t, id, weight);
        if (lane_id() >= u32(C::kTopK))
            continue;
        const u32 x = t * u32(C::kTopK) + lane_id();
        ids[x] = int(id);
        weights[x] = weight;
        const u32 local = id - offset; // wraps to a large number below the offset
        const bool mine = id != kNowhere && local < u32(C::kLocal);
        shared_store(s.route + x, mine ? local : kNowhere);
        if (mine)
            shared_atomic_add(s.chosen + local, 1u << t);
    }
    block_sync();
}

// First tile of every local expert, expert of every tile; by the first warp.
template <class C>
__device__ __forceinline__ void routing_tiles(const RoutingShared &s) {
    constexpr u32 kPer = (u32(C::kLocal) + 31) / 32;
    if (warp_id() == 0) {
        const u32 begin = lane_id() * kPer;
        u32 tiles = 0;
        for (u32 e = begin; e < begin + kPer && e < u32(C::kLocal); ++e)
            tiles += (routing_count_bits(shared_load(s.chosen + e)) + C::kTile - 1) / C::kTile;
        u32 end = tiles; // inclusive sum over lanes
#pragma unroll
        for (u32 distance = 1; distance < 32; distance *= 2) {
            const u32 below = warp_shuffle(end, (lane_id() - distance) & 31);
            if (lane_id() >= distance)
                end += below;
        }
        u32 tile = end - tiles;
        for (u32 e = begin; e < begin + kPer && e < u32(C::kLocal); ++e) {
            shared_store(s.first + e, tile);
            const u32 count = routing_count_bits(shared_load(s.chosen + e));
            for (u32 row = 0; row < count; row += u32(C::kTile))
                shared_store(s.tile + tile++, e);
        }
        if (lane_id() == 31)
            shared_store(s.live, end);
    }
    block_sync();
}

// Row of each route and token of each row.
template <class C>
__device__ __forceinline__ void routing_rows(const RoutingShared &s, int *expanded_to_permuted,
                                             int *permuted_to_token) {
    const u32 live = shared_load(s.live);
    for (u32 x = thread_id(); x < u32(C::kRoutes); x += u32(C::kWarps * 32)) {
        const u32 e = shared_load(s.route + x);
        int row = -1;
        if (e != kNowhere) {
            const u32 before = shared_load(s.chosen + e) & ((1u << (x / u32(C::kTopK))) - 1);
            row = int(shared_load(s.first + e) * u32(C::kTile) + routing_count_bits(before));
        }
        expanded_to_permuted[x] = row;
    }
    for (u32 row = thread_id(); row < u32(C::kPermuted); row += u32(C::kWarps * 32)) {
        int token = -1;
        if (row / u32(C::kTile) < live) {
            const u32 e = shared_load(s.tile + row / u32(C::kTile));
            const u32 chosen = shared_load(s.chosen + e);
            const u32 rank = row - shared_load(s.first + e) * u32(C::kTile);
            if (rank < routing_count_bits(chosen))
                token = int(routing_find_bit(chosen, rank));
        }
        permuted_to_token[row] = token;
    }
}

// What the GEMMs read of each tile, the counts, and the scratch arrays.
template <class C>
__device__ __forceinline__ void routing_summary(const RoutingShared &s, const int *rank,
                                                int *total_padded, int *histogram, int *counts,
                                                int *cta_expert, int *cta_limit, int *ctas) {
    const u32 live = shared_load(s.live);
    const u32 offset = C::kLocal == C::kExperts ? 0 : u32(rank[0]) * u32(C::kLocal);
    for (u32 tile = thread_id(); tile < u32(C::kMaxCtas); tile += u32(C::kWarps * 32)) {
        int expert = -1;
        int limit = -1;
        if (tile < live) {
            const u32 e = shared_load(s.tile + tile);
            const u32 end = shared_load(s.first + e) * u32(C::kTile) +
                            routing_count_bits(shared_load(s.chosen + e));
            const u32 tile_end = (tile + 1) * u32(C::kTile);
            expert = int(e);
            limit = int(end < tile_end ? end : tile_end);
        }
        cta_expert[tile] = expert;
        cta_limit[tile] = limit;
    }
    for (u32 e = thread_id(); e < u32(C::kExperts); e += u32(C::kWarps * 32)) {
        const u32 local = e - offset;
        const bool mine = local < u32(C::kLocal);
        counts[e] = mine ? int(routing_count_bits(shared_load(s.chosen + local))) : 0;
    }
    for (u32 i = thread_id(); i < u32(C::kHistogram); i += u32(C::kWarps * 32))
        histogram[i] = 0;
    if (thread_id() == 0) {
        ctas[0] = int(live);
        total_padded[0] = int(live * u32(C::kTile));
    }
}

// Behind routing_close(), by the whole block: what launches the grid's successors early finds all
// of it there, before they wait.
__device__ __forceinline__ void routing_trigger() {
    // keep: early successors read what stands here, and the emulator has one memory for all
    gpu_fence();
    block_sync();
    grid_trigger();
}

// The rest, after grid_wait().
template <class C>
__device__ __forceinline__ void
routing_close(const RoutingShared &s, const float *logits, const int *rank, int *ids,
              float *weights, int *total_padded, int *expanded_to_permuted, int *permuted_to_token,
              int *histogram, int *counts, int *cta_expert, int *cta_limit, int *ctas) {
    static_assert(C::kExperts <= 1024, "a lane marks its experts in one word");
    static_assert(C::kPermuted == C::kMaxCtas * C::kTile + 1, "one guard element");
    block_sync(); // the bits are zero, bias and padding are there
    routing_tokens<C>(s, logits, rank, ids, weights);
    routing_tiles<C>(s);
    routing_rows<C>(s, expanded_to_permuted, permuted_to_token);
    routing_summary<C>(s, rank, total_padded, histogram, counts, cta_expert, cta_limit, ctas);
}

template <class C>
__device__ void routing(const float *logits, const float *bias, const int *rank,
                        const long long *slots, int *ids, float *weights, int *total_padded,
                        int *expanded_to_permuted, int *permuted_to_token, int *histogram,
                        int *counts, int *cta_expert, int *cta_limit, int *ctas) {
    const RoutingShared s = routing_shared<C>(dynamic_shared());
    routing_open<C>(s, bias, slots);
    grid_wait();
    routing_close<C>(s, logits, rank, ids, weights, total_padded, expanded_to_permuted,
                     permuted_to_token, histogram, counts, cta_expert, cta_limit, ctas);
    routing_trigger();
}

#endif
