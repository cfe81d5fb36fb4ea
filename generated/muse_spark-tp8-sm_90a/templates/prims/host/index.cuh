// SPDX-License-Identifier: Apache-2.0
// Where a thread stands in its block and grid.
#ifndef LATHE_PRIMS_INDEX_CUH
#define LATHE_PRIMS_INDEX_CUH

#include "types.cuh"

static inline u32 thread_id() {
    return lathe_table->self()->thread;
}
static inline u32 block_id() {
    return lathe_table->self()->block[0];
}
static inline u32 block_id_y() {
    return lathe_table->self()->block[1];
}
static inline u32 block_id_z() {
    return lathe_table->self()->block[2];
}
static inline u32 grid_size() {
    return lathe_table->self()->grid[0];
}
static inline u32 grid_size_y() {
    return lathe_table->self()->grid[1];
}
static inline u32 grid_size_z() {
    return lathe_table->self()->grid[2];
}
static inline u32 block_threads() {
    return lathe_table->self()->threads;
}
static inline u32 lane_id() {
    return lathe_table->self()->thread & 31u;
}
static inline u32 warp_id() {
    return lathe_table->self()->thread >> 5;
}

#endif
