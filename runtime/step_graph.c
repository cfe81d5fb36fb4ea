/* SPDX-License-Identifier: Apache-2.0
 * Owns: graphs of launches, and the comparison of a captured one with step.json, node by node and
 * edge by edge. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* What a stream waits for next: numbers of nodes, -1 for none. `after_join` forbids a programmatic
 * edge. */
typedef struct {
    int on[LATHE_STREAMS]; /* ascending, distinct */
} waits;

static void add_wait(waits *w, int node) {
    if (node < 0 || w->on[0] == node || w->on[1] == node)
        return;
    if (w->on[0] < 0) {
        w->on[0] = node;
    } else if (node > w->on[0]) {
        w->on[1] = node;
    } else {
        w->on[1] = w->on[0];
        w->on[0] = node;
    }
}

static void add_waits(waits *w, const waits *other) {
    for (int i = 0; i < LATHE_STREAMS; ++i)
        add_wait(w, other->on[i]);
}

/* The nodes that step.json means, in launch order. Returns their number. */
static int expect_nodes(const lathe_launch_list *list, lathe_graph_node *nodes) {
    waits stream[LATHE_STREAMS] = {{{-1, -1}}, {{-1, -1}}};
    int count = 0;
    for (int i = 0; i < list->count; ++i) {
        const lathe_step_launch *l = &list->launches[i];
        if (l->kind == LATHE_OP_FORK) {
            add_waits(&stream[l->stream], &stream[0]);
            continue;
        }
        if (l->kind == LATHE_OP_JOIN) {
            add_waits(&stream[0], &stream[l->stream]);
            stream[l->stream] = (waits){{-1, -1}};
            continue;
        }
        lathe_graph_node *n = &nodes[count];
        *n = (lathe_graph_node){.kernel = l->loaded,
                                .block = l->geometry.block,
                                .shared_bytes = l->geometry.shared_bytes};
        memcpy(n->grid, l->geometry.grid, sizeof n->grid);
        memcpy(n->depends, stream[l->stream].on, sizeof n->depends);
        n->programmatic[0] = l->geometry.early && n->depends[0] >= 0;
        stream[l->stream] = (waits){{count++, -1}};
    }
    return count;
}

/* Whether node `late` ends after node `early` does, by its dependencies. Numbers fall along every
 * path. */
static bool follows(const lathe_graph_node *nodes, int late, int early) {
    while (late > early) {
        const int *on = nodes[late].depends;
        if (on[1] >= 0 && follows(nodes, on[1], early))
            return true;
        late = on[0];
    }
    return late == early;
}

/* Takes away a dependency that another one implies: a stream that forks again still follows its own
 * past, and whether a device keeps such an edge is its own affair. */
static void reduce(lathe_graph_node *nodes, int count) {
    for (int i = 0; i < count; ++i) {
        lathe_graph_node *n = &nodes[i];
        if (n->depends[1] < 0 || !follows(nodes, n->depends[1], n->depends[0]))
            continue;
        n->depends[0] = n->depends[1];
        n->programmatic[0] = n->programmatic[1];
        n->depends[1] = -1;
        n->programmatic[1] = false;
    }
}

static bool same_node(const lathe_graph_node *a, const lathe_graph_node *b) {
    bool same = a->kernel == b->kernel && a->block == b->block &&
                a->shared_bytes == b->shared_bytes && memcmp(a->grid, b->grid, sizeof a->grid) == 0;
    for (int s = 0; s < LATHE_STREAMS; ++s)
        same = same && a->depends[s] == b->depends[s] && a->programmatic[s] == b->programmatic[s];
    return same;
}

static const char *show(const lathe_graph_node *n, char *text, size_t size) {
    snprintf(text, size, "grid %ux%ux%u block %u shared %u after %d%s %d%s", n->grid[0], n->grid[1],
             n->grid[2], n->block, n->shared_bytes, n->depends[0],
             n->programmatic[0] ? " (early)" : "", n->depends[1],
             n->programmatic[1] ? " (early)" : "");
    return text;
}

static lathe_status compare_nodes(lathe_engine *e, const lathe_graph_node *found,
                                  const lathe_graph_node *wanted, int count) {
    char a[160], b[160];
    for (int i = 0; i < count; ++i)
        if (!same_node(&found[i], &wanted[i]))
            return lathe_engine_fail(e, LATHE_INVALID,
                                     "graph node %d: found %s%s, step.json says %s", i,
                                     found[i].kernel != wanted[i].kernel ? "another kernel, " : "",
                                     show(&found[i], a, sizeof a), show(&wanted[i], b, sizeof b));
    return LATHE_OK;
}

static lathe_status compare_lists(lathe_engine *e, int variant, lathe_graph_node *found,
                                  lathe_graph_node *wanted) {
    const lathe_launch_list *list = &e->variants[variant];
    const int expected = expect_nodes(list, wanted);
    int count = 0;
    const lathe_status status =
        e->device->ops->graph_nodes(e->device, e->graphs[variant], found, list->count, &count);
    if (status != LATHE_OK)
        return lathe_engine_fail_device(e, status, "graph");
    if (count != expected)
        return lathe_engine_fail(e, LATHE_INVALID, "graph: found %d nodes, step.json says %d",
                                 count, expected);
    reduce(found, count);
    reduce(wanted, count);
    return compare_nodes(e, found, wanted, count);
}

lathe_status lathe_engine_record(lathe_engine *e, const lathe_step_launch *launches, int count,
                                 lathe_graph **graph) {
    const lathe_device_ops *ops = e->device->ops;
    *graph = NULL;
    lathe_status status = ops->record_begin(e->device);
    if (status != LATHE_OK)
        return lathe_engine_fail_device(e, status, "capture");
    for (int i = 0; status == LATHE_OK && i < count; ++i)
        status = lathe_engine_launch(e, &launches[i]);
    const lathe_status ended = ops->record_end(e->device, graph);
    if (status == LATHE_OK && ended != LATHE_OK)
        return lathe_engine_fail_device(e, ended, "capture");
    return status;
}

void lathe_engine_forget(lathe_engine *e, lathe_graph *graph) {
    if (graph)
        e->device->ops->graph_destroy(e->device, graph);
}

lathe_status lathe_engine_time(lathe_engine *e, lathe_graph *graph, int count,
                               double *microseconds) {
    const lathe_status status = e->device->ops->time(e->device, graph, count, microseconds);
    return status == LATHE_OK ? LATHE_OK : lathe_engine_fail_device(e, status, "timing");
}

lathe_status lathe_engine_compare_graph(lathe_engine *e, int variant) {
    if (!e->graphs || variant < 0 || variant >= e->table->variant_count)
        return lathe_engine_fail(e, LATHE_INVALID, "there is no graph of variant %d", variant);
    const size_t count = (size_t)e->variants[variant].count + 1;
    lathe_graph_node *found = calloc(count, sizeof *found);
    lathe_graph_node *wanted = calloc(count, sizeof *wanted);
    const lathe_status status =
        found && wanted ? compare_lists(e, variant, found, wanted)
                        : lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory to compare graphs");
    free(found);
    free(wanted);
    return status;
}
