/* SPDX-License-Identifier: Apache-2.0
 * Lathe's public interface: build a generated directory on a device and run its step.
 *
 * Every call returns a lathe_status and must be checked; the message of the last failure lives in
 * the object. Nothing prints, exits or aborts. Option structs begin with their size. Out-parameters
 * are NULL on failure.
 *
 *     lathe_create -> lathe_unsupported -> lathe_build -> (lathe_plan -> lathe_run)* ->
 * lathe_destroy
 *
 * An engine is one rank and is used by one thread at a time. A call out of this order returns
 * LATHE_INVALID. */
#ifndef LATHE_H
#define LATHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LATHE_CHECKED __attribute__((warn_unused_result))
#else
#define LATHE_CHECKED
#endif

typedef enum {
    LATHE_OK = 0,
    LATHE_INVALID = 1,     /* bad argument, bad input file, call out of order */
    LATHE_UNSUPPORTED = 2, /* well-formed, but this deployment or machine cannot serve it; the
                              reason is in the message */
    LATHE_NO_MEMORY = 3,
    LATHE_NO_DEVICE = 4, /* driver, NVRTC, compiler or GPU missing or too old */
    LATHE_COMPILE = 5,   /* a generated kernel does not compile; the log names template and line */
    LATHE_IO = 6,        /* a file cannot be read or written */
    LATHE_DEVICE_FAULT = 7, /* the device reported an error */
    LATHE_PEER_LOST = 8,    /* a bounded wait on another rank ended */
    LATHE_DISAGREE = 9      /* the ranks do not hold the same step */
} lathe_status;

/* Name of a status, for messages. Never NULL. */
const char *lathe_status_name(lathe_status status);

typedef struct lathe_engine lathe_engine;
typedef struct lathe_group lathe_group; /* ranks that build and run together: group.h */

typedef enum { LATHE_DEVICE_HOST = 0, LATHE_DEVICE_CUDA = 1 } lathe_device_kind;

typedef enum { LATHE_LOG_PROGRESS, LATHE_LOG_NOTE, LATHE_LOG_WARNING } lathe_log_kind;

/* The only output. `done` of `total` is progress of a phase (total 0: no count). May be called from
 * several threads, one at a time. */
typedef void (*lathe_log)(void *context, lathe_log_kind kind, const char *text, int done,
                          int total);

typedef struct {
    size_t size;           /* sizeof(lathe_options) */
    const char *directory; /* generated */
    lathe_device_kind device;
    int ordinal;       /* of the CUDA device */
    int rank;          /* 0 .. tp - 1 */
    uint64_t seed;     /* schedule of the host device */
    const char *cache; /* folder; NULL: LATHE_CACHE, else the XDG cache, else a temporary one */
    const char *nvrtc; /* libnvrtc or its folder; NULL: LATHE_NVRTC, else the usual places */
    int jobs;          /* compilers at once; 0: one per processor */
    int64_t kv_pages;  /* of each KV cache; 0: enough for max_requests of max_context tokens */
    bool allow_spills; /* a kernel that spills registers is otherwise an error */
    bool no_graphs;    /* lathe_run launches op by op */
    lathe_log log;     /* or NULL */
    void *log_context;
    lathe_group *group; /* of tp ranks; NULL where tp is 1. Outlives the engine */
    uint64_t
        timeout_ns; /* of a wait for a peer in a step; 0: 2 s. Virtual time on the host device */
} lathe_options;

/* Defaults: host device, rank 0, all else zero. */
#define LATHE_OPTIONS_INIT                                                                         \
    {                                                                                              \
        sizeof(lathe_options), NULL, LATHE_DEVICE_HOST, 0, 0, 0, NULL, NULL, 0, 0, false, false,   \
            NULL, NULL, NULL, 0                                                                    \
    }

/* Reads step.json and opens the device. On failure *engine is NULL and `message` holds the reason.
 */
LATHE_CHECKED lathe_status lathe_create(const lathe_options *options, lathe_engine **engine,
                                        char *message, size_t size);
void lathe_destroy(lathe_engine *engine); /* NULL is allowed */

/* Text of the last failure of this engine, "" where none. */
const char *lathe_message(const lathe_engine *engine);

/* Why this machine cannot serve the deployment (architecture, driver, memory, tensor-parallel
 * size), or NULL. Reads no weight and compiles nothing. The text lives as long as the engine. */
const char *lathe_unsupported(lathe_engine *engine);

/* Where weights come from. `fill` writes the `bytes` of one weight of this rank (its number in
 * step.json's `weights`), in its local shape, for `layer` (-1 for a weight that is not per layer)
 * to `host`. On failure it returns a status and writes the reason to `message`. */
typedef struct {
    size_t size; /* sizeof(lathe_weight_source) */
    lathe_status (*fill)(void *context, int weight, int layer, void *host, size_t bytes,
                         char *message, size_t message_size);
    void *context;
} lathe_weight_source;

/* Compiles what the cache lacks, loads, allocates, fills weights, runs `prepare`, warms up,
 * captures one graph per variant. Afterwards nothing compiles, allocates or synchronises. At most
 * once; after a failure only lathe_destroy is left. */
LATHE_CHECKED lathe_status lathe_build(lathe_engine *engine, const lathe_weight_source *weights);

/* Host maxima of a batch. */
typedef struct {
    size_t size; /* sizeof(lathe_batch) */
    int64_t requests;
    int64_t q;           /* tokens of each request in this step */
    int64_t longest;     /* tokens of the longest request, those of this step included */
    int64_t table_width; /* pages a row of the caller's block tables holds, the largest over the
                            groups */
    int64_t page_tokens; /* of the caller's KV caches */
} lathe_batch;

typedef struct {
    int variant;
    int64_t requests, q,
        rows; /* of the variant: requests beyond the batch's are padding (length 0, slot -1) */
    uint64_t ticket; /* ties the plan to its engine */
} lathe_step_plan;

/* Picks the smallest variant of equal q that holds the batch. Reads host state only and answers
 * alike on every rank. LATHE_UNSUPPORTED with the reason and the declared variants in lathe_message
 * where none does. */
LATHE_CHECKED lathe_status lathe_plan(lathe_engine *engine, const lathe_batch *batch,
                                      lathe_step_plan *plan);

/* Enqueues the step. Refuses a plan that lathe_plan did not accept for this engine. Does not wait.
 */
LATHE_CHECKED lathe_status lathe_run(lathe_engine *engine, const lathe_step_plan *plan);

/* Waits for what was enqueued and reports what kernels recorded: a token id out of range
 * (LATHE_INVALID), a peer that did not come in time (LATHE_PEER_LOST) or is at another exchange
 * (LATHE_DISAGREE). After the last two every lathe_run is refused until lathe_rejoin. */
LATHE_CHECKED lathe_status lathe_finish(lathe_engine *engine);

/* Collective, by all ranks of the group: empties the mailboxes and proves the pairs again, so that
 * steps may run after a fault of a peer. Weights, caches and graphs stay. */
LATHE_CHECKED lathe_status lathe_rejoin(lathe_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
