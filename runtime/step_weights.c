/* SPDX-License-Identifier: Apache-2.0
 * Owns: the weights of step.json. A weight's sources, sharded over the ranks, must add up to its
 * buffer exactly. */
#include <string.h>

#include "step_read.h"

static bool read_shard(lathe_json *j, const json_t *object, lathe_step_source *s) {
    const json_t *shard = json_object_get(object, "shard");
    s->shard_axis = -1;
    s->shard_groups = 1;
    if (!shard || json_is_null(shard))
        return true;
    int64_t axis = 0;
    const size_t mark = lathe_json_enter(j, "shard");
    if (!lathe_json_object(j, shard, "axis groups") ||
        !lathe_json_int(j, shard, "axis", 0, (int64_t)s->shape.count - 1, &axis) ||
        !lathe_json_int(j, shard, "groups", 1, INT32_MAX, &s->shard_groups))
        return false;
    lathe_json_leave(j, mark);
    s->shard_axis = (int)axis;
    return true;
}

/* Elements of this rank's part of the tensor. */
static bool local_count(lathe_step_reader *r, const lathe_step_source *s, int64_t *count) {
    lathe_json *j = &r->json;
    int64_t bytes;
    if (!lathe_step_shape_bytes(j, &s->shape, 0, s->dtype, &bytes))
        return false;
    *count = lathe_step_shape_count(&s->shape, 0);
    if (s->shard_axis < 0)
        return true;
    const int64_t parts = s->shard_groups * r->table->tp;
    if (s->shape.dim[s->shard_axis] % parts != 0)
        return lathe_json_fail_at(
            j, "shard", "found %lld along axis %d, allowed: a multiple of groups * tp = %lld",
            (long long)s->shape.dim[s->shard_axis], s->shard_axis, (long long)parts);
    *count /= r->table->tp;
    return true;
}

static bool read_source(lathe_step_reader *r, const json_t *value, lathe_step_source *s,
                        int64_t *count) {
    lathe_json *j = &r->json;
    return lathe_json_object(j, value, "tensor dtype shape shard? init?") &&
           lathe_json_name(j, value, "tensor", LATHE_NAME_WORD, &s->tensor) &&
           (!json_object_get(value, "init") ||
            lathe_json_name(j, value, "init", LATHE_NAME_WORD, &s->init)) &&
           lathe_step_read_scalar(j, value, &s->dtype) &&
           lathe_step_read_shape(j, value, 1, false, &s->shape) && read_shard(j, value, s) &&
           local_count(r, s, count);
}

static bool read_sources(lathe_step_reader *r, const json_t *value, lathe_step_weight *w,
                         int64_t *total) {
    lathe_json *j = &r->json;
    const json_t *array;
    *total = 0;
    if (!lathe_json_array(j, value, "sources", 1, LATHE_STEP_MAX_LIST, &array, &w->source_count))
        return false;
    lathe_step_source *sources = lathe_json_alloc(j, w->source_count, sizeof *sources);
    if (!sources)
        return false;
    w->sources = sources;
    const size_t mark = lathe_json_enter(j, "sources");
    for (int i = 0; i < w->source_count; ++i) {
        int64_t count;
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (!read_source(r, json_array_get(array, (size_t)i), &sources[i], &count))
            return false;
        lathe_json_leave(j, inner);
        *total += count; /* 65536 sources of 2^46 bytes do not overflow */
    }
    lathe_json_leave(j, mark);
    return true;
}

static bool read_weight(lathe_step_reader *r, const json_t *value, lathe_step_weight *w) {
    lathe_json *j = &r->json;
    const char *name;
    int64_t axis = 0, total;
    if (!lathe_json_object(j, value, "buffer axis? held? sources") ||
        !lathe_json_name(j, value, "buffer", LATHE_NAME_WORD, &name))
        return false;
    w->buffer = lathe_step_index_find(&r->buffers, name);
    if (w->buffer < 0 || (r->table->buffers[w->buffer].lifetime != LATHE_LIFETIME_WEIGHT &&
                          r->table->buffers[w->buffer].lifetime != LATHE_LIFETIME_BUILD))
        return lathe_json_fail_at(
            j, "buffer", "found \"%.60s\", allowed: a buffer of lifetime weight or build", name);
    const lathe_step_buffer *b = &r->table->buffers[w->buffer];
    const int64_t last = b->shape.count ? b->shape.count - 1 : 0;
    if ((json_object_get(value, "axis") && !lathe_json_int(j, value, "axis", 0, last, &axis)) ||
        !read_sources(r, value, w, &total))
        return false;
    w->axis = (int)axis;
    const int64_t wanted = lathe_step_shape_count(&b->shape, 0);
    return total == wanted ||
           lathe_json_fail_at(j, "sources",
                              "found %lld elements for one rank, allowed: %lld as \"%.60s\" has",
                              (long long)total, (long long)wanted, name);
}

