// SPDX-License-Identifier: Apache-2.0
// Global memory that is not read and written plainly: weights, memory that other blocks of the same
// launch touch, and the waits between launches.
#ifndef LATHE_PRIMS_MEMORY_CUH
#define LATHE_PRIMS_MEMORY_CUH

#include "types.cuh"

// Volatile, so that a load written before grid_wait() is issued before it.
__device__ __forceinline__ u32x4 load_weight16(const void *p) {
    u32x4 v;
    asm volatile(
        "ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(__cvta_generic_to_global(p)), "l"(kReadOnce));
    return v;
}
__device__ __forceinline__ u32x2 load_weight8(const void *p) {
    u32x2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(__cvta_generic_to_global(p)));
    return v;
}
__device__ __forceinline__ u32 load_weight4(const void *p) {
    u32 v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];"
                 : "=r"(v)
                 : "l"(__cvta_generic_to_global(p)));
    return v;
}

__device__ __forceinline__ void grid_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void grid_trigger() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Any type of 4, 8 or 16 bytes: relaxed, at gpu scope, so from L2.
template <class T>
__device__ __forceinline__ T gpu_load(const T *p) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
    T value;
    if constexpr (sizeof(T) == 4) {
        u32 v;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                     : "=r"(v)
                     : "l"(__cvta_generic_to_global(p))
                     : "memory");
        memcpy(&value, &v, 4);
    } else if constexpr (sizeof(T) == 8) {
        u64 v;
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                     : "=l"(v)
                     : "l"(__cvta_generic_to_global(p))
                     : "memory");
        memcpy(&value, &v, 8);
    } else {
        u32x4 v;
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(__cvta_generic_to_global(p))
                     : "memory");
        memcpy(&value, &v, 16);
    }
    return value;
}
template <class T>
__device__ __forceinline__ void gpu_store(T *p, T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
    if constexpr (sizeof(T) == 4) {
        u32 v;
        memcpy(&v, &value, 4);
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)),
                     "r"(v)
                     : "memory");
    } else if constexpr (sizeof(T) == 8) {
        u64 v;
        memcpy(&v, &value, 8);
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(p)),
                     "l"(v)
                     : "memory");
    } else {
        u32x4 v;
        memcpy(&v, &value, 16);
        asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                         __cvta_generic_to_global(p)),
                     "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
    }
}
__device__ __forceinline__ void gpu_fence() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
// Both are relaxed and return the word as it was.
__device__ __forceinline__ u32 gpu_atomic_add(u32 *p, u32 value) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(__cvta_generic_to_global(p)), "r"(value)
                 : "memory");
    return old;
}
__device__ __forceinline__ u32 gpu_atomic_or(u32 *p, u32 value) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(__cvta_generic_to_global(p)), "r"(value)
                 : "memory");
    return old;
}

#endif
