/* SPDX-License-Identifier: Apache-2.0
 * Pooler and router in one launch: both read the same few tokens, so that their weights stream
 * together. The first blocks own tiles of the pooler's rows, the others tiles of 16 experts, each
 * with a slice of k.
 *
 * The router's weights are fp32. On tensor cores an fp32 number is the exact sum of three bf16, so
 * the products are exact as in moe/router and the sums fp32: selection does not hang on how a
 * weight was rounded. To the stream a row of k fp32 is one of 2 k bf16. */
#ifndef LATHE_MOE_POOL_ROUTER_CUH
#define LATHE_MOE_POOL_ROUTER_CUH

#include "gemm/skinny.cuh"

/* The stream of the router's blocks; one tile each. */
template <class C>
using RouterStream =
    Stream<C::kRows, C::kExperts, 2 * C::kK, C::kRouterSplits, 1, C::kWarps, C::kSteps, C::kStages>;

/* The warp's activations of a pass: four of a lane for each step of sixteen k. */
template <class R>
__device__ __forceinline__ void router_tokens(u32x2 (&b)[R::kSteps][R::kTokenTiles], const bf16 *x,
                                              int slice, int pass) {
    const Lane at = lane_place();
#pragma unroll
    for (int i = 0; i < R::kSteps; i++) {
        const int k = stream_k<R>(slice, pass, i, at.q) / 2;
#pragma unroll
        for (int t = 0; t < R::kTokenTiles; t++) {
            const int token = t * 8 + at.g;
            b[i][t] = {0, 0};
            if (stream_k<R>(slice, pass, i, at.q) >= 0 && token < R::kRows)
                b[i][t] = *reinterpret_cast<const u32x2 *>(
                    x + static_cast<long long>(token) * (R::kK / 2) + k);
        }
    }
}

/* What is left of a weight without its upper half; an infinity leaves nothing. */
__device__ __forceinline__ u32 router_rest(u32 weight) {
    const float rest = bits_float(weight) - bits_float(weight & 0xffff0000u);
    return (weight & 0x7fffffffu) == 0x7f800000u ? 0u : float_bits(rest);
}

/* Adds a pass of the tile: of each weight the upper half, the upper half of the rest, the last
 * rest. */
template <class R>
__device__ __forceinline__ void router_multiply(float (&sums)[R::kTokenTiles][4],
                                                const u32x4 (&a)[R::kSteps][2],
                                                const u32x2 (&b)[R::kSteps][R::kTokenTiles]) {
    constexpr u32 kUpper = 0x7632; /* upper halves of both words */
#pragma unroll
    for (int i = 0; i < R::kSteps; i++) {
        u32 w[2][4] = {{a[i][0].x, a[i][0].y, a[i][0].z, a[i][0].w},
                       {a[i][1].x, a[i][1].y, a[i][1].z, a[i][1].w}};
#pragma unroll
        for (int piece = 0; piece < 3; piece++) {
            const u32 upper[4] = {
                permute_bytes(w[0][0], w[0][1], kUpper), permute_bytes(w[1][0], w[1][1], kUpper),
                permute_bytes(w[0][2], w[0][3], kUpper), permute_bytes(w[1][2], w[1][3], kUpper)};
#pragma unroll
            for (int t = 0; t < R::kTokenTiles; t++) {
                const u32 tokens[2] = {b[i][t].x, b[i][t].y};
                mma_bf16(sums[t], upper, tokens);
            }
#pragma unroll
            for (int j = 0; j < 8 && piece < 2; j++)
                w[j / 4][j % 4] = router_rest(w[j / 4][j % 4]);
        }
    }
}

/* Whether the tokens of all passes are asked for at once, as in gemm/ring.cuh. */
template <class R>
constexpr bool kRouterAtOnce = R::kPasses *R::kSteps *R::kTokenTiles <= 16;

/* The block's logits over its slice of k, laid down in `shared`. `a` holds the first pass where
 * there is no ring. */
