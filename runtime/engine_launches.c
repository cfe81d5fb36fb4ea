/* SPDX-License-Identifier: Apache-2.0
 * Owns: from operations to launches: every layer unrolled, every argument an address. Done once, at
 * build; a step then walks an array. */
#include <string.h>

#include "engine.h"

/* Where the operations of one list run. */
typedef struct {
    lathe_step_section section;
    int layer; /* current; -1: none */
} place;

static void bind_value(const lathe_engine *e, const lathe_step_binding *b, const place *at,
                       const lathe_step_arg *arg, lathe_step_value *v) {
    *v = (lathe_step_value){.arg = arg, .layer = -1, .shape = arg->shape};
    if (b->mailbox >= 0) {
        v->mailbox = &e->table->mailboxes[b->mailbox];
        v->address = e->mailboxes[b->mailbox];
        v->carried = b->value;
        if (arg->carries)
            v->bytes =
                (size_t)lathe_step_shape_count(&v->shape, 0) * lathe_scalar_bytes(arg->dtype);
        return;
    }
    if (b->buffer < 0)
        return;
    v->buffer = &e->table->buffers[b->buffer];
    int layer = at->layer;
    if (b->previous && at->section != LATHE_SECTION_EPILOGUE)
        layer -= 1;
    v->layer = v->buffer->per_layer ? layer : -1;
    const int instance = lathe_step_buffer_instance(v->buffer, layer);
    v->address = e->memory[b->buffer][instance];
    if (v->buffer->lifetime == LATHE_LIFETIME_KV)
        v->shape.dim[0] = lathe_engine_pages(e, b->buffer, instance);
    v->bytes = (size_t)lathe_step_shape_count(&v->shape, 0) * lathe_scalar_bytes(arg->dtype);
}

static bool resolve_launch(lathe_engine *e, const lathe_step_op *op, const place *at,
                           lathe_step_launch *out) {
    const lathe_step_kernel *k = &e->table->kernels[op->kernel];
    const lathe_step_tactic *t = &k->tactics[e->compiled[op->kernel].tactic];
    lathe_step_value *values = lathe_pool_alloc(e->pool, (size_t)k->arg_count, sizeof *values);
    void **addresses = lathe_pool_alloc(e->pool, (size_t)k->arg_count, sizeof *addresses);
    if (!values || !addresses)
        return false;
    uint64_t ahead = 0;
    for (int i = 0; i < k->arg_count; ++i) {
        bind_value(e, &op->bindings[i], at, &k->args[i], &values[i]);
        addresses[i] = values[i].address;
        if (k->args[i].ahead)
            ahead |= (uint64_t)1 << i;
    }
    out->kernel = k;
    out->tactic = t;
    out->loaded = e->kernels[op->kernel];
    out->geometry = (lathe_geometry){.grid = {t->grid[0], t->grid[1], t->grid[2]},
                                     .block = t->block,
                                     .shared_bytes = t->shared_bytes,
                                     .cluster = t->cluster,
                                     .cooperative = t->cooperative,
                                     .early = op->early && !e->crowded,
                                     .ahead = ahead};
    out->value_count = k->arg_count;
    out->values = values;
    out->addresses = addresses;
    return true;
}

/* Its two sides look like arguments of a kernel. */
static bool resolve_collective(lathe_engine *e, const lathe_step_op *op, const place *at,
                               lathe_step_launch *out) {
    const lathe_step_collective *c = op->collective;
    lathe_step_arg *args = lathe_pool_alloc(e->pool, 2, sizeof *args);
    lathe_step_value *values = lathe_pool_alloc(e->pool, 2, sizeof *values);
    void **addresses = lathe_pool_alloc(e->pool, 2, sizeof *addresses);
    if (!args || !values || !addresses)
        return false;
    const lathe_step_binding *sides[2] = {&c->from, &c->to};
    for (int i = 0; i < 2; ++i) {
        args[i] = (lathe_step_arg){.name = i ? "to" : "from",
                                   .dtype = c->dtype,
                                   .shape = {.count = 1, .dim = {c->count}},
                                   .dir = i ? LATHE_DIR_OUT : LATHE_DIR_IN,
                                   .form = e->table->buffers[sides[i]->buffer].form};
        if (i && c->gather)
            args[i].shape.dim[0] *= e->table->tp;
        bind_value(e, sides[i], at, &args[i], &values[i]);
        addresses[i] = values[i].address;
    }
    out->collective = c;
    out->value_count = 2;
    out->values = values;
    out->addresses = addresses;
    return true;
}

