/* SPDX-License-Identifier: Apache-2.0
 * Copies of launches with other addresses. */
#include "bench_launches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lathe_status fail(char *message, size_t size, const lathe_device *d, const char *what,
                         lathe_status status) {
    snprintf(message, size, "%s: %s", what,
             d && d->message[0] ? d->message : lathe_status_name(status));
    return status;
}

/* ---- which values are whose ---- */

/* Integers that one launch leaves to another of the same layer. */
static bool is_index(const lathe_step_value *v) {
    return v->buffer && v->buffer->lifetime == LATHE_LIFETIME_SCRATCH && !v->buffer->per_layer &&
           v->arg->dtype == LATHE_SCALAR_I32;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static const lathe_step_value *find_value(const lathe_step_launch *l, const char *name,
                                          lathe_step_dir dir, lathe_scalar dtype) {
    for (int i = 0; l->kind == LATHE_OP_LAUNCH && i < l->value_count; ++i) {
        const lathe_step_value *v = &l->values[i];
        if (v->buffer && v->arg->dir == dir && v->arg->dtype == dtype && begins(v->arg->name, name))
            return v;
    }
    return NULL;
}

/* Routing reads `logits` [rows, experts], or slices of them, and writes `ids` [rows, chosen]. */
static const lathe_step_value *logits_of(const lathe_step_launch *l) {
    return find_value(l, "ids", LATHE_DIR_OUT, LATHE_SCALAR_I32)
               ? find_value(l, "logits", LATHE_DIR_IN, LATHE_SCALAR_F32)
               : NULL;
}

bool lathe_bench_launches_routes(const lathe_step_launch *l) {
    return logits_of(l) != NULL;
}

/* ---- copies ---- */

typedef struct {
    lathe_bench_launches *own;
    lathe_device *device;
    const lathe_step_table *table;
    lathe_pool *pool;
    void **now; /* per buffer: memory of its latest values; NULL: the engine's */
    int rank;
} copier;

static bool copy_launch(const copier *c, lathe_step_launch *l) {
    const size_t n = (size_t)l->value_count;
    lathe_step_value *values = lathe_pool_alloc(c->pool, n, sizeof *values);
    void **addresses = lathe_pool_alloc(c->pool, n, sizeof *addresses);
    if (!values || !addresses)
        return false;
    if (n > 0) {
        memcpy(values, l->values, n * sizeof *values);
        memcpy(addresses, l->addresses, n * sizeof *addresses);
    }
    l->values = values;
    l->addresses = addresses;
    return true;
}

static void set_address(lathe_step_launch *l, const lathe_step_value *v, void *address) {
    lathe_step_value *values = (lathe_step_value *)(uintptr_t)l->values;
    void **addresses = (void **)(uintptr_t)l->addresses;
    values[v - l->values].address = address;
    addresses[v - l->values] = address;
}

static lathe_status take_memory(const copier *c, size_t bytes, void **memory) {
    lathe_bench_launches *own = c->own;
    lathe_status status = c->device->ops->alloc(c->device, bytes, memory);
    if (status != LATHE_OK)
        return status;
    own->memory[c->rank][own->memory_count[c->rank]++] = *memory;
    return c->device->ops->fill(c->device, *memory, 0, bytes);
}

static lathe_status move_index(const copier *c, lathe_step_launch *l, const lathe_step_value *v) {
    void **now = &c->now[v->buffer - c->table->buffers];
    if (v->arg->dir == LATHE_DIR_OUT) {
        const lathe_status status = take_memory(c, (size_t)v->buffer->fixed_bytes, now);
        if (status != LATHE_OK)
            return status;
    }
    if (*now)
        set_address(l, v, *now);
    return LATHE_OK;
}

/* Memory of zeros in place of the logits, to be drawn, and of the bias of the selection: a trained
 * bias makes the routes even, a synthetic one would not. */
static lathe_status move_routing(const copier *c, lathe_step_launch *l) {
    const lathe_step_value *values[2] = {logits_of(l),
                                         find_value(l, "bias", LATHE_DIR_IN, LATHE_SCALAR_F32)};
    for (int i = 0; values[0] && i < 2 && values[i]; ++i) {
        void *memory;
        const lathe_status status = take_memory(c, values[i]->bytes, &memory);
        if (status != LATHE_OK)
            return status;
        set_address(l, values[i], memory);
    }
    return LATHE_OK;
}

/* Inputs first: what a launch reads is what stood before. */
static lathe_status move_values(const copier *c, lathe_step_launch *l) {
    lathe_status status = LATHE_OK;
    for (int outputs = 0; outputs < 2; ++outputs)
        for (int i = 0; status == LATHE_OK && i < l->value_count; ++i)
            if (is_index(&l->values[i]) && (l->values[i].arg->dir == LATHE_DIR_OUT) == outputs)
                status = move_index(c, l, &l->values[i]);
    return status == LATHE_OK ? move_routing(c, l) : status;
}

/* At most this many pieces: a value of a launch has one, if any. */
static size_t count_pieces(const lathe_step_launch *l, int count) {
    size_t pieces = 1;
    for (int i = 0; i < count; ++i)
        pieces += (size_t)l[i].value_count;
    return pieces;
}

static lathe_status copy_rank(lathe_bench_launches *own, int rank, lathe_pool *pool, char *message,
                              size_t size) {
    lathe_engine *e = own->ranks->engines[rank];
    const lathe_step_launch *from = lathe_engine_launches(e, own->variant, &own->count);
    copier c = {own, lathe_engine_device(e), lathe_engine_table(e), pool, NULL, rank};
    const size_t n = (size_t)own->count;
    own->of_rank[rank] = lathe_pool_alloc(pool, n, sizeof *from);
    own->memory[rank] =
        lathe_pool_alloc(pool, count_pieces(from, own->count), sizeof *own->memory[rank]);
    c.now = lathe_pool_alloc(pool, (size_t)c.table->buffer_count, sizeof *c.now);
    if (!own->of_rank[rank] || !own->memory[rank] || !c.now)
        return fail(message, size, NULL, "launches", LATHE_NO_MEMORY);
    own->routings = 0;
    for (int i = 0; i < own->count; ++i) {
        lathe_step_launch *l = &own->of_rank[rank][i];
        *l = from[i];
        if (l->kind != LATHE_OP_LAUNCH)
            continue;
        lathe_status status = copy_launch(&c, l) ? LATHE_OK : LATHE_NO_MEMORY;
        if (status == LATHE_OK)
            status = move_values(&c, l);
        if (status != LATHE_OK)
            return fail(message, size, c.device, "memory for the routes of every layer", status);
        own->routings += logits_of(l) != NULL;
    }
    return LATHE_OK;
}

lathe_status lathe_bench_launches_create(const lathe_ranks *ranks, int variant, lathe_pool *pool,
                                         lathe_bench_launches *own, char *message, size_t size) {
    lathe_status status = LATHE_OK;
    *own = (lathe_bench_launches){.ranks = ranks, .variant = variant};
    for (int r = 0; status == LATHE_OK && r < ranks->count; ++r)
        status = copy_rank(own, r, pool, message, size);
    if (status != LATHE_OK)
        lathe_bench_launches_destroy(own);
    return status;
}

void lathe_bench_launches_destroy(lathe_bench_launches *own) {
    for (int r = 0; own->ranks && r < own->ranks->count; ++r) {
        lathe_device *d = lathe_engine_device(own->ranks->engines[r]);
        for (int i = 0; i < own->memory_count[r]; ++i)
            d->ops->release(d, own->memory[r][i]);
    }
    *own = (lathe_bench_launches){.ranks = NULL};
}

/* ---- the draw ---- */

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Selection sampling: expert e is taken with probability (still wanted) / (still to come). */
void lathe_bench_draw_logits(uint64_t *state, int64_t experts, int64_t chosen, float *logits) {
    int64_t wanted = chosen;
    for (int64_t e = 0; e < experts; ++e) {
        const bool take = (int64_t)(next(state) >> 1) % (experts - e) < wanted;
        logits[e] = take ? 4.0f : -4.0f; /* 0.98 and 0.02 after the sigmoid */
        wanted -= take;
    }
}

static lathe_status draw(lathe_device *d, const lathe_step_launch *l, const lathe_step_value *v,
                         uint64_t *state) {
    const lathe_step_value *ids = find_value(l, "ids", LATHE_DIR_OUT, LATHE_SCALAR_I32);
    const int axes = v->shape.count;
    const int64_t rows = ids->shape.dim[0], experts = v->shape.dim[axes - 1];
    if (axes < 2 || ids->shape.count != 2 || v->shape.dim[axes - 2] != rows ||
        ids->shape.dim[1] > experts)
        return LATHE_OK; /* not the logits of this routing: it keeps what it has */
    float *logits = calloc(1, v->bytes + 1); /* of slices all but the first stay zero */
    if (!logits)
        return LATHE_NO_MEMORY;
    for (int64_t t = 0; t < rows; ++t)
        lathe_bench_draw_logits(state, experts, ids->shape.dim[1], logits + t * experts);
    const lathe_status status = d->ops->copy_in(d, v->address, logits, v->bytes);
    free(logits);
    return status;
}

lathe_status lathe_bench_launches_draw(const lathe_bench_launches *own, uint64_t seed,
                                       char *message, size_t size) {
    for (int r = 0; r < own->ranks->count; ++r) {
        lathe_device *d = lathe_engine_device(own->ranks->engines[r]);
        uint64_t state = seed * 0x2545f4914f6cdd1du + 1;
        for (int i = 0; i < own->count; ++i) {
            const lathe_step_launch *l = &own->of_rank[r][i];
            const lathe_step_value *v = logits_of(l);
            const lathe_status status = v ? draw(d, l, v, &state) : LATHE_OK;
            if (status != LATHE_OK)
                return fail(message, size, d, "drawing routes", status);
        }
    }
    return LATHE_OK;
}
