/* SPDX-License-Identifier: Apache-2.0
 * Element types, forms and shapes: the vocabulary that layouts, specs and step.json share. */
#ifndef LATHE_DTYPE_H
#define LATHE_DTYPE_H

#include "tree.h"

#define LATHE_MAX_DIMS 8
#define LATHE_MAX_SIZE ((int64_t)1 << 40) /* largest dimension, and largest element count */

typedef enum {
    LATHE_BF16,
    LATHE_F32,
    LATHE_F64,
    LATHE_I32,
    LATHE_I64,
    LATHE_U8,
    LATHE_U32,
    LATHE_E4M3,
    LATHE_DTYPES
} lathe_dtype;

typedef enum {
    LATHE_WHOLE,
    LATHE_K_PARTIALS,
    LATHE_RANK_PARTIALS,
    LATHE_COLUMNS,
    LATHE_FORMS
} lathe_form;

typedef struct {
    int rank;
    int64_t dims[LATHE_MAX_DIMS]; /* pages of a cache are 0 */
} lathe_shape;

const char *lathe_dtype_name(lathe_dtype dtype);    /* "bf16" */
const char *lathe_dtype_element(lathe_dtype dtype); /* as a kernel spells it: "long long" */
const char *lathe_form_name(lathe_form form);       /* "k_partials" */

lathe_dtype lathe_dtype_parse(lathe_arena *arena, lathe_where where, const char *what,
                              const lathe_node *node);
lathe_form lathe_form_parse(lathe_arena *arena, lathe_where where, const char *what,
                            const char *name);

/* "[8, 64]" */
const char *lathe_shape_text(lathe_arena *arena, const lathe_shape *shape);
bool lathe_shape_equal(const lathe_shape *a, const lathe_shape *b);
/* Product of the dimensions; 0 counts as 1. Saturates at INT64_MAX. */
int64_t lathe_shape_count(const lathe_shape *shape);

#endif
