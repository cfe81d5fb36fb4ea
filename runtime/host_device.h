/* SPDX-License-Identifier: Apache-2.0
 * What the host device's two sources share: its queue of launches and its memory. */
#ifndef LATHE_HOST_DEVICE_H
#define LATHE_HOST_DEVICE_H

#include "host_emulator.h"

struct lathe_kernel {
    char *name;
    void *object;
    void (*entry)(void);
    uint32_t shared_bytes;
};

/* A launch that waits to run. `before` are places in the same queue. */
typedef struct {
    const struct lathe_kernel *kernel;
    lathe_geometry geometry;
    void *arguments[LATHE_EMULATOR_ARGUMENTS];
    int argument_count;
    int before[LATHE_EMULATOR_BEFORE];
    int before_count;
} lathe_host_launch;

/* What the next launch of a stream must wait for. */
typedef struct {
    int pending[LATHE_EMULATOR_BEFORE];
    int count;
    bool joined; /* a fork or join came after the last launch */
} lathe_host_stream;

typedef struct {
    lathe_host_launch *launches;
    int count, room;
    lathe_host_stream stream[LATHE_STREAMS];
} lathe_host_queue;

struct lathe_graph {
    lathe_host_queue queue;
};

typedef struct {
    unsigned char *memory;
    size_t bytes;
} lathe_host_allocation;

typedef struct {
    lathe_device base; /* first */
    lathe_emulator *emulator;
    lathe_host_allocation *allocations; /* sorted by address */
    size_t allocation_count, allocation_room;
    uint64_t allocations_made, synchronizations_made;
    lathe_host_queue queue, recorded;
    bool recording;
    lathe_emulator_grid *grids; /* the queue, as the emulator takes it */
    int grid_room;
} lathe_host_device;

/* host_queue.c: the ops that enqueue. Each sets the device's message on failure. */
lathe_status lathe_host_launch_enqueue(lathe_device *d, int stream, const lathe_kernel *kernel,
                                       const lathe_geometry *g, void *const *arguments, int count);
lathe_status lathe_host_fork(lathe_device *d, int stream);
lathe_status lathe_host_join(lathe_device *d, int stream);
lathe_status lathe_host_record_begin(lathe_device *d);
lathe_status lathe_host_record_end(lathe_device *d, lathe_graph **graph);
lathe_status lathe_host_replay(lathe_device *d, lathe_graph *graph);
lathe_status lathe_host_graph_nodes(lathe_device *d, const lathe_graph *graph,
                                    lathe_graph_node *nodes, int room, int *count);
void lathe_host_graph_destroy(lathe_device *d, lathe_graph *graph);
/* Runs what is enqueued. */
lathe_status lathe_host_drain(lathe_host_device *h);
void lathe_host_queue_free(lathe_host_queue *q);

lathe_status lathe_host_fail(lathe_device *d, lathe_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
