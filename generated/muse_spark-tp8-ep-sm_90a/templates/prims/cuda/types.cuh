// SPDX-License-Identifier: Apache-2.0
// Element types, vectors and the mailbox descriptor.
#ifndef LATHE_PRIMS_TYPES_CUH
#define LATHE_PRIMS_TYPES_CUH

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// L2's policy evict_first, as createpolicy.fractional makes it for all of an access. Weights pass through
// L2 once a step and are twice its size a layer: what they do not push out of it is code, rows, flags.
constexpr u64 kReadOnce = 0x12f0000000000000ull;

struct bf16 {
    u16 bits;
};
struct e4m3 {
    u8 bits;
};
struct alignas(8) u32x2 {
    u32 x, y;
};
struct alignas(16) u32x4 {
    u32 x, y, z, w;
};
struct alignas(8) f32x2 {
    float x, y;
};
struct alignas(16) f32x4 {
    float x, y, z, w;
};

// One exchange kind. Written by the runtime at build; epoch[] by kernels.
struct Mailbox {
    u32 rank, world;
    u64 slot_bytes; // bytes of one rank's payload in one slot, rounded up to 16
    u64 timeout_ns;
    u32 *epoch; // [0]: number of this kind's next exchange; [1]: arrivals, zero between launches
    u32 *abort; // set by anyone who gives up; peers set it too
    u64 *fault; // [4]: lost flag, peer, exchange, epoch; host-visible
    u32 exchange, pad;
    u8 *base[16]; // every rank's region: [3 slots][world][slot_bytes]
    u32 *peer_abort[16];
};

#endif
