// SPDX-License-Identifier: Apache-2.0
// A warp's own ring of units: it fetches, waits and releases without meeting any other warp. Units
// of a task lie one after the other, so a warp's share of a task is a run of them. A source is a
// ring and what its units are; unit_refill(source, slot) fetches the next one.
#ifndef LATHE_MOE_UNIT_RING_CUH
#define LATHE_MOE_UNIT_RING_CUH

#include "moe/unit.cuh"
#include "prims.cuh"

struct UnitRing {
    u32 stages, landed; // bytes from the start of shared memory
    u32 slot, phase;    // of the next unit to be read
    const u8 *next;     // unit to be fetched next; null: none
    u32 left;           // units of its task from there on
};

// `warp`: number of the ring; `landed`: barriers of all rings, bytes from the start of shared
// memory.
template <int kStages, int kUnitBytes>
__device__ __forceinline__ UnitRing unit_ring(u32 landed, u32 warp) {
    UnitRing ring;
    ring.stages = keep_register(warp * u32(kStages * kUnitBytes));
    ring.landed = keep_register(landed + warp * u32(kStages * 8));
    ring.slot = 0;
    ring.phase = 0;
    ring.next = nullptr;
    ring.left = 0;
    return ring;
}

__device__ __forceinline__ u64 *unit_ring_landed(const UnitRing &ring, u32 slot) {
    return reinterpret_cast<u64 *>(dynamic_shared() + ring.landed + slot * 8);
}

// By one lane; mbar_init_fence() and a barrier of the block follow before the first fetch.
__device__ __forceinline__ void unit_ring_init(const UnitRing &ring, u32 stages) {
    for (u32 i = 0; i < stages; ++i)
        mbar_init(unit_ring_landed(ring, i), 1);
}

// Fetches the ring's next unit into `slot`. By the warp's first lane, which alone knows what is
// next.
__device__ __forceinline__ void unit_ring_fetch(UnitRing &ring, u32 slot, u32 bytes) {
    if (ring.next == nullptr)
        return;
    async_fence();
    mbar_expect(unit_ring_landed(ring, slot), bytes);
    bulk_load(dynamic_shared() + ring.stages + slot * bytes, ring.next, bytes,
              unit_ring_landed(ring, slot));
    ring.next += bytes;
}

// The unit to be read: valid until it is released.
template <int kUnitBytes>
__device__ __forceinline__ const u8 *unit_ring_wait(const UnitRing &ring) {
    mbar_wait(unit_ring_landed(ring, ring.slot), ring.phase);
    return dynamic_shared() + ring.stages + ring.slot * u32(kUnitBytes);
}

__device__ __forceinline__ void unit_ring_turn(UnitRing &ring, u32 stages) {
    if (++ring.slot == stages) {
        ring.slot = 0;
        ring.phase ^= 1;
    }
}

// The next unit in registers; its stage is free again and refilled.
template <int kStages, int kUnitBytes, int kChunks, class S>
__device__ __forceinline__ void unit_take(UnitPiece<kChunks> &piece, S &source) {
    unit_read<kChunks>(piece, unit_ring_wait<kUnitBytes>(source.ring));
    warp_sync();
    if (lane_id() == 0)
        unit_refill(source, source.ring.slot);
    unit_ring_turn(source.ring, u32(kStages));
}

#endif
