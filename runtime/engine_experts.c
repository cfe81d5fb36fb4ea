/* SPDX-License-Identifier: Apache-2.0
 * Owns: weights that the ranks make together out of the whole experts that each of them holds.
 *
 * Every rank cuts its experts into the slices of all ranks, and all slices go to all ranks, a
 * few experts at a time; each keeps those of its own. Beside the weight itself that takes, on the
 * host: the rank's whole experts of one weight, and (ranks + 1) times the larger of PIECE bytes and
 * the slices of one expert for all ranks. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"

#define PIECE ((size_t)16 << 20)

double lathe_engine_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What every rank tells of its experts. */
typedef struct {
    int32_t by_rank; /* 1: it holds whole experts, 0: `fill` knows everything */
    int32_t rank, world;
    uint64_t group;
} placement;

static bool any_held(const lathe_step_table *t) {
    for (int w = 0; w < t->weight_count; ++w)
        if (t->weights[w].held)
            return true;
    return false;
}

/* The same verdict on every rank, since all look at the same. */
static lathe_status judge(lathe_engine *e, const placement *all, int world) {
    const char *what = "experts by rank";
    for (int r = 1; r < world; ++r)
        if (all[r].by_rank != all[0].by_rank)
            return lathe_engine_fail(e, LATHE_DISAGREE, "%s: found on rank %d, not on rank %d",
                                     what, all[r].by_rank ? r : 0, all[r].by_rank ? 0 : r);
    if (!all[0].by_rank)
        return LATHE_OK;
    if (!any_held(e->table))
        return lathe_engine_fail(e, LATHE_UNSUPPORTED,
                                 "%s: the step slices no experts (deployment \"%s\", tp %d), "
                                 "allowed: an expert-TP deployment",
                                 what, e->table->deployment, e->table->tp);
    for (int r = 0; r < world; ++r) {
        if (all[r].world != world || all[r].group != all[0].group)
            return lathe_engine_fail(
                e, LATHE_UNSUPPORTED,
                "%s: rank %d shares them in a group of %d (number %llu), rank 0 in one of number "
                "%llu; allowed: the group of the %d ranks of the step",
                what, r, all[r].world, (unsigned long long)all[r].group,
                (unsigned long long)all[0].group, world);
        if (all[r].rank != r)
            return lathe_engine_fail(e, LATHE_UNSUPPORTED,
                                     "%s: found those of rank %d on rank %d, allowed: each "
                                     "rank its own",
                                     what, all[r].rank, r);
    }
    return LATHE_OK;
}

lathe_status lathe_engine_agree_experts(lathe_engine *e, const lathe_weight_source *source) {
    lathe_group *group = e->options.group;
    placement mine = {0}, all[LATHE_GROUP_MAX];
    if (source && source->size >= sizeof *source && source->experts)
        mine =
            (placement){1, source->experts->rank, source->experts->world, source->experts->group};
    if (!group)
        return judge(e, &mine, 1);
    if (lathe_group_all_gather(group, &mine, sizeof mine, all) != LATHE_OK)
        return lathe_engine_fail(e, LATHE_PEER_LOST, "experts: %s", group->message);
    return judge(e, all, group->world);
}

bool lathe_engine_reshards(const lathe_weight_source *source, const lathe_step_weight *w) {
    return source && source->size >= sizeof *source && source->experts && w->held;
}

/* One weight of one layer on its way to all ranks. */
typedef struct {
    lathe_engine *e;
    const lathe_step_source *source;
    int64_t experts;     /* of one rank */
    size_t whole, slice; /* bytes of an expert, and of one rank's slice of it */
    const char *held;    /* the rank's whole experts */
    char *mine, *all;    /* slices: [rank they are for][expert], and of all ranks */
    int64_t most;        /* experts at a time */
    char *memory;        /* the weight on the device; NULL: the caller has it already */
} move;

/* Where the weight is cut along an axis in groups, the slice is a run of each group. */
static void cut(const move *m, int rank, const char *whole, char *slice) {
    const lathe_step_source *s = m->source;
    const int tp = m->e->table->tp, axis = s->shard_axis;
    if (axis < 0) {
        memcpy(slice, whole, m->whole);
        return;
    }
    int64_t runs = s->shard_groups;
    for (int d = 1; d < axis; ++d)
        runs *= s->shape.dim[d];
    const size_t run = m->whole / (size_t)runs, share = run / (size_t)tp;
    for (int64_t i = 0; i < runs; ++i)
        memcpy(slice + (size_t)i * share, whole + (size_t)i * run + (size_t)rank * share, share);
}

