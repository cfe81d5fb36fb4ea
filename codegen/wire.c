/* SPDX-License-Identifier: Apache-2.0
 * Follows the step launch by launch, layer by layer: what each value is when it is read, which
 * buffer it stands in and which layers have one. A layer kind is wired once a variant; later layers
 * of the kind must find the same values. */
#include "wire.h"

#include "bind.h"
#include "cover.h"

#include <inttypes.h>
#include <string.h>

/* One list of parts, wired. */
typedef struct {
    bool done;
    lathe_ops ops;
    lathe_state *entry; /* of values that the list reads before it writes them */
    bool *read;         /* whether the list does */
    bool *written;      /* whether the list writes the value */
    bool *published;    /* whether it is published when the list begins, and not received yet */
    lathe_state *exit;
    lathe_launch *launches;
    size_t launch_count;
} wired_list;

typedef struct {
    lathe_plan *plan;
    lathe_arena *arena;
    const lathe_variant *variant; /* NULL in `prepare` */
    lathe_state *states;          /* by the model's data */
    bool *prepared;
    size_t layers;
    bool probing; /* what is new now lives while the step is built */
} wirer;

static size_t index_of(const wirer *w, const lathe_datum *datum) {
    return (size_t)(datum - w->plan->model->data);
}

static lathe_lifetime lifetime_of(const wirer *w, const lathe_datum *datum) {
    switch (datum->kind) {
    case LATHE_DATUM_WEIGHT:
        return datum->is_held ? LATHE_LIFE_BUILD : LATHE_LIFE_WEIGHT;
    case LATHE_DATUM_CACHE:
        return LATHE_LIFE_KV;
    case LATHE_DATUM_IMPLICIT:
        return strcmp(datum->name, "faults") == 0 || strcmp(datum->name, "rank") == 0
                   ? LATHE_LIFE_PERSISTENT
                   : LATHE_LIFE_INPUT;
    case LATHE_DATUM_VALUE:
        break;
    }
    if (w->prepared[index_of(w, datum)])
        return LATHE_LIFE_PREPARED;
    if (w->probing)
        return LATHE_LIFE_BUILD;
    return datum->input ? LATHE_LIFE_INPUT : datum->output ? LATHE_LIFE_OUTPUT : LATHE_LIFE_SCRATCH;
}

static lathe_buffer *add_buffer(const wirer *w, int *index) {
    lathe_plan *plan = w->plan;
    plan->buffers =
        lathe_arena_grow(plan->arena, plan->buffers, plan->buffer_count, sizeof *plan->buffers);
    *index = (int)plan->buffer_count;
    lathe_buffer *buffer = &plan->buffers[plan->buffer_count++];
    *buffer = (lathe_buffer){0};
    buffer->layers = lathe_arena_alloc(plan->arena, w->layers, sizeof *buffer->layers);
    return buffer;
}

static int find_workspace(const wirer *w, const lathe_provider *p, const lathe_arg *arg) {
    const char *name = lathe_arena_print(w->arena, "ws.%s.%s", p->name, arg->name);
    for (size_t i = 0; i < w->plan->buffer_count; i++)
        if (!w->plan->buffers[i].datum && strcmp(w->plan->buffers[i].name, name) == 0)
            return (int)i;
    int index;
    lathe_buffer *buffer = add_buffer(w, &index);
    buffer->name = name;
    buffer->where = arg->where;
    buffer->dtype = arg->dtype;
    buffer->zeroed = arg->zeroed;
    buffer->lifetime = arg->zeroed ? LATHE_LIFE_PERSISTENT : LATHE_LIFE_SCRATCH;
    return index;
}

static int find_datum_buffer(const wirer *w, const lathe_datum *datum, lathe_form form,
                             lathe_dtype dtype) {
    for (size_t i = 0; i < w->plan->buffer_count; i++)
        if (w->plan->buffers[i].datum == datum && w->plan->buffers[i].form == form)
            return (int)i;
    int index;
    lathe_buffer *buffer = add_buffer(w, &index);
    buffer->name = datum->name;
    buffer->datum = datum;
    buffer->where = datum->where;
    buffer->form = form;
    buffer->dtype = dtype;
    buffer->lifetime = lifetime_of(w, datum);
    buffer->zeroed = datum->kind == LATHE_DATUM_IMPLICIT && strcmp(datum->name, "faults") == 0;
    buffer->per_layer = datum->per_layer;
    return index;
}

