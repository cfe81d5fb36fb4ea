/* SPDX-License-Identifier: Apache-2.0
 * Lathe's public interface: build a generated directory on a device and run its step.
 *
 * Calls that can fail return a lathe_status and must be checked; the message of the last failure
 * lives in the object (lathe_message), or goes to a buffer of the caller's where there is no object
 * yet. Nothing prints, exits or aborts. Option structs begin with their size, so that an older
 * caller's are understood: start from LATHE_..._INIT or zero and set `size` to sizeof. Zero and
 * NULL mean the default. Out-parameters are NULL on failure. Strings are UTF-8 and copied.
 *
 *     lathe_create        reads step.json, opens the device
 *     lathe_unsupported   NULL, or why this deployment cannot serve here
 *     lathe_bind_weights  (where the engine has the weights itself)
 *     lathe_build         compiles, allocates, loads, warms up, captures; slow
 *     lathe_bind_caches   (where the engine has the KV caches itself)
 *     repeat:
 *       write the inputs  lathe_write, or kernels of the caller's into what lathe_find gives
 *       lathe_plan        which batch variant serves this batch
 *       lathe_run         enqueues the step, does not wait
 *       lathe_finish      waits; or the caller orders its own work behind the stream
 *       read the outputs  lathe_read
 *     lathe_destroy
 *
 * A step's inputs (all of them buffers of the step; `rows` is requests * q of the variant, `pages`
 * the table width of the group):
 *     tokens int32 [rows], positions int64 [rows], and per group G of layers: block_tables.G int32
 *     [requests, pages], seq_lens.G int32 [requests] (tokens of the request, those of this step
 *     included), slot_mapping.G int64 [rows] (page * page_tokens + offset of the row's own token).
 * A request beyond the batch's is padding: length 0, slots -1. Nothing looks at what block tables
 * and slots hold: a page is below the pages of every cache of the group, the entries that a length
 * needs are filled, a slot is -1 or within those pages; else a step reads or writes memory that is
 * none of the cache's. lathe_plan knows no more than that one request fits the smallest cache.
 * Outputs are the layout's: mostly
 * `next_tokens` int32 [rows], `logits` float32 [rows, this rank's vocabulary], `hidden`.
 *
 * An engine is one rank and is used by one thread at a time; several engines may be used by several
 * threads; there is no global state. A call out of this order returns LATHE_INVALID. */
#ifndef LATHE_H
#define LATHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
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
typedef struct lathe_group lathe_group; /* ranks that build and run together */

typedef enum { LATHE_DEVICE_HOST = 0, LATHE_DEVICE_CUDA = 1 } lathe_device_kind;

typedef enum { LATHE_LOG_PROGRESS, LATHE_LOG_NOTE, LATHE_LOG_WARNING } lathe_log_kind;

/* What an engine would have a step do. Zero, NULL and false say nothing; everything else is
 * compared by lathe_unsupported with what the step does, before any weight is read; a count below
 * 0 and a number that is not finite are refused as such. Names and
 * numbers of the model are compared with what the layout `serves`, where it says so. */
