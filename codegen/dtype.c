/* SPDX-License-Identifier: Apache-2.0
 * Names of element types and forms; shapes as text. */
#include "dtype.h"

#include "text.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name, *element;
} dtypes[LATHE_DTYPES] = {
    [LATHE_BF16] = {"bf16", "bf16"},    [LATHE_F32] = {"f32", "float"},
    [LATHE_F64] = {"f64", "double"},    [LATHE_I32] = {"i32", "int"},
    [LATHE_I64] = {"i64", "long long"}, [LATHE_U8] = {"u8", "u8"},
    [LATHE_U32] = {"u32", "u32"},       [LATHE_E4M3] = {"e4m3", "e4m3"},
};

static const char *const forms[LATHE_FORMS] = {"whole", "k_partials", "rank_partials", "columns"};

const char *lathe_dtype_name(lathe_dtype dtype) {
    return dtypes[dtype].name;
}

const char *lathe_dtype_element(lathe_dtype dtype) {
    return dtypes[dtype].element;
}

const char *lathe_form_name(lathe_form form) {
    return forms[form];
}

lathe_dtype lathe_dtype_parse(lathe_arena *arena, lathe_where where, const char *what,
                              const lathe_node *node) {
    for (int i = 0; node && node->kind == LATHE_NODE_STRING && i < LATHE_DTYPES; i++)
        if (strcmp(dtypes[i].name, node->string) == 0)
            return (lathe_dtype)i;
    lathe_diag_fail(lathe_arena_diag(arena), where,
                    "%s: dtype: found %s, allowed: bf16 f32 f64 i32 i64 u8 u32 e4m3", what,
                    lathe_tree_found(arena, node));
}

lathe_form lathe_form_parse(lathe_arena *arena, lathe_where where, const char *what,
                            const char *name) {
    for (int i = 0; i < LATHE_FORMS; i++)
        if (strcmp(forms[i], name) == 0)
            return (lathe_form)i;
    lathe_diag_fail(lathe_arena_diag(arena), where,
                    "%s: field 'form': found \"%.60s\", allowed: whole k_partials rank_partials "
                    "columns",
                    what, name);
}

const char *lathe_shape_text(lathe_arena *arena, const lathe_shape *shape) {
    lathe_text text = {.arena = arena};
    lathe_text_append(&text, "[", 1);
    for (int i = 0; i < shape->rank; i++)
        lathe_text_print(&text, "%s%" PRId64, i ? ", " : "", shape->dims[i]);
    lathe_text_append(&text, "]", 1);
    return lathe_text_string(&text);
}

bool lathe_shape_equal(const lathe_shape *a, const lathe_shape *b) {
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

int64_t lathe_shape_count(const lathe_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] && __builtin_mul_overflow(count, shape->dims[i], &count))
            return INT64_MAX;
    return count;
}
