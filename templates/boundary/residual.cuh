/* SPDX-License-Identifier: Apache-2.0
 * The gated residual and the norm after it, for a row that one block holds, whatever brought the
 * branch: b = branch * (center + gain)      where the branch has a gain; else b = branch s' = alpha
 * * s + (beta * b) * rsqrt(mean(b^2) + branch_eps) x = r16(s' * rsqrt(mean(s'^2) + eps) * (center +
 * next gain)) Everything between the bf16 branch and the bf16 x is fp32. */
#ifndef LATHE_BOUNDARY_RESIDUAL_CUH
#define LATHE_BOUNDARY_RESIDUAL_CUH

#include "boundary/row.cuh"

template <int kHidden_, int kThreads_, bool kBranchGain_, int kBranchCenter_, int kCenter_,
          bool kAux_>
struct Residual {
    using Row = RowShape<kHidden_, kThreads_>;
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

/* Allowed before grid_wait(). */
template <class R>
__device__ __forceinline__ void residual_weights(ResidualWeights<R> &to, const float *alpha,
                                                 const float *beta, const bf16 *before,
                                                 const bf16 *after) {
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        const int octet = row_octet<R::kThreads>(i);
        if (!row_has<typename R::Row>(octet))
            continue;
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

/* A thread's share of the residual stream. Called right after grid_wait(): behind an exchange its
 * latency passes while the block polls. */
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

/* From the row's branch to s_out, aux and x, all pointers at the row's first element. `stream`
 * comes from residual_stream; it may have been read from `s_out`, since each element is read and
 * written by one thread. `scratch` holds two floats per warp. */
template <class R>
__device__ __forceinline__ void
residual_finish(const u32x4 (&branch)[R::Row::kPerThread], const ResidualWeights<R> &w,
                Octet (&stream)[R::Row::kPerThread], float *s_out, float *aux, bf16 *x,
                float branch_eps, float eps, float *scratch) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        const int octet = row_octet<R::kThreads>(i);
        if (!row_has<typename R::Row>(octet))
            continue;
        squares += octet_square_sum(residual_gained<R>(branch[i], w.before[i]));
    }
    const float branch_mean =
        row_sum<R::kThreads>(squares, scratch) / static_cast<float>(R::kHidden);
    const float branch_scale = rsqrt_f32(branch_mean + branch_eps);

    squares = 0.0f;
#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        const int octet = row_octet<R::kThreads>(i);
        if (!row_has<typename R::Row>(octet))
            continue;
        const Octet b = residual_gained<R>(branch[i], w.before[i]);
#pragma unroll
        for (int j = 0; j < 8; j++)
            stream[i].v[j] =
                fma_f32(w.alpha[i].v[j], stream[i].v[j], w.beta[i].v[j] * b.v[j] * branch_scale);
        octet_store(s_out + octet * 8, stream[i]);
        if constexpr (R::kAux)
            octet_store(aux + octet * 8, stream[i]);
        squares += octet_square_sum(stream[i]);
    }
    const float mean =
        row_sum<R::kThreads>(squares, scratch + R::kThreads / 32) / static_cast<float>(R::kHidden);
    const float scale = rsqrt_f32(mean + eps);

#pragma unroll
    for (int i = 0; i < R::Row::kPerThread; i++) {
        const int octet = row_octet<R::kThreads>(i);
        if (!row_has<typename R::Row>(octet))
            continue;
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
 * output would be. All loads of half an octet are under way together. */
template <int kSplits>
__device__ __forceinline__ u32x4 residual_branch(const bf16 *branch, const float *partials,
                                                 long long at, long long stride) {
    if constexpr (kSplits == 0) {
        return octet_load_bf16(branch + at);
    } else {
        Octet sum;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            f32x4 part[kSplits];
#pragma unroll
            for (int i = 0; i < kSplits; i++)
                part[i] = *reinterpret_cast<const f32x4 *>(partials + i * stride + at + half * 4);
            f32x4 total = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < kSplits; i++)
                total = {total.x + part[i].x, total.y + part[i].y, total.z + part[i].z,
                         total.w + part[i].w};
            sum.v[half * 4] = total.x;
            sum.v[half * 4 + 1] = total.y;
            sum.v[half * 4 + 2] = total.z;
            sum.v[half * 4 + 3] = total.w;
        }
        return octet_to_bf16(sum);
    }
}

#endif
