/* SPDX-License-Identifier: Apache-2.0 */
#include "tune_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool give_up(lathe_tune_candidate *c, const char *what, const char *name) {
    if (!c->reason[0])
        snprintf(c->reason, sizeof c->reason, "%.300s%s%.150s", what, *name ? ": " : "", name);
    return false;
}

/* ---- memory ---- */

static struct lathe_tune_piece *find_piece(const lathe_tune_memory *m, const char *buffer) {
    for (int i = 0; i < m->count; ++i)
        if (strcmp(m->pieces[i].buffer, buffer) == 0)
            return &m->pieces[i];
    return NULL;
}

static struct lathe_tune_piece *add_piece(lathe_tune_memory *m, const char *buffer) {
    if (m->count == m->room) {
        const int room = m->room ? 2 * m->room : 8;
        struct lathe_tune_piece *pieces = lathe_pool_alloc(m->pool, (size_t)room, sizeof *pieces);
        if (!pieces)
            return NULL;
        if (m->count > 0)
            memcpy(pieces, m->pieces, (size_t)m->count * sizeof *pieces);
        m->pieces = pieces;
        m->room = room;
    }
    char *name = lathe_pool_string(m->pool, buffer);
    if (!name)
        return NULL;
    m->pieces[m->count] = (struct lathe_tune_piece){.buffer = name};
    return &m->pieces[m->count++];
}

/* A piece of at least so many bytes, all zero when it is taken. Graphs that hold a smaller one keep
 * it until the end. */
static void *take_piece(lathe_tune_memory *m, const char *buffer, size_t bytes) {
    struct lathe_tune_piece *p = find_piece(m, buffer);
    lathe_device *d = lathe_engine_device(m->engine);
    if (p && p->bytes >= bytes)
        return p->memory;
    p = add_piece(m, buffer);
    if (!p || d->ops->alloc(d, bytes, &p->memory) != LATHE_OK) {
        m->count -= p != NULL;
        return NULL;
    }
    p->bytes = bytes;
    if (d->ops->fill(d, p->memory, 0, bytes) != LATHE_OK)
        return NULL;
    /* The latest is found first. */
    struct lathe_tune_piece latest = *p;
    memmove(m->pieces + 1, m->pieces, (size_t)(m->count - 1) * sizeof latest);
    m->pieces[0] = latest;
    return latest.memory;
}

void lathe_tune_memory_release(lathe_tune_memory *m) {
    for (int i = 0; i < m->count; ++i)
        lathe_engine_device(m->engine)->ops->release(lathe_engine_device(m->engine),
                                                     m->pieces[i].memory);
    m->count = 0;
}

/* ---- launches ---- */

typedef struct {
    lathe_tune_candidate *candidate;
    lathe_tune_memory *memory;
    lathe_step_launch *launches;
    int count;
} maker;

static const lathe_tune_changed *find_changed(const lathe_tune_candidate *c,
                                              const lathe_step_launch *l) {
    for (int i = 0; l->kind == LATHE_OP_LAUNCH && i < c->changed_count; ++i)
        if (strcmp(c->changed[i].kernel->name, l->kernel->name) == 0)
            return &c->changed[i];
    return NULL;
}

static void put_address(lathe_step_value *v, void **addresses, int i, void *address) {
    v[i].address = address;
    addresses[i] = address;
}

/* Values of the launch that may be written to. */
static bool copy_values(const maker *m, lathe_step_launch *l, lathe_step_value **values,
                        void ***addresses) {
    const size_t n = (size_t)l->value_count;
    *values = lathe_pool_alloc(m->memory->pool, n, sizeof **values);
    *addresses = lathe_pool_alloc(m->memory->pool, n, sizeof **addresses);
    if (!*values || !*addresses)
        return false;
    if (n > 0) {
        memcpy(*values, l->values, n * sizeof **values);
        memcpy(*addresses, l->addresses, n * sizeof **addresses);
    }
    l->values = *values;
    l->addresses = *addresses;
    return true;
}

/* What binds argument `arg` of a kernel somewhere in the candidate's step. */
static const lathe_step_binding *find_binding(const lathe_step_table *t, const lathe_step_kernel *k,
                                              int arg) {
    for (int v = 0; v < t->variant_count; ++v)
        for (int p = 0; p < t->kind_count + 2; ++p) {
            const lathe_step_variant *variant = &t->variants[v];
            const lathe_step_ops *ops = p == 0               ? &variant->prologue
                                        : p <= t->kind_count ? &variant->kinds[p - 1]
                                                             : &variant->epilogue;
            for (int i = 0; i < ops->count; ++i)
                if (ops->ops[i].kind == LATHE_OP_LAUNCH && &t->kernels[ops->ops[i].kernel] == k)
                    return &ops->ops[i].bindings[arg];
        }
    return NULL;
}

static size_t bytes_of(const lathe_step_arg *arg) {
    return (size_t)lathe_step_shape_count(&arg->shape, 0) * lathe_scalar_bytes(arg->dtype);
}