template <class R>
__device__ __forceinline__ void router_passes(u32x4 (&a)[R::kSteps][2], const Ring &ring,
                                              const bf16 *x, const bf16 *w, float *shared, int row0,
                                              int slice) {
    constexpr int kAhead = kRouterAtOnce<R> ? R::kPasses : 1;
    float sums[R::kTokenTiles][4] = {};
    u32x2 b[kAhead][R::kSteps][R::kTokenTiles];
#pragma unroll
    for (int pass = 0; pass < kAhead; pass++)
        router_tokens<R>(b[pass], x, slice, pass);
#pragma unroll(kAhead)
    for (int pass = 0; pass < R::kPasses; pass++) {
        if (kAhead == 1 && pass > 0)
            router_tokens<R>(b[0], x, slice, pass);
        if constexpr (R::kStages > 0)
            ring_take<R>(a, ring, pass);
        router_multiply<R>(sums, a, b[pass % kAhead]);
        if (R::kStages == 0 && pass + 1 < R::kPasses)
            stream_fetch<R>(a, w, row0, slice, pass + 1);
    }
    stream_lay_down<R>(shared, 0, sums);
}

template <class C>
__device__ void pool_router(const bf16 *x, const bf16 *w, const bf16 *router_x,
                            const float *router_w, bf16 *y, float *y_partials, float *logits) {
    using S =
        Stream<C::kRows, C::kN, C::kK, C::kSplits, C::kTiles, C::kWarps, C::kSteps, C::kStages>;
    using R = RouterStream<C>;
    static_assert(S::kWholeTiles, "N must be a multiple of 16");
    static_assert(C::kPartials == 1 || C::kSplits == 1, "a whole output has one slice of k");
    constexpr int kTiles = (C::kN + S::kBlockRows - 1) / S::kBlockRows;
    constexpr int kRouterTiles = (C::kExperts + 15) / 16;
    float *const shared = reinterpret_cast<float *>(dynamic_shared());
    const bf16 *const experts = reinterpret_cast<const bf16 *>(router_w);
    const int block = static_cast<int>(block_id()) - kTiles * C::kSplits;
    const bool routes = block >= 0;
    const int row0 =
        routes ? block % kRouterTiles * 16 : static_cast<int>(block_id()) % kTiles * S::kBlockRows;
    const int slice = routes ? block / kRouterTiles : static_cast<int>(block_id()) / kTiles;

    u32x4 a[C::kTiles][C::kSteps][2];
    const Ring ring = ring_place<S>(reinterpret_cast<u8 *>(shared) + S::kPartBytes);
    if constexpr (C::kStages > 0) {
        ring_open<S>(ring);
    } else if (routes) {
        stream_fetch<R>(a[0], experts, row0, slice, 0);
    } else {
#pragma unroll
        for (int tile = 0; tile < C::kTiles; tile++)
            stream_fetch<S>(a[tile], w, row0 + tile * 16, slice, 0);
    }
    grid_trigger();
    if constexpr (C::kStages > 0)
        if (warp_id() == C::kWarps) {
            if (routes)
                ring_fill<R>(ring, experts, row0, slice);
            else
                ring_fill<S>(ring, w, row0, slice);
        }
    grid_wait();

    if (warp_id() < C::kWarps) {
        if (routes)
            router_passes<R>(a[0], ring, router_x, experts, shared, row0, slice);
        else if constexpr (C::kStages > 0)
            ring_passes<S>(ring, x, shared, slice);
        else
            stream_passes<S>(a, x, w, shared, row0, slice);
    }
    block_sync();
    if (routes)
        skinny_write_partials<R>(logits, shared, row0, slice);
    else if constexpr (C::kPartials == 1)
        skinny_write_partials<S>(y_partials, shared, row0, slice);
    else
        skinny_write_whole<S>(y, shared, row0);
}

#endif
