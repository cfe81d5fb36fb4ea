/* SPDX-License-Identifier: Apache-2.0
 * Owns: what an engine holds. Private to engine*.c, build.c and step.c; others use lathe.h or
 * step.h. */
#ifndef LATHE_ENGINE_H
#define LATHE_ENGINE_H

#include "compile.h"
#include "device.h"
#include "group.h"
#include "log.h"
#include "pool.h"
#include "step.h"

typedef enum {
    LATHE_ENGINE_CREATED,
    LATHE_ENGINE_BUILT,
    LATHE_ENGINE_FAILED, /* build failed: only lathe_destroy is left */
    LATHE_ENGINE_LOST    /* a peer was lost: only lathe_rejoin and lathe_destroy are left */
} lathe_engine_state;

/* Bits of the first word of `faults`. */
enum { LATHE_FAULT_TOKEN = 1, LATHE_FAULT_PEER = 2, LATHE_FAULT_SCALE = 4 };

typedef struct {
    int count;
    lathe_step_launch *launches;
} lathe_launch_list;

struct lathe_engine {
    lathe_options options; /* its strings are the engine's own */
    lathe_pool *pool;
    lathe_logger log;
    lathe_step_table *table;
    bool crowded; /* another rank, a thread of this process, runs on this GPU */
    lathe_device *device;
    lathe_compiler *compiler; /* made when first needed */
    lathe_compiled *compiled; /* per kernel */
    lathe_kernel **kernels;   /* per kernel, loaded */
    void ***memory;           /* per buffer, per instance */
    void **mailboxes;         /* per mailbox: the device's Mailbox struct */
    void **mapped; /* per mailbox, LATHE_GROUP_MAX each: another process's memory, or NULL */
    lathe_launch_list prepare;
    lathe_launch_list probe;
    lathe_launch_list *variants;
    lathe_graph **graphs; /* per variant; NULL without graphs */
    int64_t kv_pages;
    void ***given; /* per buffer, per instance: memory of the caller's, or NULL; made when needed */
    int64_t **pages;   /* of those that are caches */
    char wanted[1024]; /* why `serving` cannot be served, or "" */
    int running;       /* the variant enqueued last */
    lathe_engine_state state;
    uint64_t serial; /* tells engines of one process apart */
    char message[2048];
    char unsupported[1024];
    lathe_status unsupported_status;
};