static int find_buffer(const wirer *w, const lathe_provider *p, const lathe_arg *arg,
                       const lathe_binding *b) {
    return b->datum ? find_datum_buffer(w, b->datum, b->form, arg->dtype)
                    : find_workspace(w, p, arg);
}

/* Gives every bound argument its buffer, large enough for this launch. */
static void place_args(const wirer *w, const lathe_launch *launch, lathe_binding *args) {
    for (size_t i = 0; i < launch->provider->arg_count; i++) {
        const lathe_arg *arg = &launch->provider->args[i];
        if (!args[i].bound || arg->dir == LATHE_DIR_MAILBOX)
            continue;
        args[i].buffer = find_buffer(w, launch->provider, arg, &args[i]);
        lathe_buffer *buffer = &w->plan->buffers[args[i].buffer];
        if (buffer->dtype != arg->dtype)
            lathe_diag_fail(lathe_arena_diag(w->arena), launch->parts[0]->where,
                            "%s: argument '%s' (%s:%d) of provider %s makes \"%s\" %s, another "
                            "launch makes it %s",
                            lathe_bind_describe(w->arena, launch), arg->name, arg->where.file,
                            arg->where.line, launch->provider->name, buffer->name,
                            lathe_dtype_name(arg->dtype), lathe_dtype_name(buffer->dtype));
        if (buffer->shape.rank == 0 ||
            lathe_shape_count(&args[i].shape) > lathe_shape_count(&buffer->shape))
            buffer->shape = args[i].shape;
    }
}

static void note_reads(const wirer *w, const lathe_launch *launch, const lathe_binding *args,
                       wired_list *list) {
    for (size_t i = 0; i < launch->provider->arg_count; i++) {
        if (!args[i].datum || args[i].publishes || launch->provider->args[i].dir == LATHE_DIR_OUT)
            continue;
        const size_t d = index_of(w, args[i].datum);
        if (list->written[d] || list->read[d] || args[i].datum->kind != LATHE_DATUM_VALUE)
            continue;
        list->read[d] = true;
        list->entry[d] = w->states[d];
    }
}

static void note_writes(const wirer *w, const lathe_launch *launch, const lathe_binding *args,
                        wired_list *list) {
    for (size_t i = 0; i < launch->provider->arg_count; i++) {
        const lathe_arg *arg = &launch->provider->args[i];
        if (!args[i].datum || arg->dir == LATHE_DIR_IN)
            continue;
        const size_t d = index_of(w, args[i].datum);
        if (w->variant && w->prepared[d])
            lathe_diag_fail(lathe_arena_diag(w->arena), launch->parts[0]->where,
                            "%s: writes \"%s\", which `prepare` has made for good",
                            lathe_bind_describe(w->arena, launch), args[i].datum->name);
        list->written[d] = true;
        if (args[i].receives) {
            w->states[d] = (lathe_state){.receiver = launch};
            continue;
        }
        w->states[d] = (lathe_state){.written = true,
                                     .form = args[i].form,
                                     .dtype = arg->dtype,
                                     .shape = args[i].shape,
                                     .producer = launch,
                                     .exchange = args[i].publishes ? arg->exchange : NULL};
        if (!w->variant && args[i].datum->kind != LATHE_DATUM_IMPLICIT)
            w->prepared[d] = true;
    }
}

static void wire_launch(wirer *w, const lathe_launch *launch, wired_list *list) {
    lathe_op op = {.kind = LATHE_OP_LAUNCH,
                   .stream = launch->use->side,
                   .where = launch->parts[0]->where,
                   .part = launch->parts[0]->name};
    op.args = lathe_arena_alloc(w->arena, launch->provider->arg_count + 1, sizeof *op.args);
    op.kernel = lathe_bind(w->plan, w->variant, launch, w->states, op.args);
    lathe_wire_exchange(w->plan, launch, op.args, w->states);
    note_reads(w, launch, op.args, list);
    note_writes(w, launch, op.args, list);
    place_args(w, launch, op.args);
    lathe_wire_append(w->plan, &list->ops, &op);
}

static void wire_list(wirer *w, const lathe_part_list *parts, wired_list *list) {
    const size_t data = w->plan->model->datum_count;
    list->entry = lathe_arena_alloc(w->arena, data + 1, sizeof *list->entry);
    list->exit = lathe_arena_alloc(w->arena, data + 1, sizeof *list->exit);
    list->read = lathe_arena_alloc(w->arena, data + 1, sizeof *list->read);
    list->written = lathe_arena_alloc(w->arena, data + 1, sizeof *list->written);
    list->published = lathe_arena_alloc(w->arena, data + 1, sizeof *list->published);
    for (size_t d = 0; d < data; d++)
        list->published[d] = w->states[d].exchange != NULL;
    list->launches = lathe_cover(w->plan, parts, &list->launch_count);
    for (size_t i = 0; i < list->launch_count; i++)
        wire_launch(w, &list->launches[i], list);
    lathe_wire_close(w->plan, &list->ops);
    memcpy(list->exit, w->states, data * sizeof *list->exit);
    list->done = true;
}

