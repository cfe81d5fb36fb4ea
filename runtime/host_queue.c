/* SPDX-License-Identifier: Apache-2.0
 * The host device's streams and graphs: lists of launches with what each must wait for. Nothing
 * runs before somebody synchronises. */
#include "host_crash.h"
#include "host_device.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST 8192 /* launches that may wait; then they run */

static lathe_host_device *host(lathe_device *d) {
    return (lathe_host_device *)d;
}

static lathe_host_queue *open_queue(lathe_host_device *h) {
    return h->recording ? &h->recorded : &h->queue;
}

void lathe_host_queue_free(lathe_host_queue *q) {
    free(q->launches);
    memset(q, 0, sizeof *q);
}

static bool queue_reserve(lathe_host_queue *q, int more) {
    if (q->count + more <= q->room)
        return true;
    int room = q->room ? q->room : 64;
    while (room < q->count + more)
        room *= 2;
    lathe_host_launch *launches = realloc(q->launches, (size_t)room * sizeof *launches);
    if (!launches)
        return false;
    q->launches = launches;
    q->room = room;
    return true;
}

static void stream_set(lathe_host_stream *s, int launch) {
    s->pending[0] = launch;
    s->count = 1;
    s->joined = false;
}

/* Two streams never have more than one launch each that nothing follows. */
static void stream_add(lathe_host_stream *to, const lathe_host_stream *from) {
    for (int i = 0; i < from->count; i++) {
        bool known = false;
        for (int k = 0; k < to->count; k++)
            known = known || to->pending[k] == from->pending[i];
        if (!known && to->count < LATHE_EMULATOR_BEFORE)
            to->pending[to->count++] = from->pending[i];
    }
    to->joined = true;
}

static lathe_status check_launch(lathe_device *d, int stream, const lathe_kernel *kernel,
                                 const lathe_geometry *g, int count) {
    if (stream < 0 || stream >= LATHE_STREAMS)
        return lathe_host_fail(d, LATHE_INVALID, "stream %d; streams are 0 and 1", stream);
    if (count < 0 || count > LATHE_EMULATOR_ARGUMENTS)
        return lathe_host_fail(d, LATHE_INVALID, "kernel %s: %d arguments, at most %d",
                               kernel->name, count, LATHE_EMULATOR_ARGUMENTS);
    if (g->shared_bytes > kernel->shared_bytes)
        return lathe_host_fail(d, LATHE_INVALID,
                               "kernel %s: launched with %u bytes of shared memory, loaded for %u",
                               kernel->name, g->shared_bytes, kernel->shared_bytes);
    if (g->block == 0 || g->block > 1024 || !g->grid[0] || !g->grid[1] || !g->grid[2])
        return lathe_host_fail(d, LATHE_INVALID, "kernel %s: grid (%u, %u, %u) of %u threads",
                               kernel->name, g->grid[0], g->grid[1], g->grid[2], g->block);
    if (g->cluster > 1 && (g->grid[0] % g->cluster || g->cooperative))
        return lathe_host_fail(d, LATHE_INVALID, "kernel %s: clusters of %u in a grid of %u",
                               kernel->name, g->cluster, g->grid[0]);
    if (g->early && g->cooperative)
        return lathe_host_fail(d, LATHE_INVALID, "kernel %s: early and co-operative", kernel->name);
    if (g->early && open_queue(host(d))->stream[stream].joined)
        return lathe_host_fail(
            d, LATHE_INVALID, "kernel %s: launched early right after a fork or join", kernel->name);
    return LATHE_OK;
}

/* Behind what its stream holds. */
static lathe_status enqueue(lathe_device *d, int stream, const lathe_host_launch *launch) {
    lathe_host_queue *q = open_queue(host(d));
    if (!queue_reserve(q, 1))
        return lathe_host_fail(d, LATHE_NO_MEMORY, "no memory for a launch");
    lathe_host_stream *s = &q->stream[stream];
    lathe_host_launch *last = &q->launches[q->count];
    *last = *launch;
    memcpy(last->before, s->pending, sizeof s->pending);
    last->before_count = s->count;
    stream_set(s, q->count++);
    if (host(d)->recording)
        return LATHE_OK;
    lathe_emulator_expect(host(d)->emulator);
    return q->count >= LONGEST ? lathe_host_drain(host(d)) : LATHE_OK;
}

lathe_status lathe_host_launch_enqueue(lathe_device *d, int stream, const lathe_kernel *kernel,
                                       const lathe_geometry *g, void *const *arguments, int count) {
    const lathe_status status = check_launch(d, stream, kernel, g, count);
    if (status != LATHE_OK)
        return status;
    lathe_host_launch launch = {.kernel = kernel, .geometry = *g, .argument_count = count};
    if (count)
        memcpy(launch.arguments, arguments, (size_t)count * sizeof *arguments);
    return enqueue(d, stream, &launch);
}