typedef struct {
    size_t size; /* sizeof(lathe_serving) */
    /* the model */
    const char *architecture; /* what the layout calls it */
    int64_t dense_layers;     /* MLP layers without routed experts */
    int64_t shared_experts;
    int64_t expert_groups;
    const char *routing;        /* how experts are chosen: "sigmoid_bias" */
    double route_scale;         /* factor of the route weights */
    double rope_theta;          /* base of the rotary angles */
    const char *rope_type;      /* "default" */
    double swiglu_limit;        /* clamp of gate and up */
    double swiglu_alpha;        /* factor within the sigmoid */
    double swiglu_beta;         /* added to up */
    int64_t norm_size;          /* elements that a norm averages over, if not the hidden size */
    bool attention_temperature; /* queries scaled by their position */
    bool kv_sharing;            /* layers that read another layer's cache */
    bool fp32_router_input;
    /* the batch */
    int64_t requests, q; /* the largest that shall be planned; both or none */
    int64_t max_context; /* tokens */
    /* the KV cache */
    const char *kv_dtype;  /* "bf16", "fp8", ... */
    const char *kv_layout; /* "[pages, kv_heads, page_tokens, 2 * head_dim]", dense */
    int64_t kv_page_tokens;
    /* the machine and the framework */
    int64_t tensor_parallel, data_parallel, pipeline_parallel, context_parallel;
    bool sequence_parallel;
    const char *moe_backend; /* an all-to-all or fused back end that shall move the experts' rows */
    bool expert_load_balancing;
    bool routed_expert_capture; /* the ids of the chosen experts as an output */
    bool lora;
    bool unreduced_output; /* each rank's part of the last sum instead of the sum */
} lathe_serving;

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
    const lathe_serving *serving; /* what lathe_unsupported compares with; read by lathe_create */
    bool external_caches;         /* KV caches are the caller's: lathe_bind_caches */
    void *stream; /* CUstream that steps are enqueued on; NULL: one of the engine's. Outlives it */
    /* Device memory from the caller: 256-byte aligned, or NULL. Not what peers map. */
    void *(*allocate)(void *context, size_t bytes);
    void (*release)(void *context, void *memory);
    void *allocator_context;
    bool no_probe; /* step.json's probe is left out: what it looks at is known, or kernels do
                      nothing */
    bool loopback; /* for timing: one rank alone, no group, its mailboxes lead back to itself; the
                      numbers of such a step mean nothing */
} lathe_options;

/* Defaults: host device, rank 0, all else zero. */
#define LATHE_OPTIONS_INIT                                                                         \
    {                                                                                              \
        sizeof(lathe_options), NULL, LATHE_DEVICE_HOST, 0, 0, 0, NULL, NULL, 0, 0, false, false,   \
            NULL, NULL, NULL, 0, NULL, false, NULL, NULL, NULL, NULL, false, false                 \
    }

/* Reads step.json and opens the device. On failure *engine is NULL and `message` holds the reason.
 */
LATHE_CHECKED lathe_status lathe_create(const lathe_options *options, lathe_engine **engine,
                                        char *message, size_t size);
void lathe_destroy(lathe_engine *engine); /* NULL is allowed */

/* Text of the last failure of this engine, that of a call with a NULL argument too; "" where none.
 */
const char *lathe_message(const lathe_engine *engine);

/* Why this machine cannot serve the deployment (architecture, driver, memory, tensor-parallel
 * size), or NULL. Reads no weight and compiles nothing. The text lives as long as the engine. */
const char *lathe_unsupported(lathe_engine *engine);

/* An engine that holds whole experts by rank: its place among the ranks that share them. */
typedef struct {
    int rank, world;
    uint64_t group; /* a number that those ranks have in common, and no other group of them has */
} lathe_expert_shards;

/* Where weights come from. `fill` writes the `bytes` of one weight of this rank (its number in
 * step.json's `weights`), in its local shape, for `layer` (-1 for a weight that is not per layer)
 * to `host`. On failure it returns a status and writes the reason to `message`.
 *
 * `experts` NULL: `fill` is asked for every weight. Else the ranks hold whole experts only: of a
 * weight that step.json can make from those (`held`), `fill` is asked for the rank's whole experts,
 * and all ranks together make the slices. They are asked for again where the step has a probe. */