static void cut_all(const move *m, int64_t first, int64_t count) {
    char *to = m->mine;
    for (int r = 0; r < m->e->table->tp; ++r)
        for (int64_t i = 0; i < count; ++i, to += m->slice)
            cut(m, r, m->held + (size_t)(first + i) * m->whole, to);
}

/* Puts every rank's slices for this one where their experts stand in the weight. */
static lathe_status keep_own(const move *m, int64_t first, int64_t count) {
    const int tp = m->e->table->tp;
    const size_t bytes = (size_t)count * m->slice;
    for (int r = 0; m->memory && r < tp; ++r) {
        const char *from = m->all + ((size_t)r * (size_t)tp + (size_t)m->e->options.rank) * bytes;
        char *to = m->memory + (size_t)(r * m->experts + first) * m->slice;
        const lathe_status status = m->e->device->ops->copy_in(m->e->device, to, from, bytes);
        if (status != LATHE_OK)
            return lathe_engine_fail_device(m->e, status, m->source->tensor);
    }
    return LATHE_OK;
}

/* A rank whose device fails still takes part, so that the others need not wait for it. */
static lathe_status move_slices(const move *m) {
    lathe_group *group = m->e->options.group;
    lathe_status status = LATHE_OK;
    for (int64_t first = 0; first < m->experts; first += m->most) {
        const int64_t left = m->experts - first, count = left < m->most ? left : m->most;
        cut_all(m, first, count);
        const lathe_status met = lathe_group_all_gather(
            group, m->mine, (size_t)count * m->slice * (size_t)m->e->table->tp, m->all);
        if (met != LATHE_OK)
            return lathe_engine_fail(m->e, met, "experts: %s", group->message);
        if (status == LATHE_OK)
            status = keep_own(m, first, count);
    }
    return lathe_engine_agree(m->e, status);
}

lathe_status lathe_engine_read_held(lathe_engine *e, const lathe_weight_source *source, int weight,
                                    int layer, void *host) {
    const int buffer = e->table->weights[weight].buffer;
    const lathe_step_buffer *b = &e->table->buffers[buffer];
    const size_t bytes = (size_t)b->fixed_bytes;
    const void *given = lathe_engine_given(e, buffer, lathe_step_buffer_instance(b, layer));
    char text[1024] = "";
    if (given) {
        const lathe_status status = e->device->ops->copy_out(e->device, host, given, bytes);
        return status == LATHE_OK ? status : lathe_engine_fail_device(e, status, b->name);
    }
    if (!source || source->size < sizeof *source || !source->fill)
        return lathe_engine_fail(e, LATHE_INVALID, "weights: there is no source to fill %s",
                                 b->name);
    const lathe_status status =
        source->fill(source->context, weight, layer, host, bytes, text, sizeof text);
    return status == LATHE_OK ? status
                              : lathe_engine_fail(e, status, "weight %s: %s", b->name,
                                                  text[0] ? text : lathe_status_name(status));
}

static lathe_status reshard_instance(lathe_engine *e, const lathe_weight_source *source,
                                     const lathe_step_weight *w, int instance) {
    const lathe_step_buffer *b = &e->table->buffers[w->buffer],
                            *h = &e->table->buffers[w->held->buffer];
    const size_t tp = (size_t)e->table->tp, bytes = (size_t)h->fixed_bytes;
    move m = {.e = e, .source = w->sources, .experts = h->shape.dim[0]};
    m.whole = bytes / (size_t)m.experts;
    m.slice = (size_t)b->fixed_bytes / tp / (size_t)m.experts;
    m.most = (int64_t)(PIECE / (tp * m.slice));
    m.most = m.most < 1 ? 1 : m.most < m.experts ? m.most : m.experts;
    m.memory = lathe_engine_given(e, w->buffer, instance) ? NULL : e->memory[w->buffer][instance];
    const size_t piece = tp * m.slice * (size_t)m.most;
    char *room = malloc(bytes + piece * (1 + tp));
    lathe_status status = LATHE_OK;
    if (!room)
        status = lathe_engine_fail(e, LATHE_NO_MEMORY, "experts: no memory for %zu bytes",
                                   bytes + piece * (1 + tp));
    else
        status = lathe_engine_read_held(e, source, (int)(w->held - e->table->weights),
                                        b->layers[instance], room);
    m.held = room;
    m.mine = room + bytes;
    m.all = m.mine + piece;
    status = lathe_engine_agree(e, status);
    if (status == LATHE_OK)
        status = move_slices(&m);
    free(room);
    return status;
}

