// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies from global to shared memory and the barriers that say when they landed.
#ifndef LATHE_PRIMS_BULK_CUH
#define LATHE_PRIMS_BULK_CUH

#include "memory.cuh"

static inline void mbar_init(u64 *mbar, u32 arrivals) {
    lathe_table->mbar_init(mbar, arrivals);
}
// Once, by the thread that initialised, before other threads or copies use the barriers.
static inline void mbar_init_fence() {
    lathe_table->mbar_init_fence();
}
// One arrival that also announces `bytes` to come.
static inline void mbar_expect(u64 *mbar, u32 bytes) {
    lathe_table->mbar_expect(mbar, bytes);
}
static inline void mbar_arrive(u64 *mbar) {
    lathe_table->mbar_arrive(mbar);
}
// Returns once the phase of this parity has ended: 0 for the first, third, ... phase.
static inline void mbar_wait(u64 *mbar, u32 parity) {
    lathe_table->mbar_wait(mbar, parity);
}
// A multiple of 16 bytes, both addresses multiples of 16. One thread calls.
static inline void bulk_load(void *shared, const void *global, u32 bytes, u64 *mbar) {
    if (bytes)
        lathe_touch(global, bytes);
    lathe_table->bulk_load(shared, global, bytes, mbar);
}
// Sixteen bytes by the calling thread, both addresses multiples of 16. Lands at some later moment.
static inline void copy16(void *shared, const void *global) {
    lathe_touch(global, 16);
    lathe_table->copy16(shared, global);
}
// Ends a group of the thread's copies, which may hold none.
static inline void copy_commit() {
    lathe_table->copy_commit();
}
// Returns once all of the thread's groups but the last kLeft have landed. A barrier shows them to
// others.
template <int kLeft>
static inline void copy_wait() {
    lathe_table->copy_wait(kLeft);
}
// Between threads' reads and writes of shared memory and a bulk load that overwrites them.
static inline void async_fence() {
    lathe_table->async_fence();
}

static inline void cluster_sync() {
    lathe_table->cluster_sync();
}
static inline void cluster_send(u32 block, float *shared, float value, u64 *mbar) {
    lathe_table->cluster_send(block, shared, float_bits(value), mbar);
}
static inline void cluster_send16(u32 block, f32x4 *shared, f32x4 value, u64 *mbar) {
    const float words[4] = {value.x, value.y, value.z, value.w};
    for (int i = 0; i < 4; i++)
        cluster_send(block, (float *)shared + i, words[i], mbar);
}
static inline void cluster_wait(u64 *mbar, u32 parity) {
    lathe_table->mbar_wait(mbar, parity);
}

#endif