static bool differs(const lathe_state *is, const lathe_state *was) {
    return !is->written || is->form != was->form || is->dtype != was->dtype ||
           (is->exchange ? !was->exchange || strcmp(is->exchange, was->exchange) != 0
                         : was->exchange != NULL) ||
           !lathe_shape_equal(&is->shape, &was->shape);
}

/* The exchanges of a list were found free or taken for what is published when it begins. */
static void check_revisited(const wirer *w, const lathe_part_list *parts, const wired_list *list,
                            size_t layer, size_t d) {
    const lathe_state *is = &w->states[d];
    if (list->published[d] || !is->exchange)
        return;
    lathe_diag_fail(lathe_arena_diag(w->arena), parts->where,
                    "kind \"%s\", layer %zu: \"%s\" is %s and not received when the layer "
                    "begins, but was not published before an earlier layer of the kind",
                    parts->name, layer, w->plan->model->data[d].name,
                    lathe_bind_describe_state(w->arena, is));
}

/* A kind met again: what it reads must be what it was wired for. */
static void revisit(const wirer *w, const lathe_part_list *parts, const wired_list *list,
                    size_t layer) {
    for (size_t d = 0; d < w->plan->model->datum_count; d++) {
        const lathe_state *was = &list->entry[d], *is = &w->states[d];
        check_revisited(w, parts, list, layer, d);
        if (list->read[d] && differs(is, was))
            lathe_diag_fail(lathe_arena_diag(w->arena), parts->where,
                            "kind \"%s\", layer %zu: \"%s\" (%s:%d) is %s here, but %s in an "
                            "earlier layer of the kind",
                            parts->name, layer, w->plan->model->data[d].name,
                            w->plan->model->data[d].where.file, w->plan->model->data[d].where.line,
                            lathe_bind_describe_state(w->arena, is),
                            lathe_bind_describe_state(w->arena, was));
        if (list->written[d])
            w->states[d] = list->exit[d];
    }
}

/* Notes which layers' instances a list touches when it runs for `layer`. */
static void mark_layers(const wirer *w, const lathe_ops *ops, int64_t layer) {
    for (size_t i = 0; i < ops->count; i++) {
        const lathe_op *op = &ops->ops[i];
        if (op->kind != LATHE_OP_LAUNCH)
            continue;
        const lathe_provider *p = w->plan->kernels[op->kernel].provider;
        w->plan->kernels[op->kernel].used = true;
        for (size_t a = 0; a < p->arg_count; a++) {
            if (op->args[a].buffer < 0)
                continue;
            const int64_t at = layer - (op->args[a].previous ? 1 : 0);
            if (at < 0)
                lathe_diag_fail(lathe_arena_diag(w->arena), op->where,
                                "part \"%s\": prev \"%s\": layer 0 has no layer before it",
                                op->part, op->args[a].datum->name);
            w->plan->buffers[op->args[a].buffer].used = true;
            w->plan->buffers[op->args[a].buffer].layers[at] = true;
        }
    }
}

/* A state of values before the step: inputs and what `prepare` made. */
static void begin_step(const wirer *w, const lathe_state *after_prepare) {
    const lathe_model *m = w->plan->model;
    memcpy(w->states, after_prepare, m->datum_count * sizeof *w->states);
    for (size_t d = 0; d < m->datum_count; d++)
        if (m->data[d].input)
            w->states[d] =
                (lathe_state){.written = true,
                              .form = LATHE_WHOLE,
                              .dtype = m->data[d].dtype,
                              .shape = lathe_layout_shape(w->plan->lua, w->plan->deployment,
                                                          &m->data[d], w->variant)};
}

/* The states that a deployment asks for are outputs of their layers. */
static void check_aux(const wirer *w) {
    const lathe_deployment *d = w->plan->deployment;
    for (size_t i = 0; i < d->aux->item_count; i++) {
        const int64_t layer = d->aux->items[i].integer;
        bool written = false;
        for (size_t b = 0; b < w->plan->buffer_count && !written; b++) {
            const lathe_buffer *buffer = &w->plan->buffers[b];
            written = buffer->lifetime == LATHE_LIFE_OUTPUT && buffer->per_layer &&
                      buffer->layers[layer];
        }
        if (!written)
            lathe_diag_fail(lathe_arena_diag(w->arena), d->where,
                            "aux: layer %" PRId64 ": no part of it writes an output per layer",
                            layer);
    }
}

