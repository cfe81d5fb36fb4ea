// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies from global to shared memory and the barriers that say when they landed.
#ifndef LATHE_PRIMS_BULK_CUH
#define LATHE_PRIMS_BULK_CUH

#include "types.cuh"

__device__ __forceinline__ u32 shared_address(const void *p) {
    return (u32)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void mbar_init(u64 *mbar, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(mbar)),
                 "r"(arrivals)
                 : "memory");
}
// Once, by the thread that initialised, before other threads or copies use the barriers.
__device__ __forceinline__ void mbar_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::
                     : "memory");
}
// One arrival that also announces `bytes` to come.
__device__ __forceinline__ void mbar_expect(u64 *mbar, u32 bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(mbar)),
        "r"(bytes)
        : "memory");
}
__device__ __forceinline__ void mbar_arrive(u64 *mbar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(mbar)) : "memory");
}
// Returns once the phase of this parity has ended: 0 for the first, third, ... phase.
__device__ __forceinline__ void mbar_wait(u64 *mbar, u32 parity) {
    u32 done = 0;
    while (done == 0) {
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(shared_address(mbar)), "r"(parity)
                     : "memory");
    }
}

// Weights: a multiple of 16 bytes, both addresses multiples of 16. One thread calls.
__device__ __forceinline__ void bulk_load(void *shared, const void *global, u32 bytes, u64 *mbar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(mbar)),
                 "l"(kReadOnce)
                 : "memory");
}
// Sixteen bytes by the calling thread, both addresses multiples of 16. Lands at some later moment.
__device__ __forceinline__ void copy16(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(global))
                 : "memory");
}
// Ends a group of the thread's copies, which may hold none.
__device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Returns once all of the thread's groups but the last kLeft have landed. A barrier shows them to
// others.
template <int kLeft>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// All threads of the cluster's blocks, as a barrier; orders shared memory among them.
__device__ __forceinline__ void cluster_sync() {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
            : "memory");
}

// A word to `shared` in the memory of block `block` of the cluster, and 4 bytes to the mbarrier
// that stands there where `mbar` stands here. Ordered with nothing else.
__device__ __forceinline__ void cluster_send(u32 block, float *shared, float value, u64 *mbar) {
    asm volatile("{\n\t.reg .u32 a, m;\n\t"
                 "mapa.shared::cluster.u32 a, %0, %2;\n\t"
                 "mapa.shared::cluster.u32 m, %1, %2;\n\t"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [a], %3, [m];\n\t}"
                 :
                 : "r"(shared_address(shared)), "r"(shared_address(mbar)), "r"(block),
                   "r"(__float_as_uint(value))
                 : "memory");
}

// Sixteen bytes instead of four, at a multiple of 16.
__device__ __forceinline__ void cluster_send16(u32 block, f32x4 *shared, f32x4 value, u64 *mbar) {
    asm volatile("{\n\t.reg .u32 a, m;\n\t"
                 "mapa.shared::cluster.u32 a, %0, %2;\n\t"
                 "mapa.shared::cluster.u32 m, %1, %2;\n\t"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
                 "[a], {%3, %4, %5, %6}, [m];\n\t}"
                 :
                 : "r"(shared_address(shared)), "r"(shared_address(mbar)), "r"(block),
                   "r"(__float_as_uint(value.x)), "r"(__float_as_uint(value.y)),
                   "r"(__float_as_uint(value.z)), "r"(__float_as_uint(value.w))
                 : "memory");
}

// As mbar_wait, for what other blocks of the cluster sent.
__device__ __forceinline__ void cluster_wait(u64 *mbar, u32 parity) {
    u32 done = 0;
    while (done == 0) {
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(shared_address(mbar)), "r"(parity)
                     : "memory");
    }
}

// Between threads' reads and writes of shared memory and a bulk load that overwrites them.
__device__ __forceinline__ void async_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
