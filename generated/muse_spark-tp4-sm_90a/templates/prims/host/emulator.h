/* SPDX-License-Identifier: Apache-2.0
 * Where compiled kernels and the emulator (runtime/host_*) meet: one table of functions, handed to
 * each shared object through its exported lathe_emulator_bind(). Read as C by the emulator and as
 * C++ by prims; includes nothing. Whoever changes a struct here changes LATHE_EMULATOR_VERSION. */
#ifndef LATHE_PRIMS_EMULATOR_H
#define LATHE_PRIMS_EMULATOR_H

#ifdef __cplusplus
extern "C" {
#endif

#define LATHE_EMULATOR_VERSION 3

/* The CUDA thread that runs. The emulator's own record of it begins with this. */
typedef struct lathe_emulator_thread {
    unsigned int thread, threads; /* threadIdx.x, blockDim.x */
    unsigned int block[3], grid[3];
    unsigned char *shared; /* the block's dynamic shared memory */
    unsigned int shared_bytes;
    /* Not zero: stores wait in this thread's buffer, and loads must look there first. */
    unsigned int buffering;
    /* A byte for each 16 of shared memory: touched by threads since the last async_fence(). */
    unsigned char *touched;
} lathe_emulator_thread;

enum { LATHE_SPACE_SHARED, LATHE_SPACE_GLOBAL };

typedef struct lathe_emulator_table {
    unsigned int version;
    lathe_emulator_thread *(*self)(void)__attribute__((const));

    /* Slow path of shared memory: buffered, or out of bounds. */
    void (*shared_load)(const void *p, void *value, unsigned int bytes);
    void (*shared_store)(void *p, const void *value, unsigned int bytes);
    unsigned int (*shared_atomic_add)(unsigned int *p, unsigned int value);

    void (*block_sync)(unsigned int id, unsigned int threads, int whole_block);
    void (*warp_sync)(void);
    unsigned int (*shuffle)(unsigned int bits, unsigned int lane);
    unsigned int (*shuffle_xor)(unsigned int bits, unsigned int mask);
    unsigned int (*ballot)(int predicate);
    /* `row`: 16 bytes of shared memory. */
    void (*load_transposed)(unsigned int *d, const void *row);
    void (*mma_bf16)(float *d, const unsigned int *a, const unsigned int *b);

    void (*mbar_init)(unsigned long long *mbar, unsigned int arrivals);
    void (*mbar_init_fence)(void);
    void (*mbar_expect)(unsigned long long *mbar, unsigned int bytes);
    void (*mbar_arrive)(unsigned long long *mbar);
    void (*mbar_wait)(unsigned long long *mbar, unsigned int parity);
    void (*bulk_load)(void *shared, const void *global, unsigned int bytes,
                      unsigned long long *mbar);
    void (*async_fence)(void);
    void (*copy16)(void *shared, const void *global);
    void (*copy_commit)(void);
    void (*copy_wait)(unsigned int left);

    void (*cluster_sync)(void);
    /* `to` and `mbar` are the caller's; what is meant lies at the same places in that block. */
    void (*cluster_send)(unsigned int block, void *to, unsigned int word, unsigned long long *mbar);

    void (*grid_wait)(void);
    void (*grid_trigger)(void);
    void (*gpu_load)(const void *p, void *value, unsigned int bytes);
    void (*gpu_store)(void *p, const void *value, unsigned int bytes);
    void (*gpu_fence)(void);
    unsigned int (*gpu_atomic_add)(unsigned int *p, unsigned int value);
    unsigned int (*gpu_atomic_or)(unsigned int *p, unsigned int value);

    void (*peer_store)(void *p, const void *value, unsigned int bytes);
    void (*peer_load)(const void *p, void *value, unsigned int bytes);
    void (*peer_fence)(void);
    unsigned long long (*clock_ns)(void);
    void (*poll_pause)(void);
} lathe_emulator_table;

/* Exported by every object that includes prims.cuh. Returns the version it was compiled against. */
unsigned int lathe_emulator_bind(const lathe_emulator_table *table);

#ifdef __cplusplus
}
#endif

#endif
