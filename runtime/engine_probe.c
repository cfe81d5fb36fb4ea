/* SPDX-License-Identifier: Apache-2.0
 * Owns: the probe of step.json: in each of its layers, once while the step is built, its launches
 * run, and what two of them leave is summed over the ranks and compared. Its buffers are there for
 * one layer at a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

#define PIECE                                                                                      \
    ((size_t)1 << 18) /* elements of either side that the ranks show each other at once            \
                       */

bool lathe_engine_probe_binds(const lathe_engine *e, int buffer) {
    const lathe_step_ops *ops = &e->table->probe.ops;
    for (int i = 0; i < ops->count; ++i)
        for (int a = 0; a < e->table->kernels[ops->ops[i].kernel].arg_count; ++a)
            if (ops->ops[i].bindings[a].buffer == buffer)
                return true;
    return false;
}

static bool comes_and_goes(const lathe_engine *e, int buffer) {
    return e->table->buffers[buffer].lifetime == LATHE_LIFETIME_BUILD &&
           (lathe_engine_probe_binds(e, buffer) || e->table->probe.sums[0] == buffer ||
            e->table->probe.sums[1] == buffer);
}

uint64_t lathe_engine_probe_bytes(const lathe_engine *e) {
    uint64_t total = 0;
    for (int i = 0; e->table->probe.ops.count && i < e->table->buffer_count; ++i)
        if (comes_and_goes(e, i) &&
            __builtin_add_overflow(total, (uint64_t)e->table->buffers[i].fixed_bytes, &total))
            return UINT64_MAX;
    return total;
}

/* One allocation that all layers share whose instance is not the caller's. */
static void place(lathe_engine *e, int buffer, void *memory) {
    for (int n = 0; n < lathe_engine_instances(&e->table->buffers[buffer]); ++n) {
        void *given = lathe_engine_given(e, buffer, n);
        e->memory[buffer][n] = given ? given : memory;
    }
}

/* An instance that is not the caller's, or -1. */
static int find_own(const lathe_engine *e, int buffer) {
    for (int n = 0; n < lathe_engine_instances(&e->table->buffers[buffer]); ++n)
        if (!lathe_engine_given(e, buffer, n))
            return n;
    return -1;
}

static lathe_status open_buffers(lathe_engine *e) {
    for (int i = 0; i < e->table->buffer_count; ++i) {
        void *memory = NULL;
        lathe_status status = LATHE_OK;
        if (!comes_and_goes(e, i))
            continue;
        if (find_own(e, i) >= 0)
            status = lathe_engine_allocate_one(e, &e->table->buffers[i], &memory);
        place(e, i, memory);
        if (status != LATHE_OK)
            return status;
    }
    return lathe_engine_resolve_probe(e);
}

static void close_buffers(lathe_engine *e) {
    for (int i = 0; i < e->table->buffer_count; ++i) {
        const int own = comes_and_goes(e, i) ? find_own(e, i) : -1;
        if (own < 0)
            continue;
        if (e->memory[i][own])
            lathe_engine_free(e, e->memory[i][own]);
        place(e, i, NULL);
    }
}

/* Two sides of a comparison, as far as one rank has seen them. */
typedef struct {
    double distance, size; /* squared; size is of the second side */
    int64_t finite[2], count;
} tally;

