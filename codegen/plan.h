/* SPDX-License-Identifier: Apache-2.0
 * The step as the generator plans it: kernels, buffers, launches. bind and wire make it, emit
 * writes it. */
#ifndef LATHE_PLAN_H
#define LATHE_PLAN_H

#include "layout.h"
#include "provider.h"
#include "tactic.h"

/* How one argument of a launch is bound. */
typedef struct {
    bool bound;
    const lathe_datum *datum; /* NULL for workspaces and mailboxes */
    bool previous;            /* the instance of the layer before */
    bool publishes, receives; /* a mailbox that carries the datum */
    lathe_form form;
    lathe_shape
        shape;   /* the kernel's own; of a k_partials output complete once the tactic is known */
    int buffer;  /* index into the plan's buffers; -1: null, or a mailbox */
    int mailbox; /* index into the plan's mailboxes; -1: none */
} lathe_binding;

typedef struct {
    const char *name; /* "in_norm_1x8" */
    const lathe_provider *provider;
    const char **parts;
    size_t part_count;
    const char *list, *variant; /* where it is launched first; variant "" in `prepare` */
    int64_t rows;
    const lathe_bound
        *constants;      /* by the provider's constants; tactic and computed ones unknown */
    lathe_binding *args; /* of the first launch; shapes serve all */
    int64_t bytes, operations;
    lathe_tactic *tactics;
    size_t tactic_count;
    const char *why;
    lathe_tactic *choices; /* all that the spec has; where the plan lists them */
    size_t choice_count;
    const char *rule; /* name of what the spec's rule takes first; with `choices` */
    bool used;
} lathe_kernel; /* or a collective, which has a name and is in no file */

typedef enum {
    LATHE_LIFE_WEIGHT,
    LATHE_LIFE_PREPARED,
    LATHE_LIFE_BUILD,
    LATHE_LIFE_KV,
    LATHE_LIFE_SCRATCH,
    LATHE_LIFE_PERSISTENT,
    LATHE_LIFE_INPUT,
    LATHE_LIFE_OUTPUT
} lathe_lifetime;

typedef struct {
    const char *name;
    lathe_where where;
    const lathe_datum *datum; /* NULL: a workspace */
    lathe_dtype dtype;
    lathe_shape shape; /* of the largest variant */
    lathe_form form;
    lathe_lifetime lifetime;
    bool zeroed, per_layer;
    bool used;
    bool *layers; /* per layer: whether it has an instance */
} lathe_buffer;

typedef struct {
    const char *name;
    int64_t bytes;
} lathe_mailbox;

typedef enum { LATHE_OP_LAUNCH, LATHE_OP_FORK, LATHE_OP_JOIN } lathe_op_kind;

typedef struct {
    lathe_op_kind kind;
    int stream;
    size_t kernel;
    bool early;
    lathe_binding *args; /* by the provider's arguments */
    lathe_where where;   /* of the launch's first part */
    const char *part;
    bool *layers; /* in `prepare`; NULL: once */
} lathe_op;

typedef struct {
    lathe_op *ops;
    size_t count;
} lathe_ops;

/* An early launch and the launch before it, by kernels. */
typedef struct {
    size_t kernel, predecessor;
    lathe_where where;
} lathe_early_pair;

typedef struct {
    const lathe_variant *variant;
    lathe_ops prologue, epilogue;
    lathe_ops *kinds; /* by the model's kinds; unused ones are empty */
} lathe_variant_ops;

/* Of an invariant deployment: the kernel of a launch in the variant that the others follow. */
typedef struct {
    const lathe_use *use;
    const char *list, *part; /* the first */
    size_t kernel;
} lathe_lead;

typedef struct {
    lathe_lua *lua;
    lathe_arena *arena;
    const lathe_layout *layout;
    const lathe_deployment *deployment;
    const lathe_model *model;
    const lathe_arch *arch;
    const lathe_tactics *table, *before; /* measured tactics; `before` is asked first */
    size_t list_choices;                 /* at most so many tactics of a kernel are listed */
    lathe_provider **providers;
    size_t provider_count;
    lathe_kernel *kernels;
    size_t kernel_count;
    lathe_buffer *buffers;
    size_t buffer_count;
    lathe_mailbox *mailboxes;
    size_t mailbox_count;
    lathe_early_pair *early;
    size_t early_count;
    lathe_lead *leads;
    size_t lead_count;
    lathe_ops prepare;
    lathe_ops probe;             /* empty: none */
    lathe_variant_ops *variants; /* by the deployment's variants */
} lathe_plan;

#endif
