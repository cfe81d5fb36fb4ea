/* SPDX-License-Identifier: Apache-2.0
 * Owns: step.json as structs. The file is untrusted: what the reader returns has every size, range,
 * name and reference checked, so that code above may index without checks. All memory of a table
 * lives in one arena.
 *
 * Names are resolved to indices: `kernel`, `buffer`, `mailbox`, `group` index the table's arrays,
 * -1 means none. */
#ifndef LATHE_STEP_TABLE_H
#define LATHE_STEP_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lathe.h"
#include "scalar.h"

#define LATHE_STEP_FORMAT 1
#define LATHE_STEP_MAX_DIMS 8

typedef struct {
    int count; /* 0: one element */
    int64_t dim[LATHE_STEP_MAX_DIMS];
} lathe_step_shape;

typedef enum {
    LATHE_LIFETIME_WEIGHT,
    LATHE_LIFETIME_PREPARED,
    LATHE_LIFETIME_KV,
    LATHE_LIFETIME_SCRATCH,
    LATHE_LIFETIME_PERSISTENT,
    LATHE_LIFETIME_MAILBOX,
    LATHE_LIFETIME_INPUT,
    LATHE_LIFETIME_OUTPUT,
    LATHE_LIFETIME_BUILD /* bound by the probe only; there while it runs */
} lathe_step_lifetime;

typedef enum {
    LATHE_FORM_WHOLE,
    LATHE_FORM_K_PARTIALS,
    LATHE_FORM_RANK_PARTIALS,
    LATHE_FORM_COLUMNS
} lathe_step_form;

typedef enum {
    LATHE_DIR_IN,
    LATHE_DIR_OUT,
    LATHE_DIR_INOUT,
    LATHE_DIR_WORKSPACE,
    LATHE_DIR_MAILBOX
} lathe_step_dir;

typedef struct {
    const char *name;
    int64_t window; /* keys including the query's own; 0: all */
    int64_t table_width;
} lathe_step_group;

typedef struct {
    const char *name;
    lathe_scalar dtype;
    lathe_step_shape shape; /* a kv cache has 0 pages here: their number is chosen at build */
    lathe_step_lifetime lifetime;
    lathe_step_form form;
    bool per_layer;    /* scope "layer" */
    int layer_count;   /* of `layers`; 0 for scope "step" */
    const int *layers; /* ascending; one instance each */
    int group;         /* of a kv cache, else -1 */
    bool zeroed;
    const char *line;    /* "layouts/toy.lua:12", or "" */
    int64_t fixed_bytes; /* of one instance; of one page for a kv cache */
} lathe_step_buffer;

typedef struct {
    const char *tensor; /* checkpoint name; "{l}" stands for the layer */
    const char *init;   /* what synthetic weights put there; NULL where step.json does not say */
    lathe_scalar dtype;
    lathe_step_shape shape; /* whole, before sharding */
    int shard_axis;         /* -1: replicated */
    int64_t shard_groups;   /* the axis is this many equal groups, each split over the ranks */
} lathe_step_source;

typedef struct lathe_step_weight {
    int buffer;
    int axis; /* along which the sources are joined */
    int source_count;
    const lathe_step_source *sources;
    /* The same tensor cut along its first dimension, as ranks hold it that hold whole experts;
     * NULL: none */
    const struct lathe_step_weight *held;
} lathe_step_weight;

/* A file beside the tensors of a checkpoint, and what it must say. */
typedef struct {
    const char *name;   /* "config.json" */
    const char *fields; /* a JSON object: at least these fields, these values */
} lathe_step_record;

/* A word or a number of the model, for lathe_unsupported. */
typedef struct {
    const char *name; /* "rope_theta" */
    const char *text; /* NULL: a number */
    double number;
} lathe_step_served;

/* What else is known of a checkpoint. */
typedef struct {
    bool known; /* false: nothing of the following is checked */
    int record_count;
    const lathe_step_record *records;
    int name_count;
    const char *const *names; /* patterns; a tensor that matches one is this model's, and is read */
    int unread_count;
    const char *const *unread; /* patterns of those that this step does not read nevertheless */
} lathe_step_checkpoint;

typedef struct {
    const char *name;
    int64_t bytes; /* payload that one rank sends to one peer per exchange */
    int index;     /* exchange number, 0 .. count - 1 */
} lathe_step_mailbox;

typedef struct {
    const char *name;
    bool is_real;
    int64_t integer; /* where !is_real */
    double real;     /* of either */
} lathe_step_constant;

typedef struct {
    const char *name;
    lathe_scalar dtype;     /* of a mailbox that carries a value: the value's */
    lathe_step_shape shape; /* the kernel's own; a kv cache has 0 pages; of a published value: what
                               one rank contributes */
    lathe_step_dir dir;
    lathe_step_form form;
    bool carries; /* a mailbox that carries a value of the step from its publisher to its receiver;
                     the value exists in no buffer. Else the kernel pushes and polls by itself */
    bool publishes; /* the kernel publishes the value; else it receives it */
    bool ahead;     /* there before the kernel lets early successors begin */
} lathe_step_arg;

typedef struct {
    const char *name; /* "kThreads=64" */
    const char *file; /* relative to the directory */
    const char *entry;
    uint32_t grid[3];
    uint32_t block;
    uint32_t shared_bytes;
    uint32_t registers; /* declared cap per thread; 0: none */
    uint32_t cluster;   /* blocks along x that form a cluster; 1: none */
    bool cooperative;
    int constant_count;
    const lathe_step_constant *constants;
} lathe_step_tactic;