static bool resolve_op(lathe_engine *e, const lathe_step_op *op, const place *at,
                       lathe_launch_list *list) {
    lathe_step_launch *out = &list->launches[list->count++];
    out->kind = op->kind;
    out->section = at->section;
    out->layer = at->layer;
    out->stream = op->stream;
    if (op->kind == LATHE_OP_COLLECTIVE)
        return resolve_collective(e, op, at, out);
    return op->kind != LATHE_OP_LAUNCH || resolve_launch(e, op, at, out);
}

static bool resolve_ops(lathe_engine *e, const lathe_step_ops *ops, place at,
                        lathe_launch_list *list) {
    for (int i = 0; i < ops->count; ++i)
        if (!resolve_op(e, &ops->ops[i], &at, list))
            return false;
    return true;
}

static bool start_list(lathe_engine *e, lathe_launch_list *list, int64_t count) {
    list->count = 0;
    list->launches = lathe_pool_alloc(e->pool, (size_t)count, sizeof *list->launches);
    return list->launches != NULL;
}

static bool resolve_prepare(lathe_engine *e) {
    const lathe_step_ops *ops = &e->table->prepare;
    int64_t count = 0;
    for (int i = 0; i < ops->count; ++i)
        count += ops->ops[i].layer_count ? ops->ops[i].layer_count : 1;
    if (!start_list(e, &e->prepare, count))
        return false;
    for (int i = 0; i < ops->count; ++i) {
        const lathe_step_op *op = &ops->ops[i];
        for (int n = 0; n < (op->layer_count ? op->layer_count : 1); ++n) {
            const place at = {LATHE_SECTION_PREPARE, op->layer_count ? op->layers[n] : -1};
            if (!resolve_op(e, op, &at, &e->prepare))
                return false;
        }
    }
    return true;
}

lathe_status lathe_engine_resolve_probe(lathe_engine *e) {
    const lathe_step_probe *p = &e->table->probe;
    bool ok = start_list(e, &e->probe, (int64_t)p->layer_count * p->ops.count);
    for (int i = 0; ok && i < p->layer_count; ++i)
        ok = resolve_ops(e, &p->ops, (place){LATHE_SECTION_PREPARE, p->layers[i]}, &e->probe);
    return ok ? LATHE_OK : lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory for launches");
}

static bool resolve_variant(lathe_engine *e, const lathe_step_variant *v, lathe_launch_list *list) {
    const lathe_step_table *t = e->table;
    int64_t count = (int64_t)v->prologue.count + v->epilogue.count;
    for (int l = 0; l < t->layer_count; ++l)
        count += v->kinds[t->layer_kinds[l]].count;
    if (!start_list(e, list, count) ||
        !resolve_ops(e, &v->prologue, (place){LATHE_SECTION_PROLOGUE, 0}, list))
        return false;
    for (int l = 0; l < t->layer_count; ++l)
        if (!resolve_ops(e, &v->kinds[t->layer_kinds[l]], (place){LATHE_SECTION_LAYER, l}, list))
            return false;
    const place last = {LATHE_SECTION_EPILOGUE, t->layer_count - 1};
    return resolve_ops(e, &v->epilogue, last, list);
}

lathe_status lathe_engine_resolve(lathe_engine *e) {
    const int count = e->table->variant_count;
    e->variants = lathe_pool_alloc(e->pool, (size_t)count, sizeof *e->variants);
    bool ok = e->variants && resolve_prepare(e);
    for (int v = 0; ok && v < count; ++v)
        ok = resolve_variant(e, &e->table->variants[v], &e->variants[v]);
    return ok ? LATHE_OK : lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory for launches");
}

void lathe_engine_move(lathe_engine *e, int buffer, int layer, void *memory, int64_t pages) {
    const lathe_step_buffer *b = &e->table->buffers[buffer];
    for (int v = 0; v < e->table->variant_count; ++v)
        for (int i = 0; i < e->variants[v].count; ++i) {
            const lathe_step_launch *l = &e->variants[v].launches[i];
            for (int a = 0; a < l->value_count; ++a) {
                /* Made by resolve, and nobody else's: what others see of them is const. */
                lathe_step_value *value = (lathe_step_value *)(uintptr_t)&l->values[a];
                if (value->buffer != b || value->layer != layer)
                    continue;
                value->address = memory;
                value->shape.dim[0] = pages;
                value->bytes = (size_t)(b->fixed_bytes * pages);
                ((void **)(uintptr_t)l->addresses)[a] = memory;
            }
        }
}

const lathe_step_launch *lathe_engine_launches(const lathe_engine *e, int variant, int *count) {
    *count = 0;
    if (e->state != LATHE_ENGINE_BUILT || variant < LATHE_PREPARE ||
        variant >= e->table->variant_count)
        return NULL;
    const lathe_launch_list *list = variant == LATHE_PREPARE ? &e->prepare : &e->variants[variant];
    *count = list->count;
    return list->launches;
}
