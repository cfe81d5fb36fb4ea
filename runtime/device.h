/* SPDX-License-Identifier: Apache-2.0
 * What a step needs from a machine. device_cuda.c and host/ implement it; nothing above this line
 * knows which.
 *
 * One lathe_device belongs to one rank and is used by one thread at a time. All calls return a
 * status; the message of the last failure is in `message`. Memory addresses are device addresses;
 * only copy_in, copy_out and fill touch them. */
#ifndef LATHE_DEVICE_H
#define LATHE_DEVICE_H

#include "lathe.h"
#include "scalar.h"

typedef struct lathe_device lathe_device;
typedef struct lathe_kernel lathe_kernel; /* a loaded entry point */
typedef struct lathe_graph lathe_graph;   /* a captured step */

#define LATHE_STREAMS 2 /* 0: main, 1: side */

typedef struct {
    uint32_t grid[3];
    uint32_t block;        /* threads */
    uint32_t shared_bytes; /* dynamic shared memory */
    uint32_t cluster;      /* blocks along x that reach each other's shared memory; 0, 1: none.
                              On CUDA the kernel's own code says so too */
    bool cooperative;      /* all blocks must be in flight together */
    bool early;            /* programmatic dependent launch on the predecessor in the stream */
    uint64_t ahead;        /* bit i: argument i is complete before early successors begin */
} lathe_geometry;

typedef struct {
    const char *name; /* "cuda", "host" */
    char arch[16];    /* "sm_90a", "host" */
    int gpu;          /* its number in this process; -1: none */
    uint32_t multiprocessors;
    uint64_t memory_free;  /* bytes; UINT64_MAX: unknown */
    int cuda_major;        /* CUDA version that the driver knows; 0 for the host */
    char description[128]; /* "NVIDIA H200, driver 580.65" */
} lathe_device_info;

/* Names memory of one process to another of the same machine. */
typedef struct {
    uint8_t bytes[96];
} lathe_shared_handle;

typedef enum { LATHE_COLLECTIVE_ALL_REDUCE, LATHE_COLLECTIVE_ALL_GATHER } lathe_collective;

/* One launch of a captured graph. */
typedef struct {
    const lathe_kernel *kernel; /* NULL: a collective, whose grid and block are the library's */
    uint32_t grid[3];
    uint32_t block;
    uint32_t shared_bytes;
    int depends[LATHE_STREAMS];       /* numbers of the nodes it waits for, ascending; -1: none */
    bool programmatic[LATHE_STREAMS]; /* the edge is a programmatic one: it waits inside the kernel
                                       */
} lathe_graph_node;

struct lathe_device {
    const struct lathe_device_ops *ops;
    lathe_device_info info;
    char message[1024];
};

