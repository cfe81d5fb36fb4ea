// SPDX-License-Identifier: Apache-2.0
// Where a thread stands in its block and grid.
#ifndef LATHE_PRIMS_INDEX_CUH
#define LATHE_PRIMS_INDEX_CUH

#include "types.cuh"

__device__ __forceinline__ u32 thread_id() {
    return threadIdx.x;
}
__device__ __forceinline__ u32 block_id() {
    return blockIdx.x;
}
__device__ __forceinline__ u32 block_id_y() {
    return blockIdx.y;
}
__device__ __forceinline__ u32 block_id_z() {
    return blockIdx.z;
}
__device__ __forceinline__ u32 grid_size() {
    return gridDim.x;
}
__device__ __forceinline__ u32 grid_size_y() {
    return gridDim.y;
}
__device__ __forceinline__ u32 grid_size_z() {
    return gridDim.z;
}
__device__ __forceinline__ u32 block_threads() {
    return blockDim.x;
}
__device__ __forceinline__ u32 lane_id() {
    return threadIdx.x & 31u;
}
__device__ __forceinline__ u32 warp_id() {
    return threadIdx.x >> 5;
}

#endif
