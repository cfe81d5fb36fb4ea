/* SPDX-License-Identifier: Apache-2.0
 * Owns: memory that the caller gives: weights before the build, KV caches at any time. All of a
 * call is checked before any of it is taken. */
#include <stdio.h>
#include <string.h>

#include "engine.h"

#define ALIGNMENT 16

void *lathe_engine_given(const lathe_engine *e, int buffer, int instance) {
    return e->given && e->given[buffer] ? e->given[buffer][instance] : NULL;
}

int64_t lathe_engine_pages(const lathe_engine *e, int buffer, int instance) {
    return lathe_engine_given(e, buffer, instance) ? e->pages[buffer][instance] : e->kv_pages;
}

int lathe_engine_unbound_cache(const lathe_engine *e, int *layer) {
    if (!e->options.external_caches)
        return -1;
    for (int i = 0; i < e->table->buffer_count; ++i) {
        const lathe_step_buffer *b = &e->table->buffers[i];
        if (b->lifetime != LATHE_LIFETIME_KV)
            continue;
        for (int n = 0; n < lathe_engine_instances(b); ++n)
            if (!lathe_engine_given(e, i, n)) {
                *layer = b->per_layer ? b->layers[n] : -1;
                return i;
            }
    }
    return -1;
}

/* "[2, 3]" */
static const char *show_shape(int rank, const int64_t *shape, char *text, size_t size) {
    size_t n = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < rank && n < size; ++d)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? ", " : "", (long long)shape[d]);
    if (n < size)
        snprintf(text + n, size - n, "]");
    return text;
}

/* What is compared: an array of the caller's, and the instance that it shall be. */
typedef struct {
    const char *call;
    const lathe_array *array;
    int buffer, instance;
    char what[160]; /* "lathe_bind_weights: gain of layer 1" */
} candidate;

static lathe_status refuse(lathe_engine *e, const candidate *c, const char *field,
                           const char *found, const char *allowed) {
    return lathe_engine_fail(e, LATHE_INVALID, "%s: %s: found %s, allowed: %s", c->what, field,
                             found, allowed);
}

/* Whole experts, which are there while the step is built. */
static bool is_held(const lathe_step_table *t, int buffer) {
    for (int w = 0; w < t->weight_count; ++w)
        if (t->weights[w].held && t->weights[w].held->buffer == buffer)
            return true;
    return false;
}

static lathe_status find_instance(lathe_engine *e, candidate *c, lathe_step_lifetime lifetime,
                                  const char *kind) {
    const lathe_array *a = c->array;
    if (a->size != sizeof *a)
        return lathe_engine_fail(e, LATHE_INVALID, "%s: found an array of size %zu, allowed: %zu",
                                 c->call, a->size, sizeof *a);
    c->buffer = a->name ? lathe_step_table_find_buffer(e->table, a->name) : -1;
    if (c->buffer < 0 || (e->table->buffers[c->buffer].lifetime != lifetime &&
                          !(lifetime == LATHE_LIFETIME_WEIGHT && is_held(e->table, c->buffer))))
        return lathe_engine_fail(e, LATHE_INVALID, "%s: no %s has the name \"%.80s\"", c->call,
                                 kind, a->name ? a->name : "");
    c->instance = lathe_step_buffer_instance(&e->table->buffers[c->buffer], a->layer);
    if (c->instance < 0)
        return lathe_engine_fail(e, LATHE_INVALID, "%s: layer %d has no %.80s", c->call, a->layer,
                                 a->name);
    if (e->table->buffers[c->buffer].per_layer)
        snprintf(c->what, sizeof c->what, "%s: %.80s of layer %d", c->call, a->name, a->layer);
    else
        snprintf(c->what, sizeof c->what, "%s: %.80s", c->call, a->name);
    return LATHE_OK;
}

static lathe_status check_dtype(lathe_engine *e, const candidate *c) {
    const char *wanted = lathe_scalar_name(e->table->buffers[c->buffer].dtype);
    const char *found = c->array->dtype ? c->array->dtype : "none";
    return strcmp(found, wanted) == 0 ? LATHE_OK : refuse(e, c, "dtype", found, wanted);
}

/* `free_front`: any size of the first dimension is allowed. */
static lathe_status check_shape(lathe_engine *e, const candidate *c, bool free_front) {
    const lathe_step_shape *s = &e->table->buffers[c->buffer].shape;
    const lathe_array *a = c->array;
    char found[200], wanted[200];
    bool good = a->rank == s->count;
    for (int d = 0; good && d < s->count; ++d)
        good = (free_front && d == 0) ? a->shape[0] >= 0 && a->shape[0] <= INT32_MAX
                                      : a->shape[d] == s->dim[d];
    if (good)
        return LATHE_OK;
    if (a->rank < 0 || a->rank > LATHE_ARRAY_DIMS)
        snprintf(found, sizeof found, "%d dimensions", a->rank);
    else
        show_shape(a->rank, a->shape, found, sizeof found);
    return lathe_engine_fail(e, LATHE_INVALID, "%s: shape: found %s, allowed: %s%s", c->what, found,
                             show_shape(s->count, s->dim, wanted, sizeof wanted),
                             free_front ? " with 0 to 2^31 - 1 pages in front" : "");
}