static void wire_variant(wirer *w, const lathe_state *after_prepare, lathe_variant_ops *out) {
    const lathe_model *m = w->plan->model;
    begin_step(w, after_prepare);
    wired_list prologue = {0}, epilogue = {0};
    wired_list *kinds = lathe_arena_alloc(w->arena, m->kind_count + 1, sizeof *kinds);
    wire_list(w, &m->prologue, &prologue);
    mark_layers(w, &prologue.ops, 0);
    for (size_t l = 0; l < m->layer_count; l++) {
        const size_t k = m->layers[l];
        if (kinds[k].done)
            revisit(w, &m->kinds[k], &kinds[k], l);
        else
            wire_list(w, &m->kinds[k], &kinds[k]);
        mark_layers(w, &kinds[k].ops, (int64_t)l);
    }
    wire_list(w, &m->epilogue, &epilogue);
    /* In the epilogue -1 means the last layer, and so does no mark at all. */
    for (size_t i = 0; i < epilogue.ops.count; i++)
        for (size_t a = 0; epilogue.ops.ops[i].args &&
                           a < w->plan->kernels[epilogue.ops.ops[i].kernel].provider->arg_count;
             a++)
            epilogue.ops.ops[i].args[a].previous = false;
    mark_layers(w, &epilogue.ops, (int64_t)m->layer_count - 1);
    check_aux(w);
    *out = (lathe_variant_ops){w->variant, prologue.ops, epilogue.ops, NULL};
    out->kinds = lathe_arena_alloc(w->arena, m->kind_count + 1, sizeof *out->kinds);
    for (size_t k = 0; k < m->kind_count; k++)
        out->kinds[k] = kinds[k].ops;
    for (size_t d = 0; d < m->datum_count; d++)
        if (m->data[d].output && !w->states[d].written)
            lathe_diag_fail(lathe_arena_diag(w->arena), m->data[d].where,
                            "value \"%s\": an output that no part writes", m->data[d].name);
    lathe_wire_received(w->plan, w->states);
}

