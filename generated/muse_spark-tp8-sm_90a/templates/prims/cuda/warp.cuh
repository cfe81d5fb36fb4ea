// SPDX-License-Identifier: Apache-2.0
// What the 32 lanes of a warp do together. Every lane must call.
#ifndef LATHE_PRIMS_WARP_CUH
#define LATHE_PRIMS_WARP_CUH

#include "types.cuh"

__device__ __forceinline__ void warp_sync() {
    __syncwarp();
}
// T: float, int or u32. Orders no memory.
template <class T>
__device__ __forceinline__ T warp_shuffle(T value, u32 lane) {
    return __shfl_sync(0xffffffffu, value, (int)lane);
}
template <class T>
__device__ __forceinline__ T warp_shuffle_xor(T value, u32 mask) {
    return __shfl_xor_sync(0xffffffffu, value, (int)mask);
}
__device__ __forceinline__ u32 warp_ballot(bool predicate) {
    return __ballot_sync(0xffffffffu, predicate);
}
__device__ __forceinline__ u32 warp_max(u32 value) {
    return __reduce_max_sync(0xffffffffu, value);
}
__device__ __forceinline__ u32 warp_min(u32 value) {
    return __reduce_min_sync(0xffffffffu, value);
}

// Four 8 x 8 matrices of bf16 from shared memory, transposed. Lane 8 m + r names row r of matrix m,
// 16 bytes at a multiple of 16; with g = lane / 4 and t = lane % 4, d[m] is column g of its rows 2t,
// 2t+1: what mma_bf16 wants as b of rows that are k.
__device__ __forceinline__ void load_transposed(u32 (&d)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"((u32)__cvta_generic_to_shared(row))
                 : "memory");
}

// d[16x8] += a[16x16] b[16x8]; bf16 pairs, low half first; fp32 accumulation. With g = lane / 4 and
// t = lane % 4: a[0] row g, a[1] row g+8, both columns 2t 2t+1; a[2] and a[3] the same rows,
// columns 2t+8 2t+9; b[0] rows 2t 2t+1, b[1] rows 2t+8 2t+9, both column g; d[0] d[1] row g,
// columns 2t 2t+1; d[2] d[3] row g+8.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif
