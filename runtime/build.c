/* SPDX-License-Identifier: Apache-2.0
 * Owns: the build sequence: compile, load, allocate, fill weights, prepare, warm up, capture.
 * Whatever fails ends it; lathe_destroy takes back what was made. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "generator.h"
#include "loader.h"
#include "weights.h"

static void say(lathe_engine *e, const char *phase) {
    lathe_logger_write(&e->log, LATHE_LOG_NOTE, "%s", phase);
}

/* What weights come from: made on the host and copied, or made in place. */
typedef struct {
    const lathe_weight_source *source;
    const lathe_weights *weights; /* whose reader can generate; or NULL */
    lathe_generator *generator;   /* or NULL */
    char *staging;                /* where there is no generator */
} filling;

static lathe_status fill_instance(lathe_engine *e, const filling *f, int weight, int instance) {
    const int buffer = e->table->weights[weight].buffer;
    const lathe_step_buffer *b = &e->table->buffers[buffer];
    if (lathe_engine_given(e, buffer, instance))
        return LATHE_OK;
    const int layer = b->per_layer ? b->layers[instance] : -1;
    const size_t bytes = (size_t)b->fixed_bytes;
    void *memory = e->memory[buffer][instance];
    char text[1024] = "";
    lathe_status status = f->generator ? lathe_weights_generate(f->weights, f->generator, weight,
                                                                layer, memory, text, sizeof text)
                                       : f->source->fill(f->source->context, weight, layer,
                                                         f->staging, bytes, text, sizeof text);
    if (status != LATHE_OK)
        return lathe_engine_fail(e, status, "weight %s: %s", b->name,
                                 text[0] ? text : lathe_status_name(status));
    if (!f->generator)
        status = e->device->ops->copy_in(e->device, memory, f->staging, bytes);
    return status == LATHE_OK ? LATHE_OK : lathe_engine_fail_device(e, status, b->name);
}

/* Others are made out of whole experts, or are those. */
static bool is_filled(const lathe_engine *e, const lathe_weight_source *source, int weight) {
    const lathe_step_weight *w = &e->table->weights[weight];
    return e->table->buffers[w->buffer].lifetime != LATHE_LIFETIME_BUILD &&
           !lathe_engine_reshards(source, w);
}

static lathe_status fill_all(lathe_engine *e, const filling *f) {
    const lathe_step_table *t = e->table;
    for (int w = 0; w < t->weight_count; ++w) {
        const lathe_step_buffer *b = &t->buffers[t->weights[w].buffer];
        if (!is_filled(e, f->source, w))
            continue;
        for (int n = 0; n < lathe_engine_instances(b); ++n) {
            const lathe_status status = fill_instance(e, f, w, n);
            if (status != LATHE_OK)
                return status;
        }
        lathe_logger_progress(&e->log, w + 1, t->weight_count, "loaded %s", b->name);
    }
    return LATHE_OK;
}

/* Weights to fill of which an instance is not the caller's. */
static int count_unbound(const lathe_engine *e, const lathe_weight_source *source) {
    int count = 0;
    for (int w = 0; w < e->table->weight_count; ++w) {
        const int buffer = e->table->weights[w].buffer;
        bool bound = true;
        if (!is_filled(e, source, w))
            continue;
        for (int n = 0; n < lathe_engine_instances(&e->table->buffers[buffer]); ++n)
            bound = bound && lathe_engine_given(e, buffer, n);
        count += !bound;
    }
    return count;
}

/* What cannot be asked for in parts: one buffer of the host, as large as the largest weight. */
static lathe_status fill_staged(lathe_engine *e, filling *f) {
    const lathe_step_table *t = e->table;
    int64_t largest = 0;
    for (int w = 0; w < t->weight_count; ++w)
        if (t->buffers[t->weights[w].buffer].fixed_bytes > largest)
            largest = t->buffers[t->weights[w].buffer].fixed_bytes;
    f->staging = malloc((size_t)largest);
    if (!f->staging)
        return lathe_engine_fail(e, LATHE_NO_MEMORY, "weights: no memory for %lld bytes",
                                 (long long)largest);
    const lathe_status status = fill_all(e, f);
    free(f->staging);
    return status;
}

/* The instances to fill; returns how many. `items` NULL: counts only. */
static int list_items(const lathe_engine *e, const filling *f, lathe_loader_item *items) {
    const lathe_step_table *t = e->table;
    int count = 0;
    for (int w = 0; w < t->weight_count; ++w) {
        const int buffer = t->weights[w].buffer;
        const lathe_step_buffer *b = &t->buffers[buffer];
        for (int n = 0; is_filled(e, f->source, w) && n < lathe_engine_instances(b); ++n) {
            if (lathe_engine_given(e, buffer, n))
                continue;
            if (items)
                items[count] = (lathe_loader_item){w, b->per_layer ? b->layers[n] : -1,
                                                   e->memory[buffer][n], (size_t)b->fixed_bytes};
            ++count;
        }
    }
    return count;
}

typedef struct {
    lathe_engine *engine;
    const lathe_loader *loader;
} progress;

static void show_loaded(void *context, int index) {
    const progress *p = context;
    const lathe_step_table *t = p->engine->table;
    const int weight = p->loader->items[index].weight;
    lathe_logger_progress(&p->engine->log, index + 1, p->loader->count, "loaded %s",
                          t->buffers[t->weights[weight].buffer].name);
}

static void report_speed(lathe_engine *e, const lathe_loader *l, double seconds) {
    double bytes = 0;
    for (int i = 0; i < l->count; ++i)
        bytes += (double)l->items[i].bytes;
    lathe_logger_write(&e->log, LATHE_LOG_NOTE, "loaded %.2f GB of weights in %.2f s: %.2f GB/s",
                       1e-9 * bytes, seconds, seconds > 0 ? 1e-9 * bytes / seconds : 0);
}

static lathe_status fill_pieces(lathe_engine *e, const filling *f) {
    char text[1024] = "";
    lathe_loader l = {.weights = f->weights,
                      .device = e->device,
                      .count = list_items(e, f, NULL),
                      .done = show_loaded,
                      .message = text,
                      .size = sizeof text};
    progress p = {e, &l};
    const double began = lathe_engine_seconds();
    lathe_loader_item *items = calloc((size_t)l.count + 1, sizeof *items);
    if (!items)
        return lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory to load weights");
    (void)list_items(e, f, items);
    l.items = items;
    l.context = &p;
    const lathe_status status = lathe_loader_run(&l);
    if (status == LATHE_OK)
        report_speed(e, &l, lathe_engine_seconds() - began);
    free(items);
    return status == LATHE_OK ? LATHE_OK : lathe_engine_fail(e, status, "weights: %s", text);
}

/* Where the device cannot make them, the host does: the bits are the same. The emulator would only
 * be slower than the host. */
static void open_generator(lathe_engine *e, filling *f) {
    char text[1024] = "";
    f->weights = lathe_weights_of(f->source);
    if (e->options.device == LATHE_DEVICE_HOST || !f->weights || !f->weights->reader.generate)
        return;
    const lathe_status status = lathe_generator_open(e->device, e->compiler, &f->generator,
                                                     (lathe_message_buffer){text, sizeof text});
    if (status != LATHE_OK)
        lathe_logger_write(&e->log, LATHE_LOG_WARNING,
                           "synthetic weights are made on the host, slowly: %s", text);
}

/* Before anything is compiled for it. */
static lathe_status check_source(lathe_engine *e, const lathe_weight_source *source) {
    if (source && source->size != sizeof *source)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "weights: found a source of size %zu, allowed: %zu", source->size,
                                 sizeof *source);
    const int wanted = count_unbound(e, source);
    if (wanted == 0 || (source && source->fill))
        return LATHE_OK;
    return lathe_engine_fail(e, LATHE_INVALID, "weights: there is no source to fill %d weights%s",
                             wanted, source ? ": its `fill` is NULL" : "");
}

static lathe_status fill_weights(lathe_engine *e, const lathe_weight_source *source) {
    filling f = {.source = source};
    if (count_unbound(e, source) == 0)
        return LATHE_OK;
    open_generator(e, &f);
    if (!f.generator)
        return f.weights ? fill_pieces(e, &f) : fill_staged(e, &f);
    lathe_status status = fill_all(e, &f);
    if (status == LATHE_OK)
        status = lathe_engine_synchronize(e);
    lathe_generator_close(f.generator);
    return status;
}

lathe_status lathe_engine_agree(lathe_engine *e, lathe_status status) {
    lathe_group *group = e->options.group;
    const int32_t mine = (int32_t)status;
    int32_t all[LATHE_GROUP_MAX];
    if (!group)
        return status;
    const lathe_status met = lathe_group_all_gather(group, &mine, sizeof mine, all);
    if (status != LATHE_OK)
        return status;
    if (met != LATHE_OK)
        return lathe_engine_fail(e, met, "build: %s", group->message);
    for (int r = 0; r < group->world; ++r)
        if (all[r] != (int32_t)LATHE_OK)
            return lathe_engine_fail(e, LATHE_DISAGREE, "rank %d could not build: %s", r,
                                     lathe_status_name((lathe_status)all[r]));
    return LATHE_OK;
}

static lathe_status launch_list(lathe_engine *e, const lathe_launch_list *list) {
    for (int i = 0; i < list->count; ++i) {
        const lathe_status status = lathe_engine_launch(e, &list->launches[i]);
        if (status != LATHE_OK)
            return status;
    }
    return LATHE_OK;
}

/* A kernel of `prepare` that cannot take a block scale says so in a bit that no step sets. */
static lathe_status check_prepared(lathe_engine *e) {
    const int faults = lathe_step_table_find_buffer(e->table, "faults");
    int32_t word = 0;
    if (faults < 0)
        return LATHE_OK;
    const lathe_status status =
        e->device->ops->copy_out(e->device, &word, e->memory[faults][0], sizeof word);
    if (status != LATHE_OK)
        return lathe_engine_fail_device(e, status, "faults");
    if (word & LATHE_FAULT_SCALE)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "weights: found a block scale that is negative or not a number, "
                                 "allowed: 0 to 448");
    return LATHE_OK;
}

