/* SPDX-License-Identifier: Apache-2.0
 * y[rows, n] = x[rows, k] w[n, k]^T for few rows, rounded to bf16 and published: eight neighbours
 * of a token are a packet, which goes straight into every rank's slot. Waiting for peers is left to
 * the launch that receives, which also ends the exchange; so any number of blocks may publish.
 *
 * The products are those of gemm/skinny with the same tactic, bit for bit. */
#ifndef LATHE_GEMM_PUBLISH_CUH
#define LATHE_GEMM_PUBLISH_CUH

#include "collective/lamport.cuh"
#include "gemm/stream.cuh"

__device__ __forceinline__ u32x4 publish_packet(f32x4 low, f32x4 high) {
    return lamport_bf16_packet({pack_bf16(low.x, low.y), pack_bf16(low.z, low.w),
                                pack_bf16(high.x, high.y), pack_bf16(high.z, high.w)});
}

template <class C>
__device__ void publish_gemm(const bf16 *x, const bf16 *w, Mailbox *y_columns, Mailbox *y_parts) {
    using S = Stream<C::kRows, C::kN, C::kK, 1, C::kTiles, C::kWarps, C::kSteps, C::kStages>;
    static_assert(S::kWholeTiles, "N must be a multiple of 16");
    u64 *const peers = reinterpret_cast<u64 *>(dynamic_shared());
    float *const shared = reinterpret_cast<float *>(dynamic_shared() + kLamportShared);
    const int row0 = static_cast<int>(block_id()) * S::kBlockRows;
    const Mailbox *const mailbox = C::kColumns == 1 ? y_columns : y_parts;
    const u32 *const number = lamport_pointer(&mailbox->epoch);
    lamport_lay_down(mailbox, peers);
    StreamStart<S> start;
    stream_begin<S>(start, w, shared, row0, 0);
    const u32 epoch = gpu_load(number); /* on its way while the block multiplies */
    stream_end<S>(start, x, w, shared, row0, 0);

    const Exchange e = lamport_take_up(mailbox, peers);
    constexpr int kOctets = S::kBlockRows / 8;
    for (int i = static_cast<int>(thread_id()); i < C::kRows * kOctets; i += S::kThreads) {
        const int token = i / kOctets, row = i % kOctets * 8;
        if (!S::kWholeBlocks && row0 + row >= C::kN)
            continue;
        const u32x4 packet = publish_packet(stream_sum<S>(shared, token, row),
                                            stream_sum<S>(shared, token, row + 4));
        lamport_push(e, epoch, (static_cast<u64>(token) * C::kN + static_cast<u64>(row0 + row)) * 2,
                     packet);
    }
}

#endif
