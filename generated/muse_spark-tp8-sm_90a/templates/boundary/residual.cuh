/* SPDX-License-Identifier: Apache-2.0
 * The gated residual and the norm after it, for a row that kBlocks blocks hold, whatever brought
 * the branch:
 *   b  = branch * (center + gain)                     where the branch has a gain; else b = branch
 *   s' = alpha * s + beta * b * rsqrt(mean(b^2) + branch_eps)
 *   x  = r16(s' * rsqrt(mean(s'^2) + eps) * (center + next gain))
 * Everything between the bf16 branch and the bf16 x is fp32.
 *
 * The row is summed once for both norms: with p = alpha s, q = beta b and r the scale of the
 * branch, the sum of s'^2 is that of p^2 + 2 r p q + r^2 q^2. Where the stream and the branch
 * nearly cancel, or a sum overflows, that loses digits, and s'^2 is summed by itself. */
#ifndef LATHE_BOUNDARY_RESIDUAL_CUH
#define LATHE_BOUNDARY_RESIDUAL_CUH

#include "boundary/row.cuh"

template <int kHidden_, int kThreads_, int kBlocks_, bool kBranchGain_, int kBranchCenter_,
          int kCenter_, bool kAux_>
struct Residual {
    using Row = RowShape<kHidden_, kThreads_, kBlocks_>;
    static constexpr int kHidden = kHidden_, kThreads = kThreads_;
    static constexpr bool kBranchGain = kBranchGain_, kAux = kAux_;
    static constexpr float kBranchCenter = kBranchCenter_, kCenter = kCenter_;
};

/* A thread's share of what does not depend on the step. */
template <class R>
struct ResidualWeights {
    Octet alpha[R::Row::kPerThread], beta[R::Row::kPerThread];
    u32x4 before[R::Row::kPerThread], after[R::Row::kPerThread];
};

/* Allowed before grid_wait(). All pointers at the first element of the row. */
template <class R>
__device__ __forceinline__ void residual_weights(ResidualWeights<R> &to, const float *alpha,
                                                 const float *beta, const bf16 *before,
                                                 const bf16 *after) {
    const int first = row_part<typename R::Row>() * R::Row::kOctets;
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        if (!row_has<typename R::Row>(row_octet<R::kThreads>(i)))
            continue;
        const int octet = first + row_octet<R::kThreads>(i);
        to.alpha[i] = octet_load_weight(alpha + octet * 8);
        to.beta[i] = octet_load_weight(beta + octet * 8);
        if constexpr (R::kBranchGain)
            to.before[i] = load_weight16(before + octet * 8);
        to.after[i] = load_weight16(after + octet * 8);
    }
}

/* The branch with its gain. */
template <class R>
__device__ __forceinline__ Octet residual_gained(u32x4 branch, u32x4 before) {
    Octet b = octet_of_bf16(branch);
    if constexpr (R::kBranchGain) {
        const Octet w = octet_of_bf16(before);
#pragma unroll
        for (int j = 0; j < 8; j++)
            b.v[j] *= w.v[j] + R::kBranchCenter;
    }
    return b;
}

/* A thread's share of the residual stream; `s` at the block's first element of the row. Called
 * right after grid_wait(): behind an exchange its latency passes while the block polls. */
template <class R>
__device__ __forceinline__ void residual_stream(Octet (&stream)[R::Row::kPerThread],
                                                const float *s) {
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        const int octet = row_octet<R::kThreads>(i);
        if (row_has<typename R::Row>(octet))
            stream[i] = octet_load(s + octet * 8);
    }
}

/* Makes p of the stream and q of beta, and the row's sums of b^2, p^2, p q and q^2. */
template <class R>
__device__ __forceinline__ void
residual_sums(float (&sums)[4], const u32x4 (&branch)[R::Row::kPerThread], ResidualWeights<R> &w,
              Octet (&stream)[R::Row::kPerThread], u8 *shared) {
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        if (!row_has<typename R::Row>(row_octet<R::kThreads>(i)))
            continue;
        const Octet b = residual_gained<R>(branch[i], w.before[i]);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float p = w.alpha[i].v[j] * stream[i].v[j], q = w.beta[i].v[j] * b.v[j];
            sums[0] = fma_f32(b.v[j], b.v[j], sums[0]);
            sums[1] = fma_f32(p, p, sums[1]);
            sums[2] = fma_f32(p, q, sums[2]);
            sums[3] = fma_f32(q, q, sums[3]);
            stream[i].v[j] = p;
            w.beta[i].v[j] = q;
        }
    }
    row_sums<typename R::Row>(sums, shared, 0);
}

