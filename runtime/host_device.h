/* SPDX-License-Identifier: Apache-2.0
 * What the host device's sources share: its queue of launches and its memory. */
#ifndef LATHE_HOST_DEVICE_H
#define LATHE_HOST_DEVICE_H

#include "host_emulator.h"

struct lathe_kernel {
    char *name;
    void *object;
    void (*entry)(void);
    uint32_t shared_bytes;
};

/* What all ranks do together at one place of their queues. */
typedef struct {
    lathe_collective kind;
    lathe_scalar dtype;
    const void *from;
    void *to;
    size_t count;
} lathe_host_collective;

/* A launch that waits to run. `before` are places in the same queue. */
typedef struct {
    const struct lathe_kernel *kernel; /* NULL: a collective */
    lathe_host_collective collective;
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
    size_t mapped; /* of a file that other processes may map; 0: the heap's */
    int file;
} lathe_host_allocation;

typedef struct lathe_host_mapping lathe_host_mapping; /* another process's memory */

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
    lathe_host_mapping *mappings;
    lathe_group *group; /* of collectives; NULL: none */
    uint64_t collective_ns;
    char lost[300]; /* why a collective failed: all later ones do; "": none did */
    lathe_status lost_status;
    void *staging;
} lathe_host_device;

/* Room beyond each allocation, whose bytes must stay as they are. */
size_t lathe_host_fence_bytes(void);
/* Takes `a` into the device's list, filled with NaN and fenced. */
lathe_status lathe_host_keep(lathe_host_device *h, lathe_host_allocation a);
void lathe_host_drop(const lathe_host_allocation *a);
/* Runs what waits, and looks whether a kernel wrote beyond its memory. */
lathe_status lathe_host_settle(lathe_host_device *h);
const lathe_host_allocation *lathe_host_find(lathe_host_device *h, const void *p);

/* host_shared.c */
lathe_status lathe_host_alloc_shared(lathe_device *d, size_t bytes, void **memory);
lathe_status lathe_host_share(lathe_device *d, void *memory, lathe_shared_handle *handle);
lathe_status lathe_host_open_shared(lathe_device *d, const lathe_shared_handle *handle,
                                    void **memory);
void lathe_host_close_shared(lathe_device *d, void *memory);
void *lathe_host_mapped(const lathe_host_mapping *mapping);

/* host_collective.c */
lathe_status lathe_host_open_collectives(lathe_device *d, lathe_group *group, uint64_t timeout_ns);
lathe_status lathe_host_meet(lathe_host_device *h, const lathe_host_collective *c);

/* host_queue.c: the ops that enqueue. Each sets the device's message on failure. */
lathe_status lathe_host_launch_enqueue(lathe_device *d, int stream, const lathe_kernel *kernel,
                                       const lathe_geometry *g, void *const *arguments, int count);
lathe_status lathe_host_collective_enqueue(lathe_device *d, int stream, lathe_collective kind,
                                           lathe_scalar dtype, const void *from, void *to,
                                           size_t count);
lathe_status lathe_host_fork(lathe_device *d, int stream);
lathe_status lathe_host_join(lathe_device *d, int stream);
lathe_status lathe_host_record_begin(lathe_device *d);
lathe_status lathe_host_record_end(lathe_device *d, lathe_graph **graph);
lathe_status lathe_host_replay(lathe_device *d, lathe_graph *graph);
lathe_status lathe_host_graph_nodes(lathe_device *d, const lathe_graph *graph,
                                    lathe_graph_node *nodes, int room, int *count);
void lathe_host_graph_destroy(lathe_device *d, lathe_graph *graph);
/* Whether a collective waits: other ranks may never come to it. */
bool lathe_host_queue_meets(const lathe_host_queue *q);
/* Runs what is enqueued. */
lathe_status lathe_host_drain(lathe_host_device *h);
void lathe_host_queue_free(lathe_host_queue *q);

lathe_status lathe_host_fail(lathe_device *d, lathe_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