static lathe_status check_collective(lathe_device *d, int stream, lathe_collective kind,
                                     lathe_scalar dtype) {
    if (stream < 0 || stream >= LATHE_STREAMS)
        return lathe_host_fail(d, LATHE_INVALID, "stream %d; streams are 0 and 1", stream);
    if (!host(d)->group)
        return lathe_host_fail(d, LATHE_INVALID, "a collective before open_collectives");
    if (kind == LATHE_COLLECTIVE_ALL_REDUCE && dtype != LATHE_SCALAR_BF16 &&
        dtype != LATHE_SCALAR_F32 && dtype != LATHE_SCALAR_I32)
        return lathe_host_fail(d, LATHE_UNSUPPORTED,
                               "all_reduce: found %s, allowed: bf16, f32, i32",
                               lathe_scalar_name(dtype));
    return LATHE_OK;
}

lathe_status lathe_host_collective_enqueue(lathe_device *d, int stream, lathe_collective kind,
                                           lathe_scalar dtype, const void *from, void *to,
                                           size_t count) {
    const lathe_status status = check_collective(d, stream, kind, dtype);
    if (status != LATHE_OK)
        return status;
    const lathe_host_launch launch = {.collective = {kind, dtype, from, to, count}};
    return enqueue(d, stream, &launch);
}

bool lathe_host_queue_meets(const lathe_host_queue *q) {
    for (int i = 0; i < q->count; i++)
        if (!q->launches[i].kernel)
            return true;
    return false;
}

static lathe_status check_side(lathe_device *d, int stream) {
    if (stream < 1 || stream >= LATHE_STREAMS)
        return lathe_host_fail(d, LATHE_INVALID,
                               "fork or join of stream %d; only 1 is a side "
                               "stream",
                               stream);
    return LATHE_OK;
}

lathe_status lathe_host_fork(lathe_device *d, int stream) {
    const lathe_status status = check_side(d, stream);
    lathe_host_queue *q = open_queue(host(d));
    if (status == LATHE_OK)
        stream_add(&q->stream[stream], &q->stream[0]);
    return status;
}

lathe_status lathe_host_join(lathe_device *d, int stream) {
    const lathe_status status = check_side(d, stream);
    lathe_host_queue *q = open_queue(host(d));
    if (status == LATHE_OK)
        stream_add(&q->stream[0], &q->stream[stream]);
    return status;
}

lathe_status lathe_host_record_begin(lathe_device *d) {
    if (host(d)->recording)
        return lathe_host_fail(d, LATHE_INVALID, "already recording");
    host(d)->recording = true;
    return LATHE_OK;
}

/* Whether stream 0 waits for all that the side streams hold. */
static bool all_joined(const lathe_host_queue *q) {
    for (int s = 1; s < LATHE_STREAMS; s++)
        for (int i = 0; i < q->stream[s].count; i++) {
            const int launch = q->stream[s].pending[i];
            bool found = false;
            for (int k = 0; k < q->stream[0].count; k++)
                found = found || q->stream[0].pending[k] == launch;
            for (int n = launch + 1; n < q->count; n++)
                for (int k = 0; k < q->launches[n].before_count; k++)
                    found = found || q->launches[n].before[k] == launch;
            if (!found)
                return false;
        }
    return true;
}

lathe_status lathe_host_record_end(lathe_device *d, lathe_graph **graph) {
    lathe_host_device *h = host(d);
    *graph = NULL;
    if (!h->recording)
        return lathe_host_fail(d, LATHE_INVALID, "not recording");
    h->recording = false;
    lathe_graph *made = all_joined(&h->recorded) ? malloc(sizeof *made) : NULL;
    if (!made) {
        const bool joined = all_joined(&h->recorded);
        lathe_host_queue_free(&h->recorded);
        return joined ? lathe_host_fail(d, LATHE_NO_MEMORY, "no memory for a graph")
                      : lathe_host_fail(d, LATHE_INVALID,
                                        "the recording ends with a side stream not joined");
    }
    made->queue = h->recorded;
    memset(&h->recorded, 0, sizeof h->recorded);
    *graph = made;
    return LATHE_OK;
}

static void append(lathe_host_queue *q, const lathe_host_queue *from) {
    const int base = q->count;
    const lathe_host_stream start = q->stream[0];
    for (int n = 0; n < from->count; n++) {
        lathe_host_launch *launch = &q->launches[q->count++];
        *launch = from->launches[n];
        for (int i = 0; i < launch->before_count; i++)
            launch->before[i] += base;
        if (launch->before_count == 0) { /* a root */
            memcpy(launch->before, start.pending, sizeof start.pending);
            launch->before_count = start.count;
        }
    }
    q->stream[0] = from->stream[0];
    for (int i = 0; i < q->stream[0].count; i++)
        q->stream[0].pending[i] += base;
    q->stream[0].joined = true; /* nothing outside a graph is early on what is in it */
}

