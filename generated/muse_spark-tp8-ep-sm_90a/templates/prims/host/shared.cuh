// SPDX-License-Identifier: Apache-2.0
// Shared memory and the barriers of a block.
#ifndef LATHE_PRIMS_SHARED_CUH
#define LATHE_PRIMS_SHARED_CUH

#include "types.cuh"

static inline void block_sync() {
    lathe_table->block_sync(0, 0, 1);
}
// Barriers 1 to 15; `threads` is a multiple of 32.
static inline void block_sync_named(u32 id, u32 threads) {
    lathe_table->block_sync(id, threads, 0);
}

static inline u8 *dynamic_shared() {
    return lathe_table->self()->shared;
}

// Whether an access needs no help: inside shared memory, and nothing of this thread's is pending.
static inline bool lathe_shared_direct(const void *p, u32 bytes) {
    const lathe_emulator_thread *t = lathe_table->self();
    const u64 offset = (u64)p - (u64)t->shared;
    if (offset + bytes > t->shared_bytes || offset > t->shared_bytes || t->buffering)
        return false;
    t->touched[offset >> 4] = 1;
    return true;
}
template <class T>
static inline T shared_load(const T *p) {
    if (lathe_shared_direct(p, sizeof(T)))
        return *p;
    T value;
    lathe_table->shared_load(p, &value, sizeof(T));
    return value;
}
template <class T>
static inline void shared_store(T *p, T value) {
    if (lathe_shared_direct(p, sizeof(T)))
        *p = value;
    else
        lathe_table->shared_store(p, &value, sizeof(T));
}
static inline u32 shared_atomic_add(u32 *p, u32 value) {
    return lathe_table->shared_atomic_add(p, value);
}

#endif