typedef struct lathe_device_ops {
    void (*destroy)(lathe_device *d);

    lathe_status (*alloc)(lathe_device *d, size_t bytes, void **memory);
    void (*release)(lathe_device *d, void *memory);
    lathe_status (*copy_in)(lathe_device *d, void *to, const void *from,
                            size_t bytes); /* synchronous */
    lathe_status (*copy_out)(lathe_device *d, void *to, const void *from,
                             size_t bytes);                                      /* synchronous */
    lathe_status (*fill)(lathe_device *d, void *to, uint8_t byte, size_t bytes); /* synchronous */

    /* Memory of the host that copies come from while the host goes on: `slots` of `bytes`, one
     * behind the other. At most one such memory; closed with nothing under way, or with all that is
     * waited for. */
    lathe_status (*staging_open)(lathe_device *d, int slots, size_t bytes, void **memory);
    void (*staging_close)(lathe_device *d);
    /* Enqueues a copy out of that slot; staging_wait ends when it has ended. */
    lathe_status (*staging_copy)(lathe_device *d, int slot, void *to, const void *from,
                                 size_t bytes);
    lathe_status (*staging_wait)(lathe_device *d, int slot);

    /* Lets kernels of `d` address the memory of `peer`, a device of the same kind and process. */
    lathe_status (*open_peer)(lathe_device *d, const lathe_device *peer);

    /* Memory that other processes may map: whatever is mapped holds nothing else. Given back by
     * `release`, after every other process has closed it. */
    lathe_status (*alloc_shared)(lathe_device *d, size_t bytes, void **memory);
    lathe_status (*share)(lathe_device *d, void *memory, lathe_shared_handle *handle);
    /* Maps what a device of the same kind shared in another process; kernels of `d` may address
     * it, and copies. */
    lathe_status (*open_shared)(lathe_device *d, const lathe_shared_handle *handle, void **memory);
    void (*close_shared)(lathe_device *d, void *memory);

    /* Loads `entry` from what lathe_cache holds for this kernel: a cubin (cuda) or a shared object
     * (host), by path. */
    lathe_status (*load)(lathe_device *d, const char *path, const char *entry,
                         uint32_t shared_bytes, lathe_kernel **kernel);
    void (*unload)(lathe_device *d, lathe_kernel *kernel);

    /* Enqueues. `arguments` are `count` device addresses, copied before the call returns. While
     * recording, becomes a graph node. */
    lathe_status (*launch)(lathe_device *d, int stream, const lathe_kernel *kernel,
                           const lathe_geometry *g, void *const *arguments, int count);
    lathe_status (*fork)(lathe_device *d,
                         int stream); /* `stream` waits for what stream 0 holds so far */
    lathe_status (*join)(lathe_device *d,
                         int stream); /* stream 0 waits for what `stream` holds so far */
    lathe_status (*synchronize)(lathe_device *d);

    /* Called once by every rank of the group, before its first collective. A step waits at most
     * `timeout_ns` for another rank. The group outlives the device. */
    lathe_status (*open_collectives)(lathe_device *d, lathe_group *group, uint64_t timeout_ns);
    /* Enqueues on every rank alike; becomes part of a graph while recording. `count` elements at
     * `from` are this rank's. all_reduce: `to` receives their sum over the ranks, in the order
     * `library` (cuda: NCCL's; host: ascending ranks in fp32, one rounding); bf16, f32, i32.
     * all_gather: `to` receives the ranks' elements one after the other; any type. */
    lathe_status (*collective)(lathe_device *d, int stream, lathe_collective kind,
                               lathe_scalar dtype, const void *from, void *to, size_t count);

    lathe_status (*record_begin)(lathe_device *d);
    lathe_status (*record_end)(lathe_device *d, lathe_graph **graph);
    lathe_status (*replay)(lathe_device *d, lathe_graph *graph); /* enqueues on stream 0 */
    /* The graph's nodes in the order of their launches. Writes at most `room` of them; `*count` is
     * how many there are. A node that is no kernel, or has more than LATHE_STREAMS dependencies, is
     * LATHE_INVALID. */
    lathe_status (*graph_nodes)(lathe_device *d, const lathe_graph *graph, lathe_graph_node *nodes,
                                int room, int *count);
    void (*graph_destroy)(lathe_device *d, lathe_graph *graph);
    /* Replays `count` times on stream 0, one right after the other, and waits; the device's time
     * between their ends, of the first its length. LATHE_UNSUPPORTED where a device has no time. */
    lathe_status (*time)(lathe_device *d, lathe_graph *graph, int count, double *microseconds);

    /* Counters for the rule "nothing compiles, allocates or synchronises after build". */
    uint64_t (*allocations)(const lathe_device *d);
    uint64_t (*synchronizations)(const lathe_device *d);
} lathe_device_ops;

/* Device `ordinal` of the CUDA driver, found by dlopen. LATHE_NO_DEVICE with a reason in `message`
 * where there is none. */
LATHE_CHECKED lathe_status lathe_device_cuda_create(int ordinal, lathe_device **device,
                                                    char *message, size_t size);

/* Everything goes through `stream` (a CUstream of the device's primary context) instead of a stream
 * of its own. Before anything else. */
void lathe_device_cuda_use(lathe_device *device, void *stream);

/* GPUs that the driver shows; 0 where there is no driver. */
int lathe_device_cuda_count(void);

/* The CPU device of rank `rank`. `seed` picks the schedule: the same seed gives the same
 * interleaving at one rank. */
LATHE_CHECKED lathe_status lathe_device_host_create(int rank, uint64_t seed, lathe_device **device,
                                                    char *message, size_t size);

/* Lets what is enqueued on a CPU device begin `ns` of virtual time late. */
void lathe_device_host_delay(lathe_device *d, uint64_t ns);

#endif