lathe_status lathe_host_replay(lathe_device *d, lathe_graph *graph) {
    lathe_host_device *h = host(d);
    if (h->recording)
        return lathe_host_fail(d, LATHE_INVALID, "a graph cannot be replayed while recording");
    if (graph->queue.count == 0)
        return LATHE_OK;
    if (!queue_reserve(&h->queue, graph->queue.count))
        return lathe_host_fail(d, LATHE_NO_MEMORY, "no memory for a replay");
    append(&h->queue, &graph->queue);
    lathe_emulator_expect(h->emulator);
    return h->queue.count >= LONGEST ? lathe_host_drain(h) : LATHE_OK;
}

void lathe_host_graph_destroy(lathe_device *d, lathe_graph *graph) {
    (void)d;
    if (!graph)
        return;
    lathe_host_queue_free(&graph->queue);
    free(graph);
}

/* Dependencies in ascending order; false where there are more than device.h has room for. */
static bool to_node(const lathe_host_launch *launch, lathe_graph_node *n) {
    *n = (lathe_graph_node){.kernel = launch->kernel,
                            .block = launch->geometry.block,
                            .shared_bytes = launch->geometry.shared_bytes,
                            .depends = {-1, -1}};
    memcpy(n->grid, launch->geometry.grid, sizeof n->grid);
    for (int i = 0; i < launch->before_count; i++) {
        if (i == LATHE_STREAMS)
            return false;
        n->depends[i] = launch->before[i];
    }
    if (n->depends[1] >= 0 && n->depends[1] < n->depends[0]) {
        const int first = n->depends[1];
        n->depends[1] = n->depends[0];
        n->depends[0] = first;
    }
    n->programmatic[0] = launch->geometry.early && launch->before_count == 1;
    return true;
}

lathe_status lathe_host_graph_nodes(lathe_device *d, const lathe_graph *graph,
                                    lathe_graph_node *nodes, int room, int *count) {
    *count = graph->queue.count;
    for (int i = 0; i < graph->queue.count && i < room; i++)
        if (!to_node(&graph->queue.launches[i], &nodes[i]))
            return lathe_host_fail(d, LATHE_INVALID, "graph node %d has more than %d dependencies",
                                   i, LATHE_STREAMS);
    return LATHE_OK;
}

/* What stands before `first` has ended. */
static void to_grid(const lathe_host_launch *launch, int first, lathe_emulator_grid *g) {
    *g = (lathe_emulator_grid){.name = launch->kernel->name,
                               .entry = launch->kernel->entry,
                               .arguments = launch->arguments,
                               .argument_count = launch->argument_count,
                               .geometry = launch->geometry};
    for (int i = 0; i < launch->before_count; i++)
        if (launch->before[i] >= first)
            g->before[g->before_count++] = launch->before[i] - first;
    /* What it would have overlapped with has ended. */
    if (g->before_count == 0)
        g->geometry.early = false;
}

static lathe_status run_grids(lathe_host_device *h, int first, int end) {
    for (int i = first; i < end; i++)
        to_grid(&h->queue.launches[i], first, &h->grids[i - first]);
    if (end > first && !lathe_host_run_watched(h->emulator, h->grids, end - first))
        return lathe_host_fail(&h->base, LATHE_DEVICE_FAULT, "%s",
                               lathe_emulator_message(h->emulator));
    return LATHE_OK;
}

/* All that was enqueued before a collective runs before it, all after it after: an order that the
 * dependencies allow, and the same one on every rank. */
static lathe_status run_queue(lathe_host_device *h, int count) {
    int first = 0;
    lathe_status status = LATHE_OK;
    for (int i = 0; i < count && status == LATHE_OK; i++) {
        if (h->queue.launches[i].kernel)
            continue;
        lathe_emulator_goes_on(h->emulator, true);
        status = run_grids(h, first, i);
        if (status == LATHE_OK)
            status = lathe_host_meet(h, &h->queue.launches[i].collective);
        first = i + 1;
    }
    lathe_emulator_goes_on(h->emulator, false);
    if (first > 0 && (status != LATHE_OK || first == count))
        lathe_emulator_waited(h->emulator); /* no run follows that would say so */
    return status == LATHE_OK ? run_grids(h, first, count) : status;
}

lathe_status lathe_host_drain(lathe_host_device *h) {
    lathe_host_queue *q = &h->queue;
    if (q->count > h->grid_room) {
        lathe_emulator_grid *grids = realloc(h->grids, (size_t)q->room * sizeof *grids);
        if (!grids)
            return lathe_host_fail(&h->base, LATHE_NO_MEMORY, "no memory for %d launches",
                                   q->count);
        h->grids = grids;
        h->grid_room = q->room;
    }
    const int count = q->count;
    q->count = 0;
    memset(q->stream, 0, sizeof q->stream);
    return run_queue(h, count);
}
