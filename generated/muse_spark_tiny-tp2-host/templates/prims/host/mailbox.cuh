// SPDX-License-Identifier: Apache-2.0
// Memory of other ranks, and bounded waits on it.
#ifndef LATHE_PRIMS_MAILBOX_CUH
#define LATHE_PRIMS_MAILBOX_CUH

#include "memory.cuh"

// Packets of 16 bytes appear whole or not at all.
static inline void peer_store16(void *p, u32x4 v) {
    lathe_touch(p, 16);
    lathe_table->peer_store(p, &v, 16);
}
static inline u32x4 peer_load16(const void *p) {
    u32x4 v;
    lathe_touch(p, 16);
    lathe_table->peer_load(p, &v, 16);
    return v;
}
// Single words: the abort words.
static inline void peer_store4(u32 *p, u32 v) {
    lathe_touch(p, 4);
    lathe_table->peer_store(p, &v, 4);
}
static inline u32 peer_load4(const u32 *p) {
    u32 v;
    lathe_touch(p, 4);
    lathe_table->peer_load(p, &v, 4);
    return v;
}
static inline void peer_fence() {
    lathe_table->peer_fence();
}
static inline u64 clock_ns() {
    return lathe_table->clock_ns();
}
constexpr u32 kPollLooks = 2;
static inline void poll_pause() {
    lathe_table->poll_pause();
}

#endif
