/* SPDX-License-Identifier: Apache-2.0
 * A layout file as structs: deployments, and the model one of them makes. */
#ifndef LATHE_LAYOUT_H
#define LATHE_LAYOUT_H

#include "dtype.h"
#include "lua_box.h"

enum { LATHE_MAX_LAYERS = 4096 }; /* as the runtime reads */

typedef struct {
    lathe_where where;
    const char *provider; /* "gemm/skinny" */
    const char **parts;
    size_t part_count;
    const lathe_table *options; /* NULL: none */
    bool side;
} lathe_use;

typedef struct {
    const char *name; /* "4x8" */
    int64_t requests, q, rows;
} lathe_variant;

typedef struct {
    lathe_where where;
    const lathe_table *table; /* what `model` is called with */
    const char *name;
    int64_t tp, max_context, page_tokens;
    const lathe_table *aux; /* layer numbers, ascending */
    lathe_variant *variants;
    size_t variant_count;
    bool invariant; /* a row's bits depend on no other row, nor on the variant */
    lathe_use *uses;
    size_t use_count;
} lathe_deployment;

typedef struct {
    lathe_where where;
    const char *name;
    int64_t window;
} lathe_group;

typedef enum {
    LATHE_DIM_NUMBER,
    LATHE_DIM_ROWS,
    LATHE_DIM_REQUESTS,
    LATHE_DIM_Q,
    LATHE_DIM_PAGES,
    LATHE_DIM_TABLE_WIDTH,
    LATHE_DIM_FUNCTION
} lathe_dim_kind;

typedef struct {
    lathe_dim_kind kind;
    int64_t number;
    lathe_node function;
} lathe_dim;

typedef struct {
    lathe_where where;
    const char *name; /* checkpoint name, may hold {l} */
    lathe_dtype dtype;
    lathe_shape shape;
    int shard; /* axis, -1: replicated */
    int64_t groups;
    const char *init; /* NULL: none */
} lathe_tensor;

typedef enum {
    LATHE_DATUM_VALUE,
    LATHE_DATUM_WEIGHT,
    LATHE_DATUM_CACHE,
    LATHE_DATUM_IMPLICIT
} lathe_datum_kind;

/* A thing with a name that parts read or write. */
typedef struct {
    lathe_where where;
    lathe_where called; /* of the function that declares it; file NULL: unknown */
    lathe_datum_kind kind;
    const char *name;
    lathe_dtype dtype;
    lathe_dim dims[LATHE_MAX_DIMS];
    int rank;
    bool per_layer;
    bool input, output;    /* values */
    const char *group;     /* caches */
    lathe_tensor *tensors; /* weights */
    size_t tensor_count;
    int axis;
    const char *held; /* the weight of the parts that ranks hold of it; NULL: none */
    bool is_held;     /* it is that weight of another one */
} lathe_datum;

typedef struct {
    const char *port;
    const char *name; /* of the datum */
    bool previous;    /* of the layer before */
} lathe_port;

typedef struct {
    lathe_where where;
    const char *name, *kind;
    lathe_port *reads, *writes;
    size_t read_count, write_count;
    const lathe_table *set; /* attributes; NULL: none */
} lathe_part;

typedef struct {
    lathe_where where;
    const char *name; /* of the kind; "prologue", "epilogue", "prepare" otherwise */
    const lathe_part **parts;
    size_t part_count;
} lathe_part_list;

/* Launches once at load that make the same values in two ways. */
typedef struct {
    lathe_part_list list; /* of no part: there is no probe */
    const char *about;
    double limit; /* of the relative L2 distance of the two */
    size_t variant;
    size_t *layers; /* ascending */
    size_t layer_count;
    const char *sums[2]; /* values: their sums over the ranks are compared */
} lathe_probe;

typedef struct {
    lathe_where where;
    lathe_group *groups;
    size_t group_count;
    lathe_datum *data; /* sorted by name, implicit ones too */
    size_t datum_count;
    lathe_part_list prepare, prologue, epilogue;
    lathe_probe probe;
    lathe_part_list *kinds;
    size_t kind_count;
    size_t *layers; /* index into kinds */
    size_t layer_count;
    const lathe_table *checkpoint; /* `files`, `names`, `unread`; NULL: none */
    const lathe_table *serves;     /* words and numbers of the model; NULL: none */
} lathe_model;

typedef struct {
    lathe_where where;
    const char *name, *doc;
    lathe_deployment *deployments;
    size_t deployment_count;
    lathe_node model; /* function */
} lathe_layout;

/* Reads what a layout file returned. */
lathe_layout *lathe_layout_read(lathe_lua *lua, const char *shown, const lathe_node *returned);

/* The variant of the most rows, whose tactics all variants of an invariant deployment take. */
const lathe_variant *lathe_layout_lead(const lathe_deployment *deployment);

/* The deployment of that TP size and name. Where there is none, says which the layout has and, for
 * a TP size no deployment has, why the model cannot be split so. */
const lathe_deployment *lathe_layout_pick(lathe_lua *lua, const lathe_layout *layout, int64_t tp,
                                          const char *name);

/* Calls model(deployment). Refusals of the TP size fail with all their reasons. */
lathe_model *lathe_layout_model(lathe_lua *lua, const lathe_layout *layout,
                                const lathe_deployment *deployment);

/* Fails where no layer is of a kind, or no part touches a value, weight or cache: what was written
 * about it would never be looked at. Last of all, for a slip of another kind often has it as a
 * consequence. */
void lathe_layout_check_unused(lathe_arena *arena, const lathe_model *model);

/* NULL where the model has none of that name. */
const lathe_datum *lathe_model_find(const lathe_model *model, const char *name);

/* The shape of a datum for one variant (NULL: outside a step; rows, requests and q are refused). */
lathe_shape lathe_layout_shape(lathe_lua *lua, const lathe_deployment *deployment,
                               const lathe_datum *datum, const lathe_variant *variant);

#endif
