/* SPDX-License-Identifier: Apache-2.0
 * Runs the step again in its normal schedule and as a graph, from the same state: the bits of every
 * value that a reference defines, and of the caches, must be those of the launches one by one
 * (design.md, line 5). The graph itself must hold what step.json says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_state.h"
#include "ranks.h"

typedef enum { SCHEDULE_NORMAL, SCHEDULE_GRAPH, SCHEDULES } schedule;

static const char *const names[SCHEDULES] = {"normal schedule", "graph"};

static bool is_result(const lathe_step_buffer *b) {
    return b->lifetime == LATHE_LIFETIME_SCRATCH || b->lifetime == LATHE_LIFETIME_OUTPUT ||
           b->lifetime == LATHE_LIFETIME_KV;
}

static lathe_status reset_instance(lathe_check_state *c, int rank, const lathe_step_buffer *b,
                                   int layer) {
    lathe_engine *engine = c->options->engines[rank];
    lathe_device *d = lathe_engine_device(engine);
    lathe_engine_memory m;
    lathe_status status = lathe_engine_find(engine, b->name, layer, &m);
    if (status != LATHE_OK)
        return lathe_check_refuse_engine(c, rank, status);
    const void *start = lathe_image_find(c->start[rank], b, layer);
    status = start ? d->ops->copy_in(d, m.address, start, m.bytes)
                   : d->ops->fill(d, m.address, 0xff, m.bytes);
    return status == LATHE_OK ? status : lathe_check_refuse(c, status, "%s", d->message);
}

/* Caches as they were, everything else that the step writes poisoned. */
static lathe_status reset(lathe_check_state *c) {
    lathe_status status = LATHE_OK;
    for (int rank = 0; rank < c->ranks; ++rank)
        for (int b = 0; b < c->table->buffer_count; ++b) {
            const lathe_step_buffer *buffer = &c->table->buffers[b];
            for (int i = 0;
                 status == LATHE_OK && is_result(buffer) && i < lathe_image_instances(buffer); ++i)
                status =
                    reset_instance(c, rank, buffer, buffer->per_layer ? buffer->layers[i] : -1);
        }
    return status;
}

static lathe_status run(lathe_check_state *c, schedule s) {
    for (int rank = 0; rank < c->ranks; ++rank) {
        lathe_engine *e = c->options->engines[rank];
        const lathe_status status = s == SCHEDULE_GRAPH
                                        ? lathe_engine_replay(e, c->options->variant)
                                        : lathe_engine_launch_all(e, c->options->variant);
        if (status != LATHE_OK)
            return lathe_check_refuse_engine(c, rank, status);
    }
    int rank = 0;
    const lathe_status status = lathe_ranks_synchronize(c->options->engines, c->ranks, &rank);
    return status == LATHE_OK ? status : lathe_check_refuse_engine(c, rank, status);
}

/* Number of defined bytes that differ; `first` is the first of them. */
static int64_t count_different(const unsigned char *a, const unsigned char *b,
                               const unsigned char *mask, size_t bytes, size_t *first) {
    int64_t different = 0;
    for (size_t i = 0; i < bytes; ++i)
        if (a[i] != b[i] && (!mask || mask[i])) {
            if (different++ == 0)
                *first = i;
        }
    return different;
}

static lathe_status compare_instance(lathe_check_state *c, schedule s, int rank,
                                     const lathe_step_buffer *b, int layer, bool *same) {
    size_t bytes = 0;
    const unsigned char *end = lathe_image_find(c->end[rank], b, layer);
    const unsigned char *mask = lathe_image_find(c->defined[rank], b, layer);
    if (!end || (!mask && b->lifetime != LATHE_LIFETIME_KV))
        return LATHE_OK;
    lathe_image *now = lathe_image_create(c->options->engines[rank]);
    const unsigned char *found = now ? lathe_image_read(now, b, layer, &bytes) : NULL;
    if (!found) {
        lathe_image_destroy(now);
        return lathe_check_refuse(c, LATHE_NO_MEMORY, "%s cannot be read back", b->name);
    }
    size_t first = 0;
    const int64_t different = count_different(end, found, mask, bytes, &first);
    lathe_image_destroy(now);
    if (different == 0)
        return LATHE_OK;
    *same = false;
    if (c->options->out)
        fprintf(c->options->out,
                "    %s: %lld bytes of %s (layer %d, rank %d) differ, the first at %zu\n", names[s],
                (long long)different, b->name, layer, rank, first);
    return LATHE_OK;
}

static lathe_status compare(lathe_check_state *c, schedule s, bool *same) {
    lathe_status status = LATHE_OK;
    for (int rank = 0; rank < c->ranks; ++rank)
        for (int b = 0; b < c->table->buffer_count; ++b) {
            const lathe_step_buffer *buffer = &c->table->buffers[b];
            for (int i = 0;
                 status == LATHE_OK && is_result(buffer) && i < lathe_image_instances(buffer); ++i)
                status = compare_instance(c, s, rank, buffer,
                                          buffer->per_layer ? buffer->layers[i] : -1, same);
        }
    return status;
}

/* The captured graph's launches and dependencies are those of step.json, on every rank. */
static void check_graph(lathe_check_state *c) {
    bool same = true;
    for (int rank = 0; rank < c->ranks; ++rank) {
        lathe_engine *e = c->options->engines[rank];
        if (lathe_engine_compare_graph(e, c->options->variant) == LATHE_OK)
            continue;
        same = false;
        if (c->options->out)
            fprintf(c->options->out, "    rank %d: %s\n", rank, lathe_message(e));
    }
    c->result->failed += !same;
    if (c->options->out && !(same && c->options->failures_only))
        fprintf(c->options->out, "%-12s %-34s %-30s %-32s %s\n", "graph", "nodes and edges",
                c->table->variants[c->options->variant].name,
                same ? "as step.json says" : "other than step.json says", same ? "ok" : "FAILED");
}

lathe_status lathe_check_schedules(lathe_check_state *c) {
    check_graph(c);
    for (int s = 0; s < SCHEDULES; ++s) {
        bool same = true;
        const int64_t times =
            s == SCHEDULE_GRAPH && c->options->replays > 1 ? c->options->replays : 1;
        for (int64_t i = 0; i < times && same; ++i) {
            lathe_status status = reset(c);
            if (status == LATHE_OK)
                status = run(c, (schedule)s);
            if (status == LATHE_OK)
                status = compare(c, (schedule)s, &same);
            if (status != LATHE_OK)
                return status;
        }
        c->result->failed += !same;
        if (c->options->out && !(same && c->options->failures_only))
            fprintf(c->options->out, "%-12s %-34s %-30s %-32s %s\n", "bits", names[s],
                    c->table->variants[c->options->variant].name,
                    same ? "as launched one by one" : "other than launched one by one",
                    same ? "ok" : "FAILED");
    }
    return LATHE_OK;
}
