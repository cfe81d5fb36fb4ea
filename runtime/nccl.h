/* SPDX-License-Identifier: Apache-2.0
 * Owns: NCCL, taken by dlopen; nccl.c is the only file that names its library. The few types,
 * numbers and prototypes that are used stand here, written from the documented interface;
 * tests/unit/test_nccl.c compares them with nccl.h where there is one.
 *
 * A communicator never blocks: every call is polled to a deadline, and at the deadline, or at an
 * error, the communicator is aborted, which also ends its kernels on the GPU. After that every
 * call fails at once. The CUDA context of the communicator's GPU is current in every call; that is
 * the caller's affair. */
#ifndef LATHE_NCCL_H
#define LATHE_NCCL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "log.h"

typedef int nccl_result;
typedef struct nccl_comm_handle *nccl_comm;
typedef struct {
    char bytes[128];
} nccl_id;

/* The configuration as NCCL 2.17 had it: later versions take defaults for what it lacks. */
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cluster_size;
    int least_blocks;
    int most_blocks;
    const char *net_name;
    int split_share;
} nccl_config;

enum {
    NCCL_OK = 0,
    NCCL_REMOTE = 6, /* another rank failed, or its connection */
    NCCL_IN_PROGRESS = 7,
    NCCL_BYTE = 1,
    NCCL_INT32 = 2,
    NCCL_FLOAT32 = 7,
    NCCL_BFLOAT16 = 9,
    NCCL_SUM = 0,
    NCCL_CONFIG_VERSION = 21700
};
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_CONFIG_DEFAULT INT32_MIN

/* X(member, symbol, parameters) */
#define LATHE_NCCL_CALLS(X)                                                                        \
    X(get_version, ncclGetVersion, (int *version))                                                 \
    X(make_id, ncclGetUniqueId, (nccl_id * id))                                                    \
    X(create, ncclCommInitRankConfig,                                                              \
      (nccl_comm * comm, int world, nccl_id id, int rank, nccl_config *config))                    \
    X(finalize, ncclCommFinalize, (nccl_comm comm))                                                \
    X(destroy, ncclCommDestroy, (nccl_comm comm))                                                  \
    X(abort, ncclCommAbort, (nccl_comm comm))                                                      \
    X(state, ncclCommGetAsyncError, (nccl_comm comm, nccl_result * state))                         \
    X(all_reduce, ncclAllReduce,                                                                   \
      (const void *from, void *to, size_t count, int type, int operation, nccl_comm comm,          \
       cu_stream stream))                                                                          \
    X(all_gather, ncclAllGather,                                                                   \
      (const void *from, void *to, size_t count, int type, nccl_comm comm, cu_stream stream))

typedef struct {
    void *library;
    int version; /* 10000 * major + 100 * minor + patch */
#define LATHE_NCCL_MEMBER(member, symbol, parameters) nccl_result(*member) parameters;
    LATHE_NCCL_CALLS(LATHE_NCCL_MEMBER)
#undef LATHE_NCCL_MEMBER
    const char *(*result_text)(nccl_result result);
    const char *(*last_error)(nccl_comm comm);
} lathe_nccl;

/* `where`: the library or a folder that holds it; NULL: LATHE_NCCL, else the usual places
 * (library.h). LATHE_NO_DEVICE with the reason where it is missing or too old. */
LATHE_CHECKED lathe_status lathe_nccl_open(const char *where, lathe_nccl *nccl,
                                           lathe_message_buffer message);
void lathe_nccl_close(lathe_nccl *nccl);

/* An id for one communicator, made by one rank and given to all. */
LATHE_CHECKED lathe_status lathe_nccl_make_id(const lathe_nccl *nccl, nccl_id *id,
                                              lathe_message_buffer message);

/* nccl_comm.c */
typedef struct {
    const lathe_nccl *nccl; /* outlives the communicator */
    nccl_comm handle;       /* NULL once aborted */
    int rank, world;
    uint64_t timeout_ns; /* of every call */
    char lost[256];      /* why it was aborted */
    pthread_t aborter;
    bool aborting; /* NCCL's abort runs in `aborter`; after destroy: it did not end */
} lathe_comm;

/* Collective over `world` ranks; LATHE_PEER_LOST where they do not all come in time. On failure
 * there is nothing to destroy. */
LATHE_CHECKED lathe_status lathe_comm_create(const lathe_nccl *nccl, int rank, int world,
                                             const nccl_id *id, uint64_t timeout_ns,
                                             lathe_comm *comm, lathe_message_buffer message);
/* Bounded too: a communicator whose peers are gone is aborted. Graphs that captured its collectives
 * are destroyed before: NCCL waits for that. */
void lathe_comm_destroy(lathe_comm *comm);

/* Enqueue on `stream`. `count` is of elements of `type`, per rank. */
LATHE_CHECKED lathe_status lathe_comm_all_reduce(lathe_comm *comm, const void *from, void *to,
                                                 size_t count, int type, cu_stream stream,
                                                 lathe_message_buffer message);
LATHE_CHECKED lathe_status lathe_comm_all_gather(lathe_comm *comm, const void *from, void *to,
                                                 size_t count, int type, cu_stream stream,
                                                 lathe_message_buffer message);

/* Waits until `stream` is empty, while it watches the communicator; at the deadline, or at an
 * error, aborts it. */
LATHE_CHECKED lathe_status lathe_comm_wait(lathe_comm *comm, const lathe_driver *driver,
                                           cu_stream stream, lathe_message_buffer message);
/* Ends the communicator and its kernels; does not wait for either. */
void lathe_comm_abort(lathe_comm *comm, const char *why);
/* LATHE_PEER_LOST, and why it was aborted. */
lathe_status lathe_comm_refuse_lost(const lathe_comm *comm, lathe_message_buffer message);
/* After an abort: whether `stream` has become empty within 0.2 s. */
LATHE_CHECKED bool lathe_comm_settle(const lathe_driver *driver, cu_stream stream);

#endif