/* An argument of a changed kernel that what the step has does not serve. */
static bool serve_value(const maker *m, const lathe_step_kernel *k, const lathe_step_value *v,
                        int arg) {
    const lathe_step_table *t = m->candidate->table;
    const lathe_step_arg *a = &k->args[arg];
    if (v->mailbox)
        return bytes_of(a) <= bytes_of(v->arg) ||
               give_up(m->candidate, "it needs a larger mailbox", a->name);
    const lathe_step_binding *b = find_binding(t, k, arg);
    if (!b || b->buffer < 0)
        return true;
    const lathe_step_buffer *buffer = &t->buffers[b->buffer];
    if (buffer->lifetime == LATHE_LIFETIME_KV)
        return true;
    if (v->buffer && (size_t)v->buffer->fixed_bytes >= bytes_of(a))
        return true;
    if (buffer->per_layer || (buffer->lifetime != LATHE_LIFETIME_SCRATCH &&
                              buffer->lifetime != LATHE_LIFETIME_PERSISTENT))
        return give_up(m->candidate, "it needs another buffer", buffer->name);
    return take_piece(m->memory, buffer->name, (size_t)buffer->fixed_bytes) ||
           give_up(m->candidate, "no memory on the device for", buffer->name);
}

static bool serve_launch(const maker *m, const lathe_step_launch *l) {
    const lathe_tune_changed *x = find_changed(m->candidate, l);
    for (int i = 0; x && i < l->value_count; ++i) {
        if (strcmp(x->kernel->args[i].name, l->values[i].arg->name) != 0)
            return give_up(m->candidate, "its kernel has other arguments", x->kernel->name);
        if (!serve_value(m, x->kernel, &l->values[i], i))
            return false;
    }
    return true;
}

/* Which of the candidate's pieces the value lies in, if any: whoever writes or reads it. */
static void *piece_of(const maker *m, const lathe_step_launch *l, const lathe_tune_changed *x,
                      int arg) {
    const char *name = l->values[arg].buffer ? l->values[arg].buffer->name : NULL;
    if (!name && x) {
        const lathe_step_binding *b = find_binding(m->candidate->table, x->kernel, arg);
        name = b && b->buffer >= 0 ? m->candidate->table->buffers[b->buffer].name : NULL;
    }
    const struct lathe_tune_piece *p = name ? find_piece(m->memory, name) : NULL;
    return p ? p->memory : NULL;
}

static bool rebuild(const maker *m, lathe_step_launch *l) {
    const lathe_tune_changed *x = find_changed(m->candidate, l);
    lathe_step_value *values;
    void **addresses;
    if (!copy_values(m, l, &values, &addresses))
        return give_up(m->candidate, "no memory", "");
    for (int i = 0; i < l->value_count; ++i) {
        void *piece = piece_of(m, l, x, i);
        if (piece)
            put_address(values, addresses, i, piece);
    }
    if (!x)
        return true;
    const lathe_step_tactic *t = &x->kernel->tactics[x->tactic];
    l->loaded = x->loaded;
    l->geometry = (lathe_geometry){.grid = {t->grid[0], t->grid[1], t->grid[2]},
                                   .block = t->block,
                                   .shared_bytes = t->shared_bytes,
                                   .cooperative = t->cooperative,
                                   .early = l->geometry.early};
    return true;
}

static bool load(lathe_tune_candidate *c, lathe_device *d) {
    for (int i = 0; i < c->changed_count; ++i) {
        lathe_tune_changed *x = &c->changed[i];
        const lathe_step_tactic *t = &x->kernel->tactics[x->tactic];
        if (d->ops->load(d, x->path, t->entry, t->shared_bytes, &x->loaded) != LATHE_OK)
            return give_up(c, "it cannot be loaded", d->message);
    }
    return true;
}

static bool make(const maker *m, lathe_engine *engine) {
    if (!load(m->candidate, lathe_engine_device(engine)))
        return false;
    for (int i = 0; i < m->count; ++i)
        if (m->launches[i].kind == LATHE_OP_LAUNCH && !serve_launch(m, &m->launches[i]))
            return false;
    for (int i = 0; i < m->count; ++i)
        if (m->launches[i].kind == LATHE_OP_LAUNCH && !rebuild(m, &m->launches[i]))
            return false;
    return lathe_engine_record(engine, m->launches, m->count, &m->candidate->graph) == LATHE_OK ||
           give_up(m->candidate, "it cannot be captured", lathe_message(engine));
}

void lathe_tune_graph_make(lathe_tune_candidate *c, lathe_tune_memory *memory,
                           const lathe_bench_launches *own) {
    const maker m = {.candidate = c,
                     .memory = memory,
                     .launches =
                         lathe_pool_alloc(memory->pool, (size_t)own->count + 1, sizeof *m.launches),
                     .count = own->count};
    if (!m.launches) {
        give_up(c, "no memory", "");
        return;
    }
    memcpy(m.launches, own->of_rank[0], (size_t)own->count * sizeof *m.launches);
    make(&m, memory->engine);
}

void lathe_tune_graph_destroy(lathe_tune_candidate *c, lathe_engine *engine) {
    lathe_device *d = lathe_engine_device(engine);
    lathe_engine_forget(engine, c->graph);
    c->graph = NULL;
    for (int i = 0; i < c->changed_count; ++i) {
        if (c->changed[i].loaded)
            d->ops->unload(d, c->changed[i].loaded);
        c->changed[i].loaded = NULL;
    }
}
