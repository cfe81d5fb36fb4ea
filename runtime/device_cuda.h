/* SPDX-License-Identifier: Apache-2.0
 * Owns: what the files of the CUDA device share. Private to device_cuda*.c. */
#ifndef LATHE_DEVICE_CUDA_H
#define LATHE_DEVICE_CUDA_H

#include "device.h"
#include "driver.h"
#include "nccl.h"

typedef struct {
    lathe_device base; /* first */
    lathe_driver driver;
    cu_device device;
    cu_context context;
    cu_stream streams[LATHE_STREAMS];
    bool foreign; /* streams[0] is the caller's */
    cu_event forks[LATHE_STREAMS], joins[LATHE_STREAMS];
    void *staging;
    cu_event *staged; /* of each slot: the end of its copy */
    int staged_count;
    bool recording;
    lathe_graph *graph; /* while recording */
    uint64_t allocations, synchronizations;
    lathe_nccl nccl;
    lathe_comm comm;
    bool collective; /* there is a communicator */
    bool pending;    /* a collective was enqueued since the last wait: the next one is bounded */
} cuda_device;

struct lathe_kernel {
    cu_module module;
    cu_function function;
};

struct lathe_graph {
    cu_graph graph; /* kept: it is what graph_nodes reads */
    cu_graph_exec exec;
    int count, room;
    cu_graph_node *nodes;         /* in launch order */
    const lathe_kernel **kernels; /* of each node; NULL: the last node of a collective */
    bool collective;              /* it has nodes that are a library's own */
};

/* Makes the context current for this thread. */
lathe_status cuda_enter(cuda_device *d);
/* Turns a result into a status with a message; `call` is the driver's name. */
lathe_status cuda_check(cuda_device *d, const char *call, cu_result result);
lathe_status cuda_refuse(cuda_device *d, lathe_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* device_cuda_staging.c */
lathe_status cuda_staging_open(lathe_device *base, int slots, size_t bytes, void **memory);
void cuda_staging_close(lathe_device *base);
lathe_status cuda_staging_copy(lathe_device *base, int slot, void *to, const void *from,
                               size_t bytes);
lathe_status cuda_staging_wait(lathe_device *base, int slot);

/* device_cuda_shared.c */
lathe_status cuda_alloc_shared(lathe_device *base, size_t bytes, void **memory);
lathe_status cuda_share(lathe_device *base, void *memory, lathe_shared_handle *handle);
lathe_status cuda_open_shared(lathe_device *base, const lathe_shared_handle *handle, void **memory);
void cuda_close_shared(lathe_device *base, void *memory);

/* device_cuda_collective.c */
lathe_status cuda_open_collectives(lathe_device *base, lathe_group *group, uint64_t timeout_ns);
void cuda_close_collectives(cuda_device *d);
lathe_status cuda_collective(lathe_device *base, int stream, lathe_collective kind,
                             lathe_scalar dtype, const void *from, void *to, size_t count);
lathe_status cuda_wait_collectives(cuda_device *d);
/* LATHE_PEER_LOST from the loss of a rank on. */
lathe_status cuda_check_collectives(cuda_device *d);

/* device_cuda_graph.c */
lathe_status cuda_record_begin(lathe_device *base);
lathe_status cuda_record_end(lathe_device *base, lathe_graph **graph);
lathe_status cuda_record_launch(cuda_device *d, cu_stream stream, const lathe_kernel *kernel);
lathe_status cuda_replay(lathe_device *base, lathe_graph *graph);
lathe_status cuda_graph_nodes(lathe_device *base, const lathe_graph *graph, lathe_graph_node *nodes,
                              int room, int *count);
void cuda_graph_destroy(lathe_device *base, lathe_graph *graph);

/* device_cuda_time.c */
lathe_status cuda_time(lathe_device *base, lathe_graph *graph, int count, double *microseconds);

#endif