/* The sum of s'^2 by itself. */
template <class R>
__device__ __forceinline__ float residual_square_sum(const Octet (&stream)[R::Row::kPerThread],
                                                     u8 *shared) {
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++)
        if (row_has<typename R::Row>(row_octet<R::kThreads>(i)))
            sums[0] += octet_square_sum(stream[i]);
    row_sums<typename R::Row>(sums, shared, 1);
    return sums[0];
}

/* s' into `stream`. Returns the sum of its squares over the row. */
template <class R>
__device__ __forceinline__ float
residual_update(const u32x4 (&branch)[R::Row::kPerThread], ResidualWeights<R> &w,
                Octet (&stream)[R::Row::kPerThread], float branch_eps, u8 *shared) {
    float sums[4] = {};
    residual_sums<R>(sums, branch, w, stream, shared);
    const float scale = rsqrt_f32(sums[0] / static_cast<float>(R::kHidden) + branch_eps);
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        if (!row_has<typename R::Row>(row_octet<R::kThreads>(i)))
            continue;
#pragma unroll
        for (int j = 0; j < 8; j++)
            stream[i].v[j] = fma_f32(w.beta[i].v[j], scale, stream[i].v[j]);
    }
    const float apart = fma_f32(scale * scale, sums[3], sums[1]);
    const float total = fma_f32(2.0f * scale, sums[2], apart);
    /* The same for all threads of the row. A NaN takes the longer way. */
    if (total * 64.0f >= apart && apart <= 1e37f)
        return total;
    return residual_square_sum<R>(stream, shared);
}

/* From the row's branch to s_out, aux and x, all pointers at the block's first element of the row.
 * `stream` comes from residual_stream; it may have been read from `s_out`, since each element is
 * read and written by one thread. `shared` is what row_open() was given. */
template <class R>
__device__ __forceinline__ void
residual_finish(const u32x4 (&branch)[R::Row::kPerThread], ResidualWeights<R> &w,
                Octet (&stream)[R::Row::kPerThread], float *s_out, float *aux, bf16 *x,
                float branch_eps, float eps, u8 *shared) {
    const float mean =
        residual_update<R>(branch, w, stream, branch_eps, shared) / static_cast<float>(R::kHidden);
    const float scale = rsqrt_f32(mean + eps);
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        const int octet = row_octet<R::kThreads>(i);
        if (!row_has<typename R::Row>(octet))
            continue;
        octet_store(s_out + octet * 8, stream[i]);
        if constexpr (R::kAux)
            octet_store(aux + octet * 8, stream[i]);
        const Octet gain = octet_of_bf16(w.after[i]);
        Octet out;
#pragma unroll
        for (int j = 0; j < 8; j++)
            out.v[j] = stream[i].v[j] * scale * (gain.v[j] + R::kCenter);
        octet_store_bf16(x + octet * 8, octet_to_bf16(out));
    }
}

/* An octet of the branch at element `at`: whole as bf16 (kSplits 0), or the sum of kSplits fp32
 * partials `stride` elements apart, from +0 upwards in fp32 and rounded once, as the GEMM's own
 * output would be. All loads of an octet (beyond eight splits: of half of one) are under way
 * together. */
template <int kSplits>
__device__ __forceinline__ u32x4 residual_branch(const bf16 *branch, const float *partials,
                                                 long long at, long long stride) {
    if constexpr (kSplits == 0) {
        return octet_load_bf16(branch + at);
    } else {
        constexpr int kHalves = kSplits > 8 ? 1 : 2;
        Octet sum = {};
#pragma unroll
        for (int half = 0; half < 2; half += kHalves) {
            f32x4 part[kSplits][kHalves];
#pragma unroll
            for (int i = 0; i < kSplits; i++)
#pragma unroll
                for (int h = 0; h < kHalves; h++)
                    part[i][h] = *reinterpret_cast<const f32x4 *>(partials + i * stride + at +
                                                                  (half + h) * 4);
#pragma unroll
            for (int h = 0; h < kHalves; h++)
#pragma unroll
                for (int i = 0; i < kSplits; i++) {
                    float *const to = sum.v + (half + h) * 4;
                    to[0] += part[i][h].x;
                    to[1] += part[i][h].y;
                    to[2] += part[i][h].z;
                    to[3] += part[i][h].w;
                }
        }
        return octet_to_bf16(sum);
    }
}

#endif