typedef struct {
    size_t size; /* sizeof(lathe_weight_source) */
    lathe_status (*fill)(void *context, int weight, int layer, void *host, size_t bytes,
                         char *message, size_t message_size);
    void *context;
    const lathe_expert_shards *experts;
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
 * alike on every rank (whose caches have the same pages). LATHE_UNSUPPORTED with the reason and the
 * declared variants in lathe_message where none does, and where a cache has fewer pages than one
 * request of `longest` tokens wants (of a windowed group: those its last q tokens see). */
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

/* The same launches one by one instead of the captured graph: for a caller who is capturing
 * `stream` of the options, which then becomes part of the caller's graph. */
LATHE_CHECKED lathe_status lathe_enqueue(lathe_engine *engine, const lathe_step_plan *plan);

/* ---- ranks ----
 *
 * With tensor parallelism every rank is an engine with a group, in a thread or a process of its
 * own. All ranks call lathe_build, and lathe_rejoin, together; every wait ends by its deadline, and
 * what fails on one rank is heard by all. */

/* Where the ranks of one process meet. Create once, join once per rank, destroy after the last
 * rank's group. */
typedef struct lathe_meeting lathe_meeting;
LATHE_CHECKED lathe_status lathe_meeting_create(int world, uint64_t timeout_ns,
                                                lathe_meeting **meeting);
void lathe_meeting_destroy(lathe_meeting *meeting);

/* Rank `rank` of the meeting, for use by one thread. */
LATHE_CHECKED lathe_status lathe_group_join(lathe_meeting *meeting, int rank, lathe_group **group);
void lathe_group_destroy(lathe_group *group);

/* Ranks that are processes of one machine and meet in a file: rank 0 makes it at `path`, aside and
 * renamed, the others wait for it, and it is unlinked once all have it open. */
LATHE_CHECKED lathe_status lathe_group_file_create(const char *path, int rank, int world,
                                                   uint64_t timeout_ns, lathe_group **group,
                                                   char *message, size_t size);

/* Ranks anywhere, a GPU each, that meet through NCCL. */
typedef struct {
    size_t size; /* sizeof(lathe_nccl_group) */
    int rank, world;
    int ordinal;         /* of the CUDA device */
    uint64_t timeout_ns; /* of every call */
    const char *nccl;    /* libnccl or its folder; NULL: LATHE_NCCL, else the usual places */
    const void *id;      /* 128 bytes that lathe_group_nccl_id made on one rank; NULL: by file */
    const char *file;    /* where rank 0 puts the id and the others find it; absent before */
} lathe_nccl_group;
LATHE_CHECKED lathe_status lathe_group_nccl_create(const lathe_nccl_group *options,
                                                   lathe_group **group, char *message, size_t size);
LATHE_CHECKED lathe_status lathe_group_nccl_id(const char *nccl, void *id, char *message,
                                               size_t size);

/* ---- what a step is ---- */

#define LATHE_ARRAY_DIMS 8

/* Memory of the device with a name of step.json. */
typedef struct {
    size_t size; /* sizeof(lathe_array) */
    const char *name;
    int layer;         /* -1: not per layer */
    const char *dtype; /* "bf16", "f32", "f64", "i32", "i64", "u8", "u32", "e4m3" */
    int rank;
    int64_t shape[LATHE_ARRAY_DIMS];
    int64_t strides[LATHE_ARRAY_DIMS]; /* in elements; all zero: dense, the last fastest */
    void *data;                        /* on the device */
} lathe_array;

typedef enum {
    LATHE_ROLE_WEIGHT,     /* loaded or bound */
    LATHE_ROLE_PREPARED,   /* made from weights by lathe_build */
    LATHE_ROLE_KV,         /* a cache */
    LATHE_ROLE_SCRATCH,    /* of a step */
    LATHE_ROLE_PERSISTENT, /* survives a step */
    LATHE_ROLE_MAILBOX,
    LATHE_ROLE_INPUT,
    LATHE_ROLE_OUTPUT,
    LATHE_ROLE_BUILD /* while lathe_build runs; whole experts among it may be bound */
} lathe_role;

typedef struct {
    size_t size; /* sizeof(lathe_info) */
    const char *layout, *deployment, *arch;
    int tensor_parallel, rank;
    int64_t max_context, page_tokens; /* tokens */
    int64_t max_rows, max_requests;
    int layers, variants, groups, arrays;
} lathe_info;

/* Valid from lathe_create on; strings live as long as the engine. Set `size` before. */
LATHE_CHECKED lathe_status lathe_describe(lathe_engine *engine, lathe_info *info);
/* Batch variant `variant` (0 .. variants - 1): requests of q tokens each. */
LATHE_CHECKED lathe_status lathe_describe_variant(lathe_engine *engine, int variant,
                                                  int64_t *requests, int64_t *q);
/* Group `group` (0 .. groups - 1) of layers that share block tables: *window keys (0: all), *pages
 * of a table's row. *name lives as long as the engine. */
LATHE_CHECKED lathe_status lathe_describe_group(lathe_engine *engine, int group, const char **name,
                                                int64_t *window, int64_t *pages);
/* Array `index` (0 .. arrays - 1; one per layer where it is per layer) and its role. `data` is NULL
 * before lathe_build; a cache then has 0 pages. */
LATHE_CHECKED lathe_status lathe_describe_array(lathe_engine *engine, int index, lathe_array *array,
                                                lathe_role *role);
/* The array of that name; `layer` is ignored for one that is not per layer. After lathe_build.
 * `data` stays until lathe_destroy, that of a cache until it is bound anew. */
LATHE_CHECKED lathe_status lathe_find(lathe_engine *engine, const char *name, int layer,
                                      lathe_array *array);
/* Copies `bytes` at byte `offset` of that array, behind what is enqueued; wait for the end. */
LATHE_CHECKED lathe_status lathe_read(lathe_engine *engine, const char *name, int layer,
                                      size_t offset, void *host, size_t bytes);
LATHE_CHECKED lathe_status lathe_write(lathe_engine *engine, const char *name, int layer,
                                       size_t offset, const void *host, size_t bytes);

/* ---- an engine's own memory ---- */

/* Before lathe_build: these weights are the caller's, in place and read only, and neither allocated
 * nor filled. Shape, dtype, density and 16-byte alignment are checked, for all before any is taken;
 * the message says which differs. Names are those of step.json's weights (role LATHE_ROLE_WEIGHT),
 * shapes this rank's. The memory outlives the engine. */
LATHE_CHECKED lathe_status lathe_bind_weights(lathe_engine *engine, const lathe_array *weights,
                                              int count);

/* With external_caches: these KV caches are the caller's: [pages, kv_heads, page_tokens, 2 *
 * head_dim], dense, 16-byte aligned; in a row of a head the key stands before the value. Any number
 * of pages to 2^31 - 1; offsets are 64 bits wide. Before lathe_build or after, and again for others
 * of other sizes; a cache of no pages is ignored. Once all are bound the steps are captured anew,
 * so that one call for all is the fastest. lathe_plan refuses until then. Waits for what is
 * enqueued. */
LATHE_CHECKED lathe_status lathe_bind_caches(lathe_engine *engine, const lathe_array *caches,
                                             int count);

/* ---- checkpoints ---- */

typedef struct lathe_checkpoint lathe_checkpoint;

/* Safetensors at `path` (a folder, an index or a file), or "calm:SEED", synthetic weights. Compared
 * with the engine's step at once: tensors, records, numbers (all is finite, no scale is below zero);
 * LATHE_INVALID lists all that differs in `message`, where 64 KiB are room for much. Files are
 * mapped; a rank reads its own bytes only, but for scales. Elements of bf16 matrices of more than
 * 2^20 are looked at by lathe_build, as they are read: it fails where one is not finite. */
LATHE_CHECKED lathe_status lathe_checkpoint_open(lathe_engine *engine, const char *path,
                                                 lathe_checkpoint **checkpoint, char *message,
                                                 size_t size);
/* For lathe_build of that engine; lives as long as the checkpoint. */
const lathe_weight_source *lathe_checkpoint_source(const lathe_checkpoint *checkpoint);
void lathe_checkpoint_close(lathe_checkpoint *checkpoint); /* after lathe_build; NULL is allowed */

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
