// SPDX-License-Identifier: Apache-2.0
// Shared memory and the barriers of a block.
#ifndef LATHE_PRIMS_SHARED_CUH
#define LATHE_PRIMS_SHARED_CUH

#include "types.cuh"

__device__ __forceinline__ void block_sync() {
    __syncthreads();
}
// Barriers 1 to 15; `threads` is a multiple of 32.
__device__ __forceinline__ void block_sync_named(u32 id, u32 threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ u8 *dynamic_shared() {
    extern __shared__ __align__(1024) u8 lathe_dynamic_shared[];
    return lathe_dynamic_shared;
}
template <class T>
__device__ __forceinline__ T shared_load(const T *p) {
    return *p;
}
template <class T>
__device__ __forceinline__ void shared_store(T *p, T value) {
    *p = value;
}
__device__ __forceinline__ u32 shared_atomic_add(u32 *p, u32 value) {
    return atomicAdd(p, value);
}

#endif
