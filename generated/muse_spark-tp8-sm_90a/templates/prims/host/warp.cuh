// SPDX-License-Identifier: Apache-2.0
// What the 32 lanes of a warp do together. The emulator reports lanes that do not take part.
#ifndef LATHE_PRIMS_WARP_CUH
#define LATHE_PRIMS_WARP_CUH

#include "types.cuh"

static inline void warp_sync() {
    lathe_table->warp_sync();
}
// T: float, int or u32. Orders no memory.
template <class T>
static inline T warp_shuffle(T value, u32 lane) {
    static_assert(sizeof(T) == 4, "float, int or u32");
    u32 bits;
    __builtin_memcpy(&bits, &value, 4);
    bits = lathe_table->shuffle(bits, lane);
    __builtin_memcpy(&value, &bits, 4);
    return value;
}
template <class T>
static inline T warp_shuffle_xor(T value, u32 mask) {
    static_assert(sizeof(T) == 4, "float, int or u32");
    u32 bits;
    __builtin_memcpy(&bits, &value, 4);
    bits = lathe_table->shuffle_xor(bits, mask);
    __builtin_memcpy(&value, &bits, 4);
    return value;
}
static inline u32 warp_ballot(bool predicate) {
    return lathe_table->ballot(predicate);
}
static inline u32 warp_max(u32 value) {
    for (u32 mask = 16; mask > 0; mask /= 2) {
        const u32 other = lathe_table->shuffle_xor(value, mask);
        value = other > value ? other : value;
    }
    return value;
}
static inline u32 warp_min(u32 value) {
    return ~warp_max(~value);
}
static inline void load_transposed(u32 (&d)[4], const void *row) {
    lathe_table->load_transposed(d, row);
}
static inline void mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    lathe_table->mma_bf16(d, a, b);
}

#endif