lathe_status lathe_engine_reshard(lathe_engine *e, const lathe_weight_source *source,
                                  lathe_expert_report *report) {
    const lathe_step_table *t = e->table;
    const double began = lathe_engine_seconds();
    for (int w = 0; w < t->weight_count; ++w) {
        const lathe_step_buffer *b = &t->buffers[t->weights[w].buffer];
        if (!lathe_engine_reshards(source, &t->weights[w]))
            continue;
        for (int n = 0; n < b->layer_count; ++n) {
            const lathe_status status = reshard_instance(e, source, &t->weights[w], n);
            if (status != LATHE_OK)
                return status;
        }
        lathe_logger_progress(&e->log, w + 1, t->weight_count, "resharded %s", b->name);
    }
    report->seconds += lathe_engine_seconds() - began;
    return LATHE_OK;
}

/* Appends to a line that is cut where it is full. */
__attribute__((format(printf, 3, 4))) static void add(char *line, size_t size, const char *format,
                                                      ...) {
    const size_t used = strlen(line);
    va_list list;
    va_start(list, format);
    vsnprintf(line + used, size - used, format, list);
    va_end(list);
}

/* Whether the launch reads slices; whole weights that were gathered are of no account. */
static bool binds_sliced(const lathe_step_table *t, const lathe_step_op *op) {
    for (int i = 0; i < t->kernels[op->kernel].arg_count; ++i)
        for (int w = 0; w < t->weight_count; ++w)
            if (t->weights[w].held && t->weights[w].sources->shard_axis > 0 &&
                t->weights[w].buffer == op->bindings[i].buffer)
                return true;
    return false;
}

static void add_tactics(const lathe_engine *e, char *line, size_t size) {
    const lathe_step_table *t = e->table;
    for (int i = 0; i < t->probe.ops.count; ++i) {
        const lathe_step_op *op = &t->probe.ops.ops[i];
        const lathe_step_kernel *k = &t->kernels[op->kernel];
        const int tactic = e->compiled[op->kernel].tactic;
        if (binds_sliced(t, op))
            add(line, size, ", %s %s (preference %d of %d)", k->name, k->tactics[tactic].name,
                tactic + 1, k->tactic_count);
    }
}

static void add_kinds(const lathe_step_table *t, char *line, size_t size) {
    for (int k = 0; k < t->kind_count; ++k) {
        int count = 0;
        for (int l = 0; l < t->layer_count; ++l)
            count += t->layer_kinds[l] == k;
        add(line, size, "%s%d %s", k ? ", " : "", count, t->kind_names[k]);
    }
}

static double sliced_gib(const lathe_step_table *t) {
    double bytes = 0;
    for (int w = 0; w < t->weight_count; ++w) {
        const lathe_step_buffer *b = &t->buffers[t->weights[w].buffer];
        if (t->weights[w].held)
            bytes += (double)b->fixed_bytes * (double)lathe_engine_instances(b);
    }
    return bytes / (double)(1 << 30);
}

void lathe_engine_report_experts(lathe_engine *e, const lathe_weight_source *source,
                                 const lathe_expert_report *report) {
    const lathe_step_table *t = e->table;
    char line[2048] = "";
    if (t->probe.ops.count == 0 || e->options.rank != 0)
        return;
    add(line, sizeof line, "expert TP: TP%d, layers: ", t->tp);
    add_kinds(t, line, sizeof line);
    add(line, sizeof line, "; %s; %s, +%.3g GiB a rank, ", t->probe.about,
        source && source->experts ? "resharded from experts by rank" : "cut from full weights",
        sliced_gib(t));
    if (report->probed)
        add(line, sizeof line, "probe relative L2 %.3g..%.3g (at most %g)", report->least,
            report->most, t->probe.limit);
    else
        add(line, sizeof line, "not probed");
    add_tactics(e, line, sizeof line);
    add(line, sizeof line, ", %.1f s", report->seconds);
    lathe_logger_write(&e->log, LATHE_LOG_NOTE, "%s", line);
}