/* Keeps what the step reads of `prepare`, last first: its layers are those of what it writes. */
static void prune_prepare(wirer *w) {
    lathe_ops *ops = &w->plan->prepare;
    bool *keep = lathe_arena_alloc(w->arena, ops->count + 1, sizeof *keep);
    for (size_t i = ops->count; i-- > 0;) {
        lathe_op *op = &ops->ops[i];
        const lathe_provider *p = w->plan->kernels[op->kernel].provider;
        bool per_layer = false;
        op->layers = lathe_arena_alloc(w->arena, w->layers, sizeof *op->layers);
        for (size_t a = 0; a < p->arg_count; a++) {
            if (op->args[a].buffer < 0 || p->args[a].dir == LATHE_DIR_IN || !op->args[a].datum)
                continue;
            const lathe_buffer *buffer = &w->plan->buffers[op->args[a].buffer];
            keep[i] = keep[i] || buffer->used;
            per_layer = per_layer || buffer->per_layer;
            for (size_t l = 0; l < w->layers && buffer->per_layer; l++)
                op->layers[l] = op->layers[l] || buffer->layers[l];
        }
        if (!per_layer)
            op->layers = NULL;
        w->plan->kernels[op->kernel].used = w->plan->kernels[op->kernel].used || keep[i];
        for (size_t a = 0; keep[i] && a < p->arg_count; a++) {
            if (op->args[a].buffer < 0)
                continue;
            lathe_buffer *buffer = &w->plan->buffers[op->args[a].buffer];
            buffer->used = true;
            for (size_t l = 0; l < w->layers && op->layers; l++)
                buffer->layers[l] = buffer->layers[l] || op->layers[l];
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < ops->count; i++)
        if (keep[i])
            ops->ops[kept++] = ops->ops[i];
    ops->count = kept;
}

static void check_prepare(const wirer *w) {
    const lathe_ops *ops = &w->plan->prepare;
    for (size_t i = 0; i < ops->count; i++)
        if (ops->ops[i].kind != LATHE_OP_LAUNCH || ops->ops[i].stream)
            lathe_diag_fail(lathe_arena_diag(w->arena), w->plan->model->prepare.where,
                            "prepare: a use on the side stream; allowed: the main stream");
}

/* The probe fills nothing that the step reads, and exchanges nothing. */
static void check_probe(const wirer *w) {
    const lathe_probe *probe = &w->plan->model->probe;
    const lathe_ops *ops = &w->plan->probe;
    for (size_t i = 0; i < ops->count; i++) {
        const lathe_op *op = &ops->ops[i];
        bool moves = op->kind != LATHE_OP_LAUNCH || op->stream;
        for (size_t a = 0; !moves && a < w->plan->kernels[op->kernel].provider->arg_count; a++)
            moves = op->args[a].mailbox >= 0;
        if (moves || w->plan->kernels[op->kernel].provider->collective)
            lathe_diag_fail(lathe_arena_diag(w->arena), probe->list.where,
                            "probe: allowed: launches on the main stream that exchange nothing");
    }
    for (size_t i = 0; i < 2; i++) {
        const lathe_datum *datum = lathe_model_find(w->plan->model, probe->sums[i]);
        const lathe_state *state = datum ? &w->states[index_of(w, datum)] : NULL;
        if (!state || !state->written || state->form != LATHE_WHOLE || state->dtype != LATHE_BF16)
            lathe_diag_fail(lathe_arena_diag(w->arena), probe->list.where,
                            "probe: field 'sums': \"%s\": allowed: a whole bf16 value that a "
                            "launch of the probe writes",
                            probe->sums[i]);
    }
}

static void wire_probe(wirer *w, const lathe_state *after_prepare) {
    const lathe_probe *probe = &w->plan->model->probe;
    if (!probe->list.part_count)
        return;
    wired_list list = {0};
    w->variant = &w->plan->deployment->variants[probe->variant];
    w->probing = true;
    begin_step(w, after_prepare);
    wire_list(w, &probe->list, &list);
    for (size_t i = 0; i < probe->layer_count; i++)
        mark_layers(w, &list.ops, (int64_t)probe->layers[i]);
    w->plan->probe = list.ops;
    check_probe(w);
    w->probing = false;
}

/* What the ranks hold of a weight is asked for while that weight is made. */
static void keep_held(const wirer *w) {
    for (size_t i = 0; i < w->plan->buffer_count; i++) {
        const lathe_buffer *weight = &w->plan->buffers[i];
        if (!weight->used || !weight->datum || !weight->datum->held)
            continue;
        const lathe_datum *datum = lathe_model_find(w->plan->model, weight->datum->held);
        const int index = find_datum_buffer(w, datum, LATHE_WHOLE, datum->dtype);
        weight = &w->plan->buffers[i]; /* the list may have grown */
        lathe_buffer *held = &w->plan->buffers[index];
        held->used = true;
        held->shape = lathe_layout_shape(w->plan->lua, w->plan->deployment, datum, NULL);
        for (size_t l = 0; l < w->layers; l++)
            held->layers[l] = held->layers[l] || weight->layers[l];
    }
}

void lathe_wire(lathe_plan *plan) {
    const lathe_model *m = plan->model;
    wirer w = {.plan = plan, .arena = plan->arena, .layers = m->layer_count};
    w.states = lathe_arena_alloc(w.arena, m->datum_count + 1, sizeof *w.states);
    w.prepared = lathe_arena_alloc(w.arena, m->datum_count + 1, sizeof *w.prepared);
    lathe_state *after_prepare =
        lathe_arena_alloc(w.arena, m->datum_count + 1, sizeof *after_prepare);
    wired_list prepare = {0};
    lathe_cover_check(plan);
    wire_list(&w, &m->prepare, &prepare);
    plan->prepare = prepare.ops;
    check_prepare(&w);
    memcpy(after_prepare, w.states, m->datum_count * sizeof *after_prepare);
    const lathe_deployment *d = plan->deployment;
    plan->variants = lathe_arena_alloc(w.arena, d->variant_count + 1, sizeof *plan->variants);
    const size_t first = d->invariant ? (size_t)(lathe_layout_lead(d) - d->variants) : 0;
    for (size_t i = 0; i < d->variant_count; i++) { /* the one that others follow comes first */
        const size_t v = i == 0 ? first : i <= first ? i - 1 : i;
        w.variant = &d->variants[v];
        wire_variant(&w, after_prepare, &plan->variants[v]);
    }
    wire_probe(&w, after_prepare);
    prune_prepare(&w);
    keep_held(&w);
    lathe_wire_early(plan);
    lathe_wire_name(plan);
}
