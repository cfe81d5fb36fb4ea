// SPDX-License-Identifier: Apache-2.0
// Pooled columns of all ranks to NVFP4: gather by mailbox, norm in fp32, one rounding to bf16, then
// block scales and codes. One block a row; every rank quantises the whole row, alike.
#ifndef LATHE_MOE_EXCHANGE_NORM_QUANTISE_CUH
#define LATHE_MOE_EXCHANGE_NORM_QUANTISE_CUH

#include "moe/pooled_exchange.cuh"
#include "moe/quantise.cuh"
#include "moe/routing.cuh"
#include "prims.cuh"

template <class C>
__device__ void
exchange_norm_quantise(const bf16 *columns, const float *partials, const bf16 *gain,
                       const float *input_gscale, u8 *codes, e4m3 *scales, const float *logits,
                       const float *bias, const int *rank, const long long *slots, int *ids,
                       float *weights, int *total_padded, int *expanded_to_permuted,
                       int *permuted_to_token, int *histogram, int *counts, int *cta_expert,
                       int *cta_limit, int *ctas, Mailbox *mailbox) {
    static_assert(C::kWidth == C::kBlocks * 16 && C::kWidth == C::kCodeBytes * 2,
                  "codes and scales must fit the width");
    static_assert(C::kWidth % C::kColumns == 0 && C::kColumns % 16 == 0,
                  "a rank's columns must be whole slots");
    constexpr u32 kThreads = C::kWarps * 32;
    constexpr int kSlots = (C::kBlocks + int(kThreads) - 1) / int(kThreads);
    float *scratch = reinterpret_cast<float *>(dynamic_shared() + kPooledPointers);
    const bool routes = C::kRoutes > 0 && block_id() == u32(C::kRows); // the block behind the rows
    const u64 row = block_id();

    u32x4 held_gain[kSlots][2];
    pooled_gains<kSlots>(held_gain, gain, kThreads, C::kBlocks);
    const float global = bits_float(load_weight4(input_gscale));
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    if constexpr (C::kRoutes > 0)
        if (routes)
            routing_open<C>(routing_shared<C>(dynamic_shared() + kPooledPointers), bias, slots);
    if (!routes)
        grid_trigger();
    grid_wait();
    if constexpr (C::kRoutes > 0)
        if (routes) {
            routing_close<C>(routing_shared<C>(dynamic_shared() + kPooledPointers), logits, rank,
                             ids, weights, total_padded, expanded_to_permuted, permuted_to_token,
                             histogram, counts, cta_expert, cta_limit, ctas);
            routing_trigger();
            return;
        }

    const u32 epoch = lamport_epoch(e);
    float v[kSlots][16];
    pooled_push<C>(e, epoch, columns, partials, row);
    pooled_gather<C, kSlots>(v, e, epoch, row);
    pooled_norm<C, kSlots>(v, held_gain, scratch);
    if (thread_id() == 0) // behind the norm's barrier: every thread has read the epoch
        lamport_close(e, epoch, u32(C::kRows));
    quantise_row<C, kSlots>(v, global, codes, scales, row);
}

#endif
