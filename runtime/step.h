/* SPDX-License-Identifier: Apache-2.0
 * Owns: the inside of an engine, for the checker and the benchmarks: every operation of a variant
 * in order, with its kernel and resolved arguments, launched one at a time or as the step does;
 * buffers read and written by name. */
#ifndef LATHE_STEP_H
#define LATHE_STEP_H

#include "device.h"
#include "lathe.h"
#include "step_table.h"

/* One argument of one launch. */
typedef struct {
    const lathe_step_arg *arg;       /* the kernel's: name, dtype, dir, form */
    const lathe_step_buffer *buffer; /* NULL where unbound or a mailbox */
    const lathe_step_mailbox *mailbox;
    int layer;              /* of the buffer's instance; -1 for scope "step" */
    void *address;          /* on the device; NULL where unbound */
    lathe_step_shape shape; /* as the kernel sees it; pages of a kv cache filled in */
    size_t bytes;        /* that the kernel sees: the front of the buffer; of a value that a mailbox
                            carries: one rank's contribution; 0 where unbound or any other mailbox */
    const char *carried; /* name of the value that the mailbox carries; else NULL */
} lathe_step_value;

typedef enum {
    LATHE_SECTION_PREPARE,
    LATHE_SECTION_PROLOGUE,
    LATHE_SECTION_LAYER,
    LATHE_SECTION_EPILOGUE
} lathe_step_section;

/* One operation of a step, ready to launch. */
typedef struct {
    lathe_step_op_kind kind;
    lathe_step_section section;
    int layer; /* current layer: prologue 0, epilogue the last; in prepare -1 where the op is once
                */
    int stream;
    const lathe_step_kernel *kernel;         /* NULL for all but launches */
    const lathe_step_collective *collective; /* of a collective: values are its `from` and `to` */
    const lathe_step_tactic *tactic;         /* the one that was built */
    lathe_geometry geometry;                 /* as launched: early included */
    int value_count;
    const lathe_step_value *values; /* in the kernel's order */
    const lathe_kernel *loaded;
    void *const *addresses; /* of the values, for lathe_device_ops.launch */
} lathe_step_launch;

#define LATHE_PREPARE (-1) /* in place of a variant: the operations of `prepare` */

/* Valid from lathe_create on. Never NULL. */
const lathe_step_table *lathe_engine_table(const lathe_engine *engine);
lathe_device *lathe_engine_device(lathe_engine *engine);

/* Operations of a variant (or LATHE_PREPARE) in launch order; NULL and 0 before build or for a
 * variant out of range. */
const lathe_step_launch *lathe_engine_launches(const lathe_engine *engine, int variant, int *count);

/* Enqueues one operation: a launch, a fork, a join or a collective. Does not wait. */
LATHE_CHECKED lathe_status lathe_engine_launch(lathe_engine *engine,
                                               const lathe_step_launch *launch);
/* Enqueues all of a variant's operations one by one, as the graph holds them. */
LATHE_CHECKED lathe_status lathe_engine_launch_all(lathe_engine *engine, int variant);
/* Replays the variant's graph. */
LATHE_CHECKED lathe_status lathe_engine_replay(lathe_engine *engine, int variant);
LATHE_CHECKED lathe_status lathe_engine_synchronize(lathe_engine *engine);

/* Captures `count` launches of the engine, not necessarily a whole variant. The graph is the
 * caller's. */
LATHE_CHECKED lathe_status lathe_engine_record(lathe_engine *engine,
                                               const lathe_step_launch *launches, int count,
                                               lathe_graph **graph);
void lathe_engine_forget(lathe_engine *engine, lathe_graph *graph); /* NULL is allowed */
/* Replays it `count` times, one right after the other, and waits. microseconds[i] is the device's
 * time from the end of replay i - 1 (the first: from its start) to the end of replay i.
 * LATHE_UNSUPPORTED on a device without time. */
LATHE_CHECKED lathe_status lathe_engine_time(lathe_engine *engine, lathe_graph *graph, int count,
                                             double *microseconds);
/* LATHE_PEER_LOST or LATHE_DISAGREE, with rank, peer, layer and operation, where a kernel of this
 * rank or of a peer gave up a wait. After synchronize. */
LATHE_CHECKED lathe_status lathe_engine_check_peers(lathe_engine *engine);

/* For tests of faults: this rank's count of the exchanges of a mailbox goes one ahead. */
LATHE_CHECKED lathe_status lathe_engine_skew(lathe_engine *engine, int mailbox);

typedef struct {
    const lathe_step_buffer *buffer;
    int layer;
    void *address;
    size_t bytes; /* of the instance, as allocated */
    lathe_step_shape shape;
} lathe_engine_memory;

/* One instance of a buffer; `layer` is ignored for scope "step". LATHE_INVALID where there is none.
 */
LATHE_CHECKED lathe_status lathe_engine_find(lathe_engine *engine, const char *name, int layer,
                                             lathe_engine_memory *memory);
/* Synchronous copies of `bytes` at `offset` of an instance. */
LATHE_CHECKED lathe_status lathe_engine_read(lathe_engine *engine, const char *name, int layer,
                                             size_t offset, void *host, size_t bytes);
LATHE_CHECKED lathe_status lathe_engine_write(lathe_engine *engine, const char *name, int layer,
                                              size_t offset, const void *host, size_t bytes);

/* Exchange kind `mailbox` (a number of the table), of this rank: the number of its next exchange,
 * and the first bytes of what `source` sent here in exchange `epoch`. Synchronous. */
LATHE_CHECKED lathe_status lathe_engine_read_epoch(lathe_engine *engine, int mailbox,
                                                   uint32_t *epoch);
LATHE_CHECKED lathe_status lathe_engine_read_slot(lathe_engine *engine, int mailbox, uint32_t epoch,
                                                  int source, void *host, size_t bytes);

/* The same the other way: as if `source` had sent it. */
LATHE_CHECKED lathe_status lathe_engine_write_slot(lathe_engine *engine, int mailbox,
                                                   uint32_t epoch, int source, const void *host,
                                                   size_t bytes);

/* Compares the variant's captured graph with step.json: one node per launch, and exactly the
 * dependencies that streams, forks, joins and early launches mean. LATHE_INVALID with the first
 * difference in the engine's message. */
LATHE_CHECKED lathe_status lathe_engine_compare_graph(lathe_engine *engine, int variant);

#endif
