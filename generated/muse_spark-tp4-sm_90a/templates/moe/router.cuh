// SPDX-License-Identifier: Apache-2.0
// Router logits on CUDA cores: products of a bf16 and an fp32 number are exact before the fp32 sum,
// so that selection does not hang on how a weight was rounded. A block owns a few experts, its
// threads split the hidden width; the first weights are on their way before the activations exist.
#ifndef LATHE_MOE_ROUTER_CUH
#define LATHE_MOE_ROUTER_CUH

#include "prims.cuh"

// Chunk of four k that this thread holds at `slot` of the given piece.
template <class C>
__device__ __forceinline__ u32 router_chunk(u32 piece, u32 slot) {
    return (piece * u32(C::kHeld) + slot) * u32(C::kWarps * 32) + thread_id();
}

template <class C>
__device__ __forceinline__ void router_fetch(u32x4 (&held)[C::kHeld][C::kBlockExperts],
                                             const float *w, u32 piece) {
    const u32 first = block_id() * u32(C::kBlockExperts);
#pragma unroll
    for (int h = 0; h < C::kHeld; ++h) {
        const u32 chunk = router_chunk<C>(piece, u32(h));
        if (chunk < u32(C::kHidden / 4)) {
#pragma unroll
            for (int e = 0; e < C::kBlockExperts; ++e)
                held[h][e] = load_weight16(w + u64(first + u32(e)) * C::kHidden + chunk * 4);
        }
    }
}

// sum[e][r] += four products.
template <class C>
__device__ __forceinline__ void router_multiply(float (&sum)[C::kBlockExperts][C::kRows],
                                                const u32x4 (&w)[C::kBlockExperts], const bf16 *x,
                                                u32 chunk) {
#pragma unroll
    for (int r = 0; r < C::kRows; ++r) {
        const u32x2 v = *reinterpret_cast<const u32x2 *>(x + u64(r) * C::kHidden + chunk * 4);
#pragma unroll
        for (int e = 0; e < C::kBlockExperts; ++e) {
            float s = sum[e][r];
            s = fma_f32(bf16_low(v.x), bits_float(w[e].x), s);
            s = fma_f32(bf16_high(v.x), bits_float(w[e].y), s);
            s = fma_f32(bf16_low(v.y), bits_float(w[e].z), s);
            sum[e][r] = fma_f32(bf16_high(v.y), bits_float(w[e].w), s);
        }
    }
}

// Adds the sums of the block's threads, always in the same order, and writes the logits.
template <class C>
__device__ __forceinline__ void router_finish(float (&sum)[C::kBlockExperts][C::kRows],
                                              float *logits) {
    constexpr int kSums = C::kBlockExperts * C::kRows;
    float *partial = reinterpret_cast<float *>(dynamic_shared()); // [kWarps][kBlockExperts][kRows]
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
        float s = sum[i / C::kRows][i % C::kRows];
#pragma unroll
        for (u32 mask = 16; mask > 0; mask /= 2)
            s += warp_shuffle_xor(s, mask);
        if (lane_id() == u32(i % 32))
            shared_store(partial + warp_id() * u32(kSums) + i, s);
    }
    block_sync();
    for (u32 i = thread_id(); i < u32(kSums); i += u32(C::kWarps * 32)) {
        float s = 0;
        for (int warp = 0; warp < C::kWarps; ++warp)
            s += shared_load(partial + warp * kSums + i);
        const u32 expert = block_id() * u32(C::kBlockExperts) + i / u32(C::kRows);
        logits[(i % u32(C::kRows)) * u32(C::kExperts) + expert] = s;
    }
}

template <class C>
__device__ void router(const bf16 *x, const float *w, float *logits) {
    static_assert(C::kHidden % 4 == 0, "the hidden width must be a multiple of 4");
    static_assert(C::kExperts % C::kBlockExperts == 0, "a block owns whole experts");
    constexpr int kPiece = C::kHeld * C::kWarps * 32; // chunks a block holds at a time
    constexpr int kPieces = (C::kHidden / 4 + kPiece - 1) / kPiece;

    u32x4 held[C::kHeld][C::kBlockExperts];
    router_fetch<C>(held, w, 0);
    grid_trigger();
    grid_wait();

    float sum[C::kBlockExperts][C::kRows] = {};
    for (u32 piece = 0; piece < u32(kPieces); ++piece) {
        if (piece > 0)
            router_fetch<C>(held, w, piece);
#pragma unroll
        for (int h = 0; h < C::kHeld; ++h) {
            const u32 chunk = router_chunk<C>(piece, u32(h));
            if (chunk < u32(C::kHidden / 4))
                router_multiply<C>(sum, held[h], x, chunk);
        }
    }
    router_finish<C>(sum, logits);
}

#endif
