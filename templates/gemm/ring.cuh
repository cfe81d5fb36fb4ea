/* SPDX-License-Identifier: Apache-2.0
 * Weights through shared memory: one warp asks for them by bulk copies, the others multiply. A
 * stage is a tile of a pass: sixteen row pieces, one copy each. The ring is deep, so that much of
 * it is there when what the launch waits for comes; the window of copies under way is shallow, so
 * that the small loads of other launches do not queue behind it. */
#ifndef LATHE_GEMM_RING_CUH
#define LATHE_GEMM_RING_CUH

#include "gemm/tile.cuh"
#include "prims.cuh"

constexpr int kRingWindow = 65536; /* bytes under way, two stages at least */

struct Ring {
    u8 *stages;
    u64 *full, *empty; /* of each stage */
};

/* A piece is a row's bytes of a stage; 64 bytes between two keep the reads free of conflicts. */
template <class S>
struct RingShape {
    static constexpr int kPiece = S::kWarps * S::kSteps * 64;
    static constexpr int kPitch = kPiece + 64;
    static constexpr int kBytes = 16 * kPitch;
    static constexpr int kAhead = kRingWindow / (16 * kPiece) > 2 ? kRingWindow / (16 * kPiece) : 2;
};

template <class S>
__device__ __forceinline__ Ring ring_place(u8 *shared) {
    u64 *const full = reinterpret_cast<u64 *>(shared + S::kStages * RingShape<S>::kBytes);
    return {shared, full, full + S::kStages};
}

/* Whole blocks call; holds a barrier. */
template <class S>
__device__ __forceinline__ void ring_open(const Ring &ring) {
    if (thread_id() == 0) {
        for (int i = 0; i < S::kStages; i++) {
            mbar_init(ring.full + i, 1);
            mbar_init(ring.empty + i, S::kWarps);
        }
        mbar_init_fence();
    }
    block_sync();
}

/* For the filling warp: until load `n` may start; announces its bytes. Returns its stage. */
template <class S>
__device__ __forceinline__ u8 *ring_claim(const Ring &ring, int n, u32 bytes) {
    constexpr int kAhead = RingShape<S>::kAhead;
    const int stage = n % S::kStages, round = n / S::kStages;
    if (round > 0) {
        mbar_wait(ring.empty + stage, static_cast<u32>(round - 1) & 1u);
        async_fence();
    }
    if (n >= kAhead) /* keep: the window is for speed, no result hangs on it */
        mbar_wait(ring.full + (n - kAhead) % S::kStages,
                  static_cast<u32>((n - kAhead) / S::kStages) & 1u);
    if (lane_id() == 0)
        mbar_expect(ring.full + stage, bytes);
    warp_sync();
    return ring.stages + stage * RingShape<S>::kBytes;
}

/* Load `n`: sixteen pieces, `stride` elements apart from `from` on. */
template <class S>
__device__ __forceinline__ void ring_load(const Ring &ring, int n, const bf16 *from,
                                          long long stride) {
    using R = RingShape<S>;
    u8 *const to = ring_claim<S>(ring, n, 16 * R::kPiece);
    const int row = static_cast<int>(lane_id());
    if (row < 16)
        bulk_load(to + row * R::kPitch, from + row * stride, R::kPiece, ring.full + n % S::kStages);
}

/* For the filling warp: all weights of the block, pass by pass. Before grid_wait(). */
template <class S>
__device__ __forceinline__ void ring_fill(const Ring &ring, const bf16 *w, int row0, int slice) {
    static_assert(S::kWholePasses && S::kWholeTiles && S::kWholeBlocks,
                  "a ring serves whole stages only");
    const bf16 *const first = w + static_cast<long long>(row0) * S::kK +
                              static_cast<long long>(slice) * S::kSliceSteps * 32;
#pragma unroll 1
    for (int n = 0; n < S::kPasses * S::kTiles; n++)
        ring_load<S>(ring, n,
                     first + static_cast<long long>(n % S::kTiles) * 16 * S::kK +
                         n / S::kTiles * (RingShape<S>::kPiece / 2),
                     S::kK);
}