static float widen(uint16_t bits) {
    const uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* `all`: of every rank, `count` elements of one side, then of the other. Elements `from` to `to`
 * are this rank's to sum. */
static void add_elements(tally *t, const uint16_t *all, int world, size_t count, size_t from,
                         size_t to) {
    for (size_t i = from; i < to; ++i) {
        double side[2] = {0, 0};
        for (int r = 0; r < world; ++r)
            for (size_t s = 0; s < 2; ++s)
                side[s] += (double)widen(all[((size_t)r * 2 + s) * count + i]);
        for (int s = 0; s < 2; ++s)
            t->finite[s] += isfinite(side[s]) != 0;
        t->distance += (side[0] - side[1]) * (side[0] - side[1]);
        t->size += side[1] * side[1];
        ++t->count;
    }
}

/* As many elements as the smaller buffer has. */
static size_t compared(const lathe_engine *e) {
    const lathe_step_buffer *b = e->table->buffers;
    const int64_t one = b[e->table->probe.sums[0]].fixed_bytes,
                  other = b[e->table->probe.sums[1]].fixed_bytes;
    return (size_t)(one < other ? one : other) / sizeof(uint16_t);
}

static lathe_status read_sides(lathe_engine *e, size_t at, size_t count, uint16_t *mine) {
    for (size_t s = 0; s < 2; ++s) {
        const uint16_t *from = (const uint16_t *)e->memory[e->table->probe.sums[s]][0] + at;
        const lathe_status status =
            e->device->ops->copy_out(e->device, mine + s * count, from, count * sizeof *mine);
        if (status != LATHE_OK)
            return lathe_engine_fail_device(e, status, "probe");
    }
    return LATHE_OK;
}

/* Every rank sums its share of the elements; `room` holds one piece of this rank and of all. */
static lathe_status compare_own(lathe_engine *e, uint16_t *room, tally *mine) {
    lathe_group *group = e->options.group;
    const size_t total = compared(e), world = (size_t)group->world, rank = (size_t)group->rank;
    lathe_status status = LATHE_OK;
    for (size_t at = 0; at < total; at += PIECE) {
        const size_t count = total - at < PIECE ? total - at : PIECE;
        if (status == LATHE_OK)
            status = read_sides(e, at, count, room);
        const lathe_status met =
            lathe_group_all_gather(group, room, 2 * count * sizeof *room, room + 2 * count);
        if (met != LATHE_OK)
            return lathe_engine_fail(e, met, "probe: %s", group->message);
        add_elements(mine, room + 2 * count, group->world, count, count * rank / world,
                     count * (rank + 1) / world);
    }
    return lathe_engine_agree(e, status);
}

static lathe_status sum_tallies(lathe_engine *e, const tally *mine, tally *sum) {
    tally all[LATHE_GROUP_MAX];
    lathe_group *group = e->options.group;
    const lathe_status met = lathe_group_all_gather(group, mine, sizeof *mine, all);
    if (met != LATHE_OK)
        return lathe_engine_fail(e, met, "probe: %s", group->message);
    *sum = (tally){0};
    for (int r = 0; r < group->world; ++r) {
        sum->distance += all[r].distance;
        sum->size += all[r].size;
        sum->count += all[r].count;
        for (int s = 0; s < 2; ++s)
            sum->finite[s] += all[r].finite[s];
    }
    return LATHE_OK;
}

/* Not a number, and a side without anything in it, are failures too. All ranks have the same sums,
 * so all say the same. */
static lathe_status judge(lathe_engine *e, int layer, const tally *sum,
                          lathe_expert_report *report) {
    const lathe_step_table *t = e->table;
    const double found = sqrt(sum->distance / sum->size);
    if (!(found < t->probe.limit))
        return lathe_engine_fail(
            e, LATHE_INVALID,
            "probe, layer %d: %s summed over the ranks is a relative L2 of %.3g from %s (at most "
            "%g); finite are %lld and %lld of %lld elements",
            layer, t->buffers[t->probe.sums[0]].name, found, t->buffers[t->probe.sums[1]].name,
            t->probe.limit, (long long)sum->finite[0], (long long)sum->finite[1],
            (long long)sum->count);
    report->least = report->most == 0 || found < report->least ? found : report->least;
    report->most = found > report->most ? found : report->most;
    return LATHE_OK;
}

static lathe_status fill_layer(lathe_engine *e, const lathe_weight_source *source, int layer,
                               char *staging) {
    const lathe_step_table *t = e->table;
    for (int w = 0; w < t->weight_count; ++w) {
        const int buffer = t->weights[w].buffer;
        const lathe_step_buffer *b = &t->buffers[buffer];
        const int n = lathe_step_buffer_instance(b, layer);
        if (!comes_and_goes(e, buffer) || lathe_engine_given(e, buffer, n))
            continue;
        lathe_status status = lathe_engine_read_held(e, source, w, layer, staging);
        if (status != LATHE_OK)
            return status;
        status = e->device->ops->copy_in(e->device, e->memory[buffer][n], staging,
                                         (size_t)b->fixed_bytes);
        if (status != LATHE_OK)
            return lathe_engine_fail_device(e, status, b->name);
    }
    return LATHE_OK;
}

/* What no launch writes is zero on both sides. */
static lathe_status clear_sides(lathe_engine *e) {
    for (int s = 0; s < 2; ++s) {
        const int i = e->table->probe.sums[s];
        const lathe_status status = e->device->ops->fill(e->device, e->memory[i][0], 0,
                                                         (size_t)e->table->buffers[i].fixed_bytes);
        if (status != LATHE_OK)
            return lathe_engine_fail_device(e, status, "probe");
    }
    return LATHE_OK;
}

static lathe_status run_layer(lathe_engine *e, const lathe_weight_source *source, int layer,
                              char *staging) {
    lathe_status status = fill_layer(e, source, layer, staging);
    if (status == LATHE_OK)
        status = clear_sides(e);
    for (int i = 0; i < e->probe.count && status == LATHE_OK; ++i)
        if (e->probe.launches[i].layer == layer)
            status = lathe_engine_launch(e, &e->probe.launches[i]);
    return status == LATHE_OK ? lathe_engine_synchronize(e) : status;
}

static size_t largest_weight(const lathe_engine *e) {
    int64_t largest = 1;
    for (int w = 0; w < e->table->weight_count; ++w) {
        const int buffer = e->table->weights[w].buffer;
        if (comes_and_goes(e, buffer) && e->table->buffers[buffer].fixed_bytes > largest)
            largest = e->table->buffers[buffer].fixed_bytes;
    }
    return (size_t)largest;
}

static lathe_status probe_layers(lathe_engine *e, const lathe_weight_source *source, char *staging,
                                 uint16_t *room, lathe_expert_report *report) {
    const lathe_step_probe *p = &e->table->probe;
    for (int i = 0; i < p->layer_count; ++i) {
        tally mine = {0}, sum = {0};
        lathe_status status = lathe_engine_agree(e, run_layer(e, source, p->layers[i], staging));
        if (status == LATHE_OK)
            status = compare_own(e, room, &mine);
        if (status == LATHE_OK)
            status = sum_tallies(e, &mine, &sum);
        if (status == LATHE_OK)
            status = judge(e, p->layers[i], &sum, report);
        if (status != LATHE_OK)
            return status;
        lathe_logger_progress(&e->log, i + 1, p->layer_count, "probed layer %d", p->layers[i]);
    }
    return LATHE_OK;
}

/* Whether there are whole experts to compare with: the caller's, or a source of them. */
static bool has_whole(const lathe_engine *e, const lathe_weight_source *source) {
    if (source && source->size >= sizeof *source && source->fill)
        return true;
    for (int w = 0; w < e->table->weight_count; ++w)
        if (comes_and_goes(e, e->table->weights[w].buffer) &&
            find_own(e, e->table->weights[w].buffer) >= 0)
            return false;
    return true;
}

/* Where one rank has none, or wants no probe, there is none. */
static lathe_status agree_to_probe(lathe_engine *e, const lathe_weight_source *source,
                                   bool *probe) {
    int64_t here = !e->options.no_probe;
    if (here && !has_whole(e, source)) {
        here = 0;
        lathe_logger_write(&e->log, LATHE_LOG_WARNING,
                           "the probe is left out: whole experts are neither bound nor filled");
    }
    const lathe_status met = lathe_group_agree_min(e->options.group, &here);
    *probe = here != 0;
    return met == LATHE_OK ? met
                           : lathe_engine_fail(e, met, "probe: %s", e->options.group->message);
}

static lathe_status run_probe(lathe_engine *e, const lathe_weight_source *source,
                              lathe_expert_report *report) {
    char *staging = malloc(largest_weight(e));
    uint16_t *room = malloc(2 * PIECE * sizeof *room * (size_t)(e->options.group->world + 1));
    lathe_status status = open_buffers(e);
    if (status == LATHE_OK && (!staging || !room))
        status = lathe_engine_fail(e, LATHE_NO_MEMORY, "probe: no memory");
    status = lathe_engine_agree(e, status);
    if (status == LATHE_OK)
        status = probe_layers(e, source, staging, room, report);
    close_buffers(e);
    free(staging);
    free(room);
    return status;
}

lathe_status lathe_engine_probe(lathe_engine *e, const lathe_weight_source *source,
                                lathe_expert_report *report) {
    const double began = lathe_engine_seconds();
    if (e->table->probe.ops.count == 0 || !e->options.group)
        return LATHE_OK;
    lathe_status status = agree_to_probe(e, source, &report->probed);
    if (status == LATHE_OK && report->probed)
        status = run_probe(e, source, report);
    report->seconds += lathe_engine_seconds() - began;
    return status;
}
