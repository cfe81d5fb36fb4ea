// SPDX-License-Identifier: Apache-2.0
// Memory of other ranks, and bounded waits on it.
#ifndef LATHE_PRIMS_MAILBOX_CUH
#define LATHE_PRIMS_MAILBOX_CUH

#include "types.cuh"

// Packets of 16 bytes appear whole or not at all.
__device__ __forceinline__ void peer_store16(void *p, u32x4 v) {
    asm volatile(
        "st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
        "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
        : "memory");
}
__device__ __forceinline__ u32x4 peer_load16(const void *p) {
    u32x4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
}
// Single words: the abort words.
__device__ __forceinline__ void peer_store4(u32 *p, u32 v) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(v)
                 : "memory");
}
__device__ __forceinline__ u32 peer_load4(const u32 *p) {
    u32 v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];"
                 : "=r"(v)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
}
__device__ __forceinline__ void peer_fence() {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}
__device__ __forceinline__ u64 clock_ns() {
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}
// How often to look for a packet before time, the abort word and poll_pause() have their turn.
constexpr u32 kPollLooks = 64;
__device__ __forceinline__ void poll_pause() {
    asm volatile("nanosleep.u32 20;" ::: "memory");
}

#endif