static lathe_status run_prepare(lathe_engine *e) {
    lathe_status status = launch_list(e, &e->prepare);
    if (status == LATHE_OK)
        status = lathe_engine_synchronize(e);
    return status == LATHE_OK ? check_prepared(e) : status;
}

/* A driver may load code at a kernel's first launch; that must not fall into a step. An emulated
 * kernel has no such first time, and emulating it would cost as much as the step. */
static lathe_status warm_up(lathe_engine *e) {
    if (e->options.device == LATHE_DEVICE_HOST)
        return LATHE_OK;
    for (int v = 0; v < e->table->variant_count; ++v) {
        lathe_status status = launch_list(e, &e->variants[v]);
        if (status == LATHE_OK)
            status = lathe_engine_synchronize(e);
        if (status == LATHE_OK)
            status = lathe_engine_check_peers(e);
        if (status != LATHE_OK)
            return status;
    }
    return lathe_engine_clear_faults(e);
}

static lathe_status capture(lathe_engine *e, int variant) {
    const lathe_launch_list *list = &e->variants[variant];
    return lathe_engine_record(e, list->launches, list->count, &e->graphs[variant]);
}

lathe_status lathe_engine_capture(lathe_engine *e) {
    const int count = e->table->variant_count;
    if (e->options.no_graphs)
        return LATHE_OK;
    if (!e->graphs)
        e->graphs = lathe_pool_alloc(e->pool, (size_t)count, sizeof *e->graphs);
    if (!e->graphs)
        return lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory for graphs");
    for (int v = 0; v < count; ++v) {
        if (e->graphs[v])
            e->device->ops->graph_destroy(e->device, e->graphs[v]);
        e->graphs[v] = NULL;
        const lathe_status status = capture(e, v);
        if (status != LATHE_OK)
            return status;
    }
    return LATHE_OK;
}

static lathe_status build_memory(lathe_engine *e, const lathe_weight_source *weights) {
    say(e, "allocating");
    lathe_status status = lathe_engine_agree(e, lathe_engine_allocate(e));
    if (status == LATHE_OK)
        status = lathe_engine_open_mailboxes(e);
    if (status == LATHE_OK)
        status = lathe_engine_agree(e, lathe_engine_open_collectives(e));
    if (status == LATHE_OK)
        status = lathe_engine_reset_inputs(e);
    if (status == LATHE_OK)
        status = lathe_engine_resolve(e);
    say(e, "loading weights");
    return status == LATHE_OK ? fill_weights(e, weights) : status;
}

/* Weights that are made out of others, and whether they are right. */
static lathe_status build_experts(lathe_engine *e, const lathe_weight_source *weights) {
    lathe_expert_report report = {0};
    lathe_status status = lathe_engine_reshard(e, weights, &report);
    /* Ranks set out together: in a step they wait for each other only so long. */
    if (status == LATHE_OK) {
        say(e, "preparing");
        status = lathe_engine_agree(e, run_prepare(e));
    }
    if (status == LATHE_OK)
        status = lathe_engine_probe(e, weights, &report);
    if (status == LATHE_OK)
        lathe_engine_report_experts(e, weights, &report);
    return status;
}

static lathe_status build_step(lathe_engine *e) {
    lathe_status status = warm_up(e);
    say(e, "capturing");
    return status == LATHE_OK ? lathe_engine_capture(e) : status;
}

static lathe_status agree_on_step(lathe_engine *e) {
    lathe_group *group = e->options.group;
    if (!group)
        return LATHE_OK;
    const lathe_status status = lathe_group_agree_hash(group, e->table->digest, "step.json");
    return status == LATHE_OK ? status : lathe_engine_fail(e, status, "%s", group->message);
}

lathe_status lathe_build(lathe_engine *e, const lathe_weight_source *weights) {
    if (!e)
        return LATHE_INVALID;
    if (e->state != LATHE_ENGINE_CREATED)
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "lathe_build: found a second call, allowed: one");
    const char *reason = lathe_unsupported(e);
    lathe_status status = LATHE_OK;
    if (reason)
        status = lathe_engine_fail(e, e->unsupported_status, "%s", reason);
    status = lathe_engine_agree(e, status);
    if (status == LATHE_OK)
        status = agree_on_step(e);
    if (status == LATHE_OK)
        status = lathe_engine_agree(e, check_source(e, weights));
    if (status == LATHE_OK)
        status = lathe_engine_agree_experts(e, weights);
    if (status == LATHE_OK)
        say(e, "compiling");
    if (status == LATHE_OK)
        status = lathe_engine_agree(e, lathe_engine_build_kernels(e));
    if (status == LATHE_OK)
        status = lathe_engine_agree(e, build_memory(e, weights));
    if (status == LATHE_OK)
        status = build_experts(e, weights);
    if (status == LATHE_OK)
        status = build_step(e);
    e->state = status == LATHE_OK ? LATHE_ENGINE_BUILT : LATHE_ENGINE_FAILED;
    return status;
}
