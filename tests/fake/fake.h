/* SPDX-License-Identifier: Apache-2.0
 * What a test can set and see of the fakes. Both libraries export one function that gives their
 * state. */
#ifndef LATHE_TESTS_FAKE_H
#define LATHE_TESTS_FAKE_H

#include <stddef.h>

#define FAKE_LAUNCHES 4096

typedef struct {
    char name[64];
    unsigned int grid[3], block, shared_bytes;
    int cooperative, early, stream;
} fake_launch;

typedef struct {
    /* set by the test */
    int version;      /* 13000 */
    int devices;      /* 1 */
    int major, minor; /* 9, 0 */
    size_t memory_free;
    int fail_at;     /* the call of this number fails; 0: none */
    int fail_result; /* with this; 0: CUDA_ERROR_UNKNOWN */
    int extra_edge;  /* a capture gets an edge that nobody asked for */
    int no_sharing;  /* memory cannot be shared with other processes, nor addressed by other GPUs */
    int lose_writes; /* what is written into another process's memory does not arrive */
    int never_ready; /* what is put on a stream does not end: 1 ever, 2 before a communicator's
                        abort */
    int dear_threads; /* nodes with blocks of more threads take two microseconds; 0: none does */
    /* seen */
    double microseconds; /* a clock: every node of a replayed graph takes one */
    int calls;
    char failed[64]; /* name of the call that was made to fail */
    int live;        /* handles and allocations not given back */
    int allocations, synchronizations, graph_launches, modules_loaded;
    int blocked;      /* calls that would have waited for a stream that does not end */
    int launch_count; /* outside captures */
    fake_launch launches[FAKE_LAUNCHES];
} fake_cuda;

fake_cuda *fake_cuda_state(void);
/* For the fake NCCL: a graph that `stream` captures is counted in `count` until it and what was
 * instantiated of it are destroyed. */
struct cu_stream_handle;
void fake_cuda_hold(struct cu_stream_handle *stream, int *count);

typedef struct {
    int major, minor; /* 13, 0; FAKE_NVRTC_VERSION=11.8 in the environment sets them too */
    int fail_at, fail_result;
    int calls, live, compiles;
    char failed[64];
    char options[512]; /* of the last compilation, with spaces between */
} fake_nvrtc;

fake_nvrtc *fake_nvrtc_state(void);

typedef struct {
    int version;    /* 22809; FAKE_NCCL_VERSION in the environment sets it too */
    int state;      /* what a communicator says of itself where not 0: 6 a lost peer, 7 busy */
    int fail_calls; /* collectives fail at once with this */
    int inner;      /* kernels that a collective launches: 2 */
    int live;       /* communicators not given back */
    int aborts, collectives;
    int stuck_aborts;    /* that would have waited for ever for a graph of theirs to be destroyed */
    int config_blocking; /* of the last communicator made */
} fake_nccl;

fake_nccl *fake_nccl_state(void);

#endif