static bool same_shape(const lathe_step_shape *a, const lathe_step_shape *b) {
    return a->count == b->count && memcmp(a->dim, b->dim, (size_t)a->count * sizeof *a->dim) == 0;
}

/* One tensor each, the same one; held is cut along dimension 0, the weight along another or not. */
static bool fits_held(const lathe_step_table *t, const lathe_step_weight *w,
                      const lathe_step_weight *held) {
    const lathe_step_buffer *b = &t->buffers[w->buffer], *h = &t->buffers[held->buffer];
    if (w->source_count != 1 || held->source_count != 1 || h->lifetime != LATHE_LIFETIME_BUILD ||
        b->lifetime != LATHE_LIFETIME_WEIGHT || !b->per_layer || !h->per_layer)
        return false;
    const lathe_step_source *s = w->sources, *part = held->sources;
    for (int i = 0; i < b->layer_count; ++i)
        if (lathe_step_buffer_instance(h, b->layers[i]) < 0)
            return false;
    return strcmp(s->tensor, part->tensor) == 0 && s->dtype == part->dtype &&
           same_shape(&s->shape, &part->shape) && s->shard_axis != 0 && part->shard_axis == 0 &&
           part->shard_groups == 1;
}

/* `of`: per buffer the weight that fills it, or NULL. */
static bool read_held(lathe_step_reader *r, const json_t *value, const lathe_step_weight **of,
                      lathe_step_weight *w) {
    lathe_json *j = &r->json;
    const lathe_step_table *t = r->table;
    const char *name;
    if (!json_object_get(value, "held"))
        return true;
    if (!lathe_json_name(j, value, "held", LATHE_NAME_WORD, &name))
        return false;
    const int buffer = lathe_step_index_find(&r->buffers, name);
    if (buffer >= 0 && of[buffer] && fits_held(t, w, of[buffer]))
        w->held = of[buffer];
    return w->held ||
           lathe_json_fail_at(j, "held",
                              "found \"%.60s\", allowed: a weight of lifetime build in the same "
                              "layers, of the same one tensor cut along axis 0",
                              name);
}

static bool read_all_held(lathe_step_reader *r, const json_t *array, lathe_step_weight *weights) {
    lathe_json *j = &r->json;
    const lathe_step_table *t = r->table;
    const lathe_step_weight **of = lathe_json_alloc(j, t->buffer_count, sizeof *of);
    if (!of)
        return false;
    for (int i = 0; i < t->weight_count; ++i)
        of[weights[i].buffer] = &weights[i];
    for (int i = 0; i < t->weight_count; ++i) {
        const size_t mark = lathe_json_enter(j, "weights");
        lathe_json_enter_index(j, (size_t)i);
        if (!read_held(r, json_array_get(array, (size_t)i), of, &weights[i]))
            return false;
        lathe_json_leave(j, mark);
    }
    return true;
}

/* Every weight buffer is filled by exactly one weight. */
static bool check_filled(lathe_step_reader *r) {
    const lathe_step_table *t = r->table;
    char *filled = lathe_json_alloc(&r->json, t->buffer_count, 1);
    if (!filled)
        return false;
    for (int i = 0; i < t->weight_count; ++i) {
        const int buffer = t->weights[i].buffer;
        if (filled[buffer]++)
            return lathe_json_fail(&r->json, "weights: found \"%.60s\" a second time",
                                   t->buffers[buffer].name);
    }
    for (int i = 0; i < t->buffer_count; ++i)
        if (t->buffers[i].lifetime == LATHE_LIFETIME_WEIGHT && !filled[i])
            return lathe_json_fail(&r->json, "weights: nothing fills the buffer \"%.60s\"",
                                   t->buffers[i].name);
    return true;
}

bool lathe_step_read_weights(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    lathe_step_table *t = r->table;
    const json_t *array;
    if (!lathe_json_array(j, root, "weights", 0, LATHE_STEP_MAX_LIST, &array, &t->weight_count))
        return false;
    lathe_step_weight *weights = lathe_json_alloc(j, t->weight_count, sizeof *weights);
    if (!weights)
        return false;
    t->weights = weights;
    for (int i = 0; i < t->weight_count; ++i) {
        const size_t mark = lathe_json_enter(j, "weights");
        lathe_json_enter_index(j, (size_t)i);
        if (!read_weight(r, json_array_get(array, (size_t)i), &weights[i]))
            return false;
        lathe_json_leave(j, mark);
    }
    return read_all_held(r, array, weights) && check_filled(r);
}
