// SPDX-License-Identifier: Apache-2.0
// Global memory that is not read and written plainly: weights, memory that other blocks of the same
// launch touch, and the waits between launches.
#ifndef LATHE_PRIMS_MEMORY_CUH
#define LATHE_PRIMS_MEMORY_CUH

#include "types.cuh"

// Plain loads, so that the sanitizers see them.
static inline u32x4 load_weight16(const void *p) {
    return *(const u32x4 *)p;
}
static inline u32x2 load_weight8(const void *p) {
    return *(const u32x2 *)p;
}
static inline u32 load_weight4(const void *p) {
    return *(const u32 *)p;
}

static inline void grid_wait() {
    lathe_table->grid_wait();
}
static inline void grid_trigger() {
    lathe_table->grid_trigger();
}

// The emulator is not always compiled with the sanitizers; kernels show them their addresses here.
static inline void lathe_touch(const void *p, u32 bytes) {
    (void)__atomic_load_n((const u8 *)p, __ATOMIC_RELAXED);
    (void)__atomic_load_n((const u8 *)p + bytes - 1, __ATOMIC_RELAXED);
}

// Any type of 4, 8 or 16 bytes.
template <class T>
static inline T gpu_load(const T *p) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
    T value;
    lathe_touch(p, sizeof(T));
    lathe_table->gpu_load(p, &value, sizeof(T));
    return value;
}
template <class T>
static inline void gpu_store(T *p, T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
    lathe_touch(p, sizeof(T));
    lathe_table->gpu_store(p, &value, sizeof(T));
}
static inline void gpu_fence() {
    lathe_table->gpu_fence();
}
// Both are relaxed and return the word as it was.
static inline u32 gpu_atomic_add(u32 *p, u32 value) {
    lathe_touch(p, 4);
    return lathe_table->gpu_atomic_add(p, value);
}
static inline u32 gpu_atomic_or(u32 *p, u32 value) {
    lathe_touch(p, 4);
    return lathe_table->gpu_atomic_or(p, value);
}

#endif