static lathe_status check_strides(lathe_engine *e, const candidate *c) {
    const lathe_array *a = c->array;
    int64_t dense[LATHE_ARRAY_DIMS], step = 1;
    bool any = false, good = true;
    for (int d = a->rank - 1; d >= 0; --d) {
        dense[d] = step;
        any = any || a->strides[d] != 0;
        good = good && (a->strides[d] == step || a->shape[d] == 1);
        step *= a->shape[d];
    }
    char found[200], wanted[200];
    if (!any || good)
        return LATHE_OK;
    return refuse(e, c, "strides", show_shape(a->rank, a->strides, found, sizeof found),
                  show_shape(a->rank, dense, wanted, sizeof wanted));
}

static lathe_status check_address(lathe_engine *e, const candidate *c) {
    char found[40];
    const uintptr_t address = (uintptr_t)c->array->data;
    if (address && address % ALIGNMENT == 0)
        return LATHE_OK;
    snprintf(found, sizeof found, "%#llx", (unsigned long long)address);
    return refuse(e, c, "address", found, "a multiple of 16, not 0");
}

static lathe_status check_candidate(lathe_engine *e, candidate *c, bool cache) {
    lathe_status status = cache ? find_instance(e, c, LATHE_LIFETIME_KV, "KV cache")
                                : find_instance(e, c, LATHE_LIFETIME_WEIGHT, "weight");
    if (status == LATHE_OK)
        status = check_dtype(e, c);
    if (status == LATHE_OK)
        status = check_shape(e, c, cache);
    if (status != LATHE_OK || (cache && c->array->shape[0] == 0))
        return status;
    status = check_strides(e, c);
    return status == LATHE_OK ? check_address(e, c) : status;
}

/* Room for what is given of one buffer. */
static bool make_room(lathe_engine *e, int buffer) {
    const size_t buffers = (size_t)e->table->buffer_count;
    const size_t count = (size_t)lathe_engine_instances(&e->table->buffers[buffer]);
    if (!e->given)
        e->given = lathe_pool_alloc(e->pool, buffers, sizeof *e->given);
    if (!e->pages)
        e->pages = lathe_pool_alloc(e->pool, buffers, sizeof *e->pages);
    if (!e->given || !e->pages)
        return false;
    if (!e->pages[buffer])
        e->pages[buffer] = lathe_pool_alloc(e->pool, count, sizeof **e->pages);
    if (!e->given[buffer])
        e->given[buffer] = lathe_pool_alloc(e->pool, count, sizeof **e->given);
    return e->given[buffer] && e->pages[buffer];
}

static lathe_status check_all(lathe_engine *e, const char *call, const lathe_array *arrays,
                              int count, bool cache) {
    if (count < 0)
        return lathe_engine_fail(e, LATHE_INVALID, "%s: found %d arrays, allowed: 0 or more", call,
                                 count);
    for (int i = 0; i < count; ++i) {
        candidate c = {.call = call, .array = &arrays[i]};
        const lathe_status status = check_candidate(e, &c, cache);
        if (status != LATHE_OK)
            return status;
        if (!make_room(e, c.buffer))
            return lathe_engine_fail(e, LATHE_NO_MEMORY, "%s: no memory", call);
    }
    return LATHE_OK;
}

lathe_status lathe_bind_weights(lathe_engine *e, const lathe_array *weights, int count) {
    if (!e || (!weights && count > 0))
        return lathe_engine_fail_null(e, "lathe_bind_weights");
    if (e->state != LATHE_ENGINE_CREATED)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "lathe_bind_weights: found a call after lathe_build, allowed: "
                                 "before");
    const lathe_status status = check_all(e, "lathe_bind_weights", weights, count, false);
    for (int i = 0; status == LATHE_OK && i < count; ++i) {
        const int b = lathe_step_table_find_buffer(e->table, weights[i].name);
        const int n = lathe_step_buffer_instance(&e->table->buffers[b], weights[i].layer);
        e->given[b][n] = weights[i].data;
    }
    return status;
}

static void take_cache(lathe_engine *e, const lathe_array *a) {
    const int buffer = lathe_step_table_find_buffer(e->table, a->name);
    const lathe_step_buffer *b = &e->table->buffers[buffer];
    const int n = lathe_step_buffer_instance(b, a->layer);
    if (e->state == LATHE_ENGINE_BUILT) {
        if (!e->given[buffer][n])
            lathe_engine_free(e, e->memory[buffer][n]); /* what the build warmed up with */
        e->memory[buffer][n] = a->data;
        lathe_engine_move(e, buffer, b->per_layer ? a->layer : -1, a->data, a->shape[0]);
    }
    e->given[buffer][n] = a->data;
    e->pages[buffer][n] = a->shape[0];
}

lathe_status lathe_bind_caches(lathe_engine *e, const lathe_array *caches, int count) {
    int layer, taken = 0;
    if (!e || (!caches && count > 0))
        return lathe_engine_fail_null(e, "lathe_bind_caches");
    if (e->state != LATHE_ENGINE_CREATED && e->state != LATHE_ENGINE_BUILT)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "lathe_bind_caches: the build failed or a peer was lost");
    if (!e->options.external_caches)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "lathe_bind_caches: the engine has caches of its own, allowed: "
                                 "with external_caches");
    lathe_status status = check_all(e, "lathe_bind_caches", caches, count, true);
    if (status == LATHE_OK && e->state == LATHE_ENGINE_BUILT)
        status = lathe_engine_synchronize(e);
    for (int i = 0; status == LATHE_OK && i < count; ++i)
        if (caches[i].shape[0] > 0) {
            take_cache(e, &caches[i]);
            ++taken;
        }
    if (status != LATHE_OK || taken == 0 || e->state != LATHE_ENGINE_BUILT ||
        lathe_engine_unbound_cache(e, &layer) >= 0)
        return status;
    return lathe_engine_capture(e);
}
