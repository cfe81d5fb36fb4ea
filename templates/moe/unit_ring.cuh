// SPDX-License-Identifier: Apache-2.0
// A warp's own ring of units: it fetches, waits and releases without meeting any other warp. Units
// of a task lie one after the other, so a warp's share of a task is a run of them.
#ifndef LATHE_MOE_UNIT_RING_CUH
#define LATHE_MOE_UNIT_RING_CUH

#include "prims.cuh"

struct UnitRing {
    u8 *stages;
    u64 *landed;
    u32 slot, phase; // of the next unit to be read
    const u8 *next;  // unit to be fetched next; null: none
    u32 left;        // units of its task from there on
};

// `warp`: number of the ring.
template <int kStages, int kUnitBytes>
__device__ __forceinline__ UnitRing unit_ring(u8 *stages, u64 *landed, u32 warp) {
    UnitRing ring;
    ring.stages = stages + warp * u32(kStages * kUnitBytes);
    ring.landed = landed + warp * u32(kStages);
    ring.slot = 0;
    ring.phase = 0;
    ring.next = nullptr;
    ring.left = 0;
    return ring;
}

// By one lane; mbar_init_fence() and a barrier of the block follow before the first fetch.
__device__ __forceinline__ void unit_ring_init(const UnitRing &ring, u32 stages) {
    for (u32 i = 0; i < stages; ++i)
        mbar_init(ring.landed + i, 1);
}

// Fetches the ring's next unit into `slot`; the caller moves on.
template <int kUnitBytes>
__device__ __forceinline__ void unit_ring_fetch(const UnitRing &ring, u32 slot) {
    if (lane_id() == 0 && ring.next != nullptr) {
        async_fence();
        mbar_expect(ring.landed + slot, u32(kUnitBytes));
        bulk_load(ring.stages + slot * u32(kUnitBytes), ring.next, u32(kUnitBytes),
                  ring.landed + slot);
    }
}

// The unit to be read: valid until it is released.
template <int kUnitBytes>
__device__ __forceinline__ const u8 *unit_ring_wait(const UnitRing &ring) {
    mbar_wait(ring.landed + ring.slot, ring.phase);
    return ring.stages + ring.slot * u32(kUnitBytes);
}

__device__ __forceinline__ void unit_ring_turn(UnitRing &ring, u32 stages) {
    if (++ring.slot == stages) {
        ring.slot = 0;
        ring.phase ^= 1;
    }
}

#endif