/* The warp's share of load `n`, after which its stage may be filled again. */
template <class S>
__device__ __forceinline__ void ring_take(u32x4 (&a)[S::kSteps][2], const Ring &ring, int n) {
    using R = RingShape<S>;
    const int stage = n % S::kStages;
    const Lane at = lane_place();
    mbar_wait(ring.full + stage, static_cast<u32>(n / S::kStages) & 1u);
    const u8 *const from = ring.stages + stage * R::kBytes + at.g * R::kPitch +
                           (static_cast<int>(warp_id()) * S::kSteps * 4 + at.q) * 16;
#pragma unroll
    for (int i = 0; i < S::kSteps; i++) {
        a[i][0] = shared_load(reinterpret_cast<const u32x4 *>(from + i * 64));
        a[i][1] = shared_load(reinterpret_cast<const u32x4 *>(from + 8 * R::kPitch + i * 64));
    }
    warp_sync();
    if (at.g == 0 && at.q == 0)
        mbar_arrive(ring.empty + stage);
}

template <class S>
__device__ __forceinline__ void ring_copy(u32x4 (&to)[S::kSteps][S::kTokenTiles],
                                          const u32x4 (&from)[S::kSteps][S::kTokenTiles]) {
#pragma unroll
    for (int i = 0; i < S::kSteps; i++)
#pragma unroll
        for (int t = 0; t < S::kTokenTiles; t++)
            to[i][t] = from[i][t];
}

/* One tile and few passes: the tokens of all passes are asked for at once, since the weights of all
 * may be there already. */
template <class S>
constexpr bool kRingAtOnce =
    S::kTiles == 1 && S::kPasses > 1 && S::kPasses *S::kSteps *S::kTokenTiles <= 16;

template <class S>
__device__ __forceinline__ void ring_at_once(const Ring &ring, const bf16 *x, float *shared,
                                             int slice) {
    float sums[S::kTokenTiles][4] = {};
    u32x4 b[S::kPasses][S::kSteps][S::kTokenTiles];
#pragma unroll
    for (int pass = 0; pass < S::kPasses; pass++)
        stream_tokens<S>(b[pass], x, slice, pass);
#pragma unroll
    for (int pass = 0; pass < S::kPasses; pass++) {
        u32x4 a[S::kSteps][2];
        ring_take<S>(a, ring, pass);
        stream_multiply<S>(sums, a, b[pass]);
    }
    stream_lay_down<S>(shared, 0, sums);
}

/* Several tiles or many passes. */
template <class S>
__device__ __forceinline__ void ring_in_turn(const Ring &ring, const bf16 *x, float *shared,
                                             int slice) {
    constexpr int kHeld = S::kPasses > 1 ? S::kTiles : 1; /* tiles whose sums live on */
    constexpr bool kEarly = S::kTokenTiles <= 2; /* the next pass's tokens: registers allow it */
    float sums[kHeld][S::kTokenTiles][4] = {};
    u32x4 b[S::kSteps][S::kTokenTiles], next[S::kSteps][S::kTokenTiles];
    stream_tokens<S>(b, x, slice, 0);
#pragma unroll 1
    for (int pass = 0; pass < S::kPasses; pass++) {
        if (kEarly && pass + 1 < S::kPasses)
            stream_tokens<S>(next, x, slice, pass + 1);
#pragma unroll
        for (int tile = 0; tile < S::kTiles; tile++) {
            u32x4 a[S::kSteps][2];
            float(&sum)[S::kTokenTiles][4] = sums[tile % kHeld];
            ring_take<S>(a, ring, pass * S::kTiles + tile);
            stream_multiply<S>(sum, a, b);
            if (pass + 1 < S::kPasses)
                continue;
            stream_lay_down<S>(shared, tile, sum);
            if constexpr (kHeld == 1 && S::kTiles > 1)
#pragma unroll
                for (int t = 0; t < S::kTokenTiles; t++)
                    sum[t][0] = sum[t][1] = sum[t][2] = sum[t][3] = 0.0f;
        }
        if (kEarly)
            ring_copy<S>(b, next);
        else if (pass + 1 < S::kPasses)
            stream_tokens<S>(b, x, slice, pass + 1);
    }
}

/* For the multiplying warps, after grid_wait(): the block's product, laid down in `shared`. */
template <class S>
__device__ __forceinline__ void ring_passes(const Ring &ring, const bf16 *x, float *shared,
                                            int slice) {
    if constexpr (kRingAtOnce<S>)
        ring_at_once<S>(ring, x, shared, slice);
    else
        ring_in_turn<S>(ring, x, shared, slice);
}

#endif