/* The engine's message, to be filled by a callee. */
lathe_message_buffer lathe_engine_message_buffer(lathe_engine *e);
/* Formats the engine's message and returns the status. */
lathe_status lathe_engine_fail(lathe_engine *e, lathe_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* An argument of a call is NULL: LATHE_INVALID, and the message where it is not the engine. */
lathe_status lathe_engine_fail_null(lathe_engine *e, const char *call);
/* Formats the message from the device's. */
lathe_status lathe_engine_fail_device(lathe_engine *e, lathe_status status, const char *what);

LATHE_CHECKED lathe_status lathe_engine_open_compiler(lathe_engine *e);

/* Ranks that the step's exchanges see: of the group; of the deployment, where one rank is alone and
 * its mailboxes lead back to itself. */
int lathe_engine_world(const lathe_engine *e);

/* engine_kernels.c: compiled, loaded, and pinned on all ranks. Collective where there is a group.
 */
LATHE_CHECKED lathe_status lathe_engine_build_kernels(lathe_engine *e);

/* engine_memory.c */
int lathe_engine_instances(const lathe_step_buffer *b);
/* Bytes of one instance, pages of a kv cache included; UINT64_MAX where that overflows. */
uint64_t lathe_engine_buffer_bytes(const lathe_engine *e, const lathe_step_buffer *b);
uint64_t lathe_engine_total_bytes(const lathe_engine *e);
LATHE_CHECKED lathe_status lathe_engine_allocate(lathe_engine *e);
void lathe_engine_release(lathe_engine *e);
/* One instance of a buffer. */
LATHE_CHECKED lathe_status lathe_engine_allocate_one(lathe_engine *e, const lathe_step_buffer *b,
                                                     void **memory);
/* Gives back what those took. */
void lathe_engine_free(lathe_engine *e, void *memory);
/* Harmless inputs: no token is written anywhere, every request is padding. */
LATHE_CHECKED lathe_status lathe_engine_reset_inputs(lathe_engine *e);
LATHE_CHECKED lathe_status lathe_engine_clear_faults(lathe_engine *e);

/* engine_mailbox.c. Collective where the engine has a group. */
LATHE_CHECKED lathe_status lathe_engine_open_mailboxes(lathe_engine *e);
LATHE_CHECKED lathe_status lathe_engine_reset_mailboxes(lathe_engine *e);
void lathe_engine_close_mailboxes(lathe_engine *e);

/* What a kernel left when it gave up a wait. */
typedef struct {
    int flag; /* 0: nothing, 1: the peer did not come, 2: it is at another exchange */
    int peer;
    int by;       /* the rank that gave up */
    int exchange; /* of step.json's mailboxes, by `index` */
    uint32_t epoch;
} lathe_engine_fault;
LATHE_CHECKED lathe_status lathe_engine_read_fault(lathe_engine *e, lathe_engine_fault *fault);

/* engine_collective.c */
bool lathe_engine_has_collectives(const lathe_engine *e);
/* Collective, where the step has any: a communicator on every rank or on none. */
LATHE_CHECKED lathe_status lathe_engine_open_collectives(lathe_engine *e);

/* engine_bind.c: what the caller gave for an instance, or NULL; pages of a cache's instance. */
void *lathe_engine_given(const lathe_engine *e, int buffer, int instance);
int64_t lathe_engine_pages(const lathe_engine *e, int buffer, int instance);
/* A cache that nobody bound yet, and its layer; -1: none. */
int lathe_engine_unbound_cache(const lathe_engine *e, int *layer);

/* build.c: captures every variant, in place of what was captured before. */
LATHE_CHECKED lathe_status lathe_engine_capture(lathe_engine *e);

/* serving.c: the first thing of `serving` that the step does not do, in *text ("": none). */
void lathe_serving_compare(const lathe_step_table *table, const lathe_serving *serving, char *text,
                           size_t size);

/* engine_launches.c: every launch that reads or writes the instance gets its new memory. */
void lathe_engine_move(lathe_engine *e, int buffer, int layer, void *memory, int64_t pages);

/* engine_launches.c: resolves `prepare` and every variant into launches. */
LATHE_CHECKED lathe_status lathe_engine_resolve(lathe_engine *e);
/* The same of the probe, once its buffers are there. */
LATHE_CHECKED lathe_status lathe_engine_resolve_probe(lathe_engine *e);

/* build.c: what fails on one rank ends the build on all, at once and not at a deadline. */
LATHE_CHECKED lathe_status lathe_engine_agree(lathe_engine *e, lathe_status status);

/* What is known of expert TP when a step is built, for the one line about it. */
typedef struct {
    double seconds;
    bool probed;
    double least, most; /* relative L2 distances of the probed layers */
} lathe_expert_report;

double lathe_engine_seconds(void); /* of a clock that only goes on */

/* engine_experts.c. Collective; they do nothing where there is nothing to do. */
/* Whether the source's whole experts are those that this step wants, the same on all ranks. */
LATHE_CHECKED lathe_status lathe_engine_agree_experts(lathe_engine *e,
                                                      const lathe_weight_source *source);
/* Whether the weight is made out of whole experts and not filled. */
bool lathe_engine_reshards(const lathe_weight_source *source, const lathe_step_weight *w);
LATHE_CHECKED lathe_status lathe_engine_reshard(lathe_engine *e, const lathe_weight_source *source,
                                                lathe_expert_report *report);
/* Whole experts of this rank, by weight number: the caller's where they are bound, else filled. */
LATHE_CHECKED lathe_status lathe_engine_read_held(lathe_engine *e,
                                                  const lathe_weight_source *source, int weight,
                                                  int layer, void *host);
void lathe_engine_report_experts(lathe_engine *e, const lathe_weight_source *source,
                                 const lathe_expert_report *report);

/* engine_probe.c */
LATHE_CHECKED lathe_status lathe_engine_probe(lathe_engine *e, const lathe_weight_source *source,
                                              lathe_expert_report *report);
/* Bytes of the buffers that live while it runs. */
uint64_t lathe_engine_probe_bytes(const lathe_engine *e);
/* Whether any operation of the probe binds the buffer. */
bool lathe_engine_probe_binds(const lathe_engine *e, int buffer);

#endif
