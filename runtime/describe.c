/* SPDX-License-Identifier: Apache-2.0
 * Owns: what lathe.h tells of a step: its numbers, its arrays, their contents. */
#include <string.h>

#include "engine.h"

static int count_arrays(const lathe_step_table *t) {
    int arrays = 0;
    for (int i = 0; i < t->buffer_count; ++i)
        arrays += lathe_engine_instances(&t->buffers[i]);
    return arrays;
}

lathe_status lathe_describe(lathe_engine *e, lathe_info *info) {
    if (!e || !info)
        return lathe_engine_fail_null(e, "lathe_describe");
    if (info->size != sizeof *info)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "lathe_describe: found an info of %zu bytes, allowed: %zu",
                                 info->size, sizeof *info);
    const lathe_step_table *t = e->table;
    *info = (lathe_info){.size = sizeof *info,
                         .layout = t->layout,
                         .deployment = t->deployment,
                         .arch = t->arch,
                         .tensor_parallel = t->tp,
                         .rank = e->options.rank,
                         .max_context = t->max_context,
                         .page_tokens = t->page_tokens,
                         .max_rows = t->max_rows,
                         .max_requests = t->max_requests,
                         .layers = t->layer_count,
                         .variants = t->variant_count,
                         .groups = t->group_count,
                         .arrays = count_arrays(t)};
    return LATHE_OK;
}

static lathe_status refuse_index(lathe_engine *e, const char *call, int found, int count) {
    return lathe_engine_fail(e, LATHE_INVALID, "%s: found number %d, allowed: 0 to %d", call, found,
                             count - 1);
}

lathe_status lathe_describe_variant(lathe_engine *e, int variant, int64_t *requests, int64_t *q) {
    if (!e || !requests || !q)
        return lathe_engine_fail_null(e, "lathe_describe_variant");
    if (variant < 0 || variant >= e->table->variant_count)
        return refuse_index(e, "lathe_describe_variant", variant, e->table->variant_count);
    *requests = e->table->variants[variant].requests;
    *q = e->table->variants[variant].q;
    return LATHE_OK;
}

lathe_status lathe_describe_group(lathe_engine *e, int group, const char **name, int64_t *window,
                                  int64_t *pages) {
    if (!e || !name || !window || !pages)
        return lathe_engine_fail_null(e, "lathe_describe_group");
    *name = NULL;
    if (group < 0 || group >= e->table->group_count)
        return refuse_index(e, "lathe_describe_group", group, e->table->group_count);
    const lathe_step_group *g = &e->table->groups[group];
    *name = g->name;
    *window = g->window;
    *pages = g->table_width;
    return LATHE_OK;
}

static void fill_array(lathe_array *array, const lathe_step_buffer *b, int layer,
                       const lathe_step_shape *shape, void *data) {
    *array = (lathe_array){.size = sizeof *array,
                           .name = b->name,
                           .layer = b->per_layer ? layer : -1,
                           .dtype = lathe_scalar_name(b->dtype),
                           .rank = shape->count,
                           .data = data};
    int64_t step = 1;
    for (int d = shape->count - 1; d >= 0; --d) {
        array->shape[d] = shape->dim[d];
        array->strides[d] = step;
        step *= shape->dim[d];
    }
}

lathe_status lathe_describe_array(lathe_engine *e, int index, lathe_array *array,
                                  lathe_role *role) {
    static const lathe_role roles[] = {[LATHE_LIFETIME_WEIGHT] = LATHE_ROLE_WEIGHT,
                                       [LATHE_LIFETIME_PREPARED] = LATHE_ROLE_PREPARED,
                                       [LATHE_LIFETIME_KV] = LATHE_ROLE_KV,
                                       [LATHE_LIFETIME_SCRATCH] = LATHE_ROLE_SCRATCH,
                                       [LATHE_LIFETIME_PERSISTENT] = LATHE_ROLE_PERSISTENT,
                                       [LATHE_LIFETIME_MAILBOX] = LATHE_ROLE_MAILBOX,
                                       [LATHE_LIFETIME_INPUT] = LATHE_ROLE_INPUT,
                                       [LATHE_LIFETIME_OUTPUT] = LATHE_ROLE_OUTPUT,
                                       [LATHE_LIFETIME_BUILD] = LATHE_ROLE_BUILD};
    if (!e || !array || !role)
        return lathe_engine_fail_null(e, "lathe_describe_array");
    int left = index;
    for (int i = 0; index >= 0 && i < e->table->buffer_count; ++i) {
        const lathe_step_buffer *b = &e->table->buffers[i];
        const int count = lathe_engine_instances(b);
        if (left >= count) {
            left -= count;
            continue;
        }
        const bool built = e->state == LATHE_ENGINE_BUILT || e->state == LATHE_ENGINE_LOST;
        lathe_step_shape shape = b->shape;
        if (built && b->lifetime == LATHE_LIFETIME_KV)
            shape.dim[0] = lathe_engine_pages(e, i, left);
        fill_array(array, b, b->per_layer ? b->layers[left] : -1, &shape,
                   built ? e->memory[i][left] : NULL);
        *role = roles[b->lifetime];
        return LATHE_OK;
    }
    return refuse_index(e, "lathe_describe_array", index, count_arrays(e->table));
}

lathe_status lathe_find(lathe_engine *e, const char *name, int layer, lathe_array *array) {
    lathe_engine_memory m;
    if (!e || !name || !array)
        return lathe_engine_fail_null(e, "lathe_find");
    memset(array, 0, sizeof *array);
    const lathe_status status = lathe_engine_find(e, name, layer, &m);
    if (status == LATHE_OK)
        fill_array(array, m.buffer, m.layer, &m.shape, m.address);
    return status;
}

lathe_status lathe_read(lathe_engine *e, const char *name, int layer, size_t offset, void *host,
                        size_t bytes) {
    return e && name && (host || bytes == 0)
               ? lathe_engine_read(e, name, layer, offset, host, bytes)
               : lathe_engine_fail_null(e, "lathe_read");
}

lathe_status lathe_write(lathe_engine *e, const char *name, int layer, size_t offset,
                         const void *host, size_t bytes) {
    return e && name && (host || bytes == 0)
               ? lathe_engine_write(e, name, layer, offset, host, bytes)
               : lathe_engine_fail_null(e, "lathe_write");
}