typedef struct {
    const char *name;
    const char *provider; /* "gemm/skinny" */
    int part_count;
    const char *const *parts;
    int constant_count;
    const lathe_step_constant *constants;
    int arg_count;
    const lathe_step_arg *args;
    int64_t bytes;
    int64_t operations;
    bool early;         /* the kernel calls grid_wait() */
    bool triggers;      /* the kernel calls grid_trigger() */
    const char *spills; /* why it may spill registers; NULL: it may not */
    int tactic_count;
    const lathe_step_tactic *tactics; /* in order of preference */
} lathe_step_kernel;

typedef struct {
    int buffer;        /* -1 with mailbox -1: the argument is null */
    int mailbox;       /* index into mailboxes, or -1 */
    const char *value; /* of a mailbox that carries one: its name in the layout; else NULL */
    bool previous;     /* the instance of the layer before */
} lathe_step_binding;

typedef enum {
    LATHE_OP_LAUNCH,
    LATHE_OP_FORK,
    LATHE_OP_JOIN,
    LATHE_OP_COLLECTIVE
} lathe_step_op_kind;

/* What a library moves between the ranks. */
typedef struct {
    bool gather; /* all_gather: `to` is the ranks' elements one after the other; else all_reduce:
                    their sum */
    lathe_scalar dtype;
    int64_t count; /* elements at `from`: what one rank contributes */
    lathe_step_binding from, to;
    const char *part; /* name of the part that it covers */
} lathe_step_collective;

typedef struct {
    lathe_step_op_kind kind;
    int stream;
    int kernel;                              /* of a launch, else -1 */
    const lathe_step_collective *collective; /* of a collective, else NULL */
    bool early;
    const lathe_step_binding *bindings; /* one per argument of the kernel, in its order */
    int layer_count;                    /* in `prepare`: once per layer listed; 0: once */
    const int *layers;
} lathe_step_op;

typedef struct {
    int count;
    const lathe_step_op *ops;
} lathe_step_ops;

/* Launches once at load, in each of `layers`: what they leave in the two buffers of `sums`, summed
 * over the ranks, is the same but for rounding. */
typedef struct {
    const char *about;
    double limit; /* of the relative L2 distance */
    int layer_count;
    const int *layers;
    lathe_step_ops ops; /* none: there is no probe */
    int sums[2];
} lathe_step_probe;

typedef struct {
    const char *name;
    int64_t requests;
    int64_t q;
    lathe_step_ops prologue;
    const lathe_step_ops *kinds; /* one per kind_names */
    lathe_step_ops epilogue;
} lathe_step_variant;

/* What the GPU can do at most, for floors; 0: step.json does not say. */
typedef struct {
    int64_t read_gb_s;   /* 10^9 bytes a second from memory */
    int64_t bf16_tflops; /* 10^12 dense tensor operations a second */
} lathe_step_ceilings;

typedef struct {
    const char *layout;
    const char *deployment;
    int tp;
    const char *arch;
    const char *hash;
    int64_t max_context, page_tokens, max_rows, max_requests;
    lathe_step_ceilings ceilings;
    int group_count;
    const lathe_step_group *groups;
    int buffer_count;
    const lathe_step_buffer *buffers;
    int weight_count;
    const lathe_step_weight *weights;
    lathe_step_checkpoint checkpoint;
    int served_count;
    const lathe_step_served *served;
    int mailbox_count;
    const lathe_step_mailbox *mailboxes;
    int kernel_count;
    const lathe_step_kernel *kernels;
    lathe_step_ops prepare;
    lathe_step_probe probe;
    int kind_count;
    const char *const *kind_names;
    int layer_count;
    const int *layer_kinds; /* index into kind_names, per layer */
    int variant_count;
    const lathe_step_variant *variants;
    uint64_t digest; /* XXH3 of the file's bytes: what ranks compare */
} lathe_step_table;

/* Reads DIRECTORY/step.json. On failure *table is NULL and `message` says where (JSON path), what
 * was found and what is allowed. LATHE_IO: the file cannot be read; LATHE_INVALID: anything else.
 */
LATHE_CHECKED lathe_status lathe_step_table_read(const char *directory, lathe_step_table **table,
                                                 char *message, size_t size);

/* The same from memory; `name` stands for the file in messages. */
LATHE_CHECKED lathe_status lathe_step_table_parse(const char *text, size_t length, const char *name,
                                                  lathe_step_table **table, char *message,
                                                  size_t size);

void lathe_step_table_destroy(lathe_step_table *table);

/* Product of the dimensions. Dimensions below `skip` are left out. Never overflows for a shape of a
 * table. */
int64_t lathe_step_shape_count(const lathe_step_shape *shape, int skip);

/* Index of the buffer of that name, or -1. */
int lathe_step_table_find_buffer(const lathe_step_table *table, const char *name);

/* Number of the buffer's instance for `layer` (any layer for scope "step"), or -1 where it has
 * none. */
int lathe_step_buffer_instance(const lathe_step_buffer *buffer, int layer);

/* The kernel's constant, the tactic's first; NULL where there is none. */
const lathe_step_constant *lathe_step_constant_find(const lathe_step_kernel *kernel,
                                                    const lathe_step_tactic *tactic,
                                                    const char *name);

const char *lathe_step_lifetime_name(lathe_step_lifetime lifetime);
const char *lathe_step_form_name(lathe_step_form form);

#endif
