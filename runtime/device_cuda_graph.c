/* SPDX-License-Identifier: Apache-2.0
 * Owns: capturing a step into a CUDA graph, replaying it, and reading its nodes and edges back from
 * the driver. */
#include <stdlib.h>
#include <string.h>

#include "device_cuda.h"

#define MOST_WAITS 16 /* of a node, before those that others imply are taken away */

static void free_graph(cuda_device *d, lathe_graph *g) {
    if (!g)
        return;
    if (g->exec)
        d->driver.graph_exec_destroy(g->exec);
    if (g->graph)
        d->driver.graph_destroy(g->graph);
    free(g->nodes);
    free(g->kernels);
    free(g);
}

lathe_status cuda_record_begin(lathe_device *base) {
    cuda_device *d = (cuda_device *)base;
    if (d->recording)
        return cuda_refuse(d, LATHE_INVALID, "a capture is open already");
    lathe_status status = cuda_enter(d);
    if (status != LATHE_OK)
        return status;
    lathe_graph *g = calloc(1, sizeof *g);
    if (!g)
        return cuda_refuse(d, LATHE_NO_MEMORY, "no memory for a graph");
    status = cuda_check(d, "cuStreamBeginCapture",
                        d->driver.capture_begin(d->streams[0], CU_CAPTURE_THREAD));
    if (status != LATHE_OK) {
        free(g);
        return status;
    }
    d->graph = g;
    d->recording = true;
    return LATHE_OK;
}

static bool grow(lathe_graph *g) {
    const int room = g->room ? g->room * 2 : 256;
    cu_graph_node *nodes = realloc(g->nodes, (size_t)room * sizeof *nodes);
    if (nodes)
        g->nodes = nodes;
    const lathe_kernel **kernels = realloc(g->kernels, (size_t)room * sizeof *kernels);
    if (kernels)
        g->kernels = kernels;
    if (nodes && kernels)
        g->room = room;
    return nodes && kernels;
}

/* After a launch the stream waits for exactly the node that the launch became: that is how it is
 * known by number. A collective may become several; one that the stream waits for stands for it. */
lathe_status cuda_record_launch(cuda_device *d, cu_stream stream, const lathe_kernel *kernel) {
    lathe_graph *g = d->graph;
    int active = 0;
    const cu_graph_node *waits = NULL;
    const cu_graph_edge *edges = NULL;
    size_t count = 0;
    uint64_t id = 0;
    const lathe_status status =
        cuda_check(d, "cuStreamGetCaptureInfo",
                   d->driver.capture_info(stream, &active, &id, NULL, &waits, &edges, &count));
    if (status != LATHE_OK)
        return status;
    if (active != CU_CAPTURE_ACTIVE || count < 1 || (kernel && count != 1))
        return cuda_refuse(d, LATHE_DEVICE_FAULT, "a launch was not captured as one node");
    if (g->count == g->room && !grow(g))
        return cuda_refuse(d, LATHE_NO_MEMORY, "no memory for a graph");
    g->collective = g->collective || !kernel;
    g->nodes[g->count] = waits[0];
    g->kernels[g->count++] = kernel;
    return LATHE_OK;
}

lathe_status cuda_record_end(lathe_device *base, lathe_graph **graph) {
    cuda_device *d = (cuda_device *)base;
    *graph = NULL;
    if (!d->recording)
        return cuda_refuse(d, LATHE_INVALID, "no capture is open");
    lathe_graph *g = d->graph;
    d->graph = NULL;
    d->recording = false;
    lathe_status status = cuda_enter(d);
    if (status == LATHE_OK)
        status =
            cuda_check(d, "cuStreamEndCapture", d->driver.capture_end(d->streams[0], &g->graph));
    if (status == LATHE_OK)
        status =
            cuda_check(d, "cuGraphInstantiate", d->driver.graph_instantiate(&g->exec, g->graph, 0));
    if (status == LATHE_OK) /* so that the first replay does not */
        status = cuda_check(d, "cuGraphUpload", d->driver.graph_upload(g->exec, d->streams[0]));
    if (status == LATHE_OK)
        *graph = g;
    else
        free_graph(d, g);
    return status;
}

lathe_status cuda_replay(lathe_device *base, lathe_graph *graph) {
    cuda_device *d = (cuda_device *)base;
    lathe_status status = cuda_enter(d);
    if (status == LATHE_OK && graph->collective)
        status = cuda_check_collectives(d);
    d->pending = d->pending || (status == LATHE_OK && graph->collective);
    return status == LATHE_OK
               ? cuda_check(d, "cuGraphLaunch", d->driver.graph_launch(graph->exec, d->streams[0]))
               : status;
}

void cuda_graph_destroy(lathe_device *base, lathe_graph *graph) {
    cuda_device *d = (cuda_device *)base;
    if (cuda_enter(d) == LATHE_OK)
        free_graph(d, graph);
}

static int number_of(const lathe_graph *g, cu_graph_node node) {
    for (int i = 0; i < g->count; ++i)
        if (g->nodes[i] == node)
            return i;
    return -1;
}

static lathe_status read_node(cuda_device *d, const lathe_graph *g, int i, lathe_graph_node *out) {
    int type = -1;
    cu_kernel_params p = {0};
    if (!g->kernels[i]) {
        *out = (lathe_graph_node){.depends = {-1, -1}};
        return LATHE_OK;
    }
    lathe_status status =
        cuda_check(d, "cuGraphNodeGetType", d->driver.node_type(g->nodes[i], &type));
    if (status == LATHE_OK && type != CU_NODE_KERNEL)
        return cuda_refuse(d, LATHE_INVALID, "graph node %d is no kernel but of type %d", i, type);
    if (status == LATHE_OK)
        status =
            cuda_check(d, "cuGraphKernelNodeGetParams", d->driver.node_params(g->nodes[i], &p));
    if (status != LATHE_OK)
        return status;
    if (p.function != g->kernels[i]->function || p.block[1] != 1 || p.block[2] != 1)
        return cuda_refuse(d, LATHE_INVALID, "graph node %d is not the kernel that was launched",
                           i);
    *out = (lathe_graph_node){.kernel = g->kernels[i],
                              .block = p.block[0],
                              .shared_bytes = p.shared_bytes,
                              .depends = {-1, -1}};
    memcpy(out->grid, p.grid, sizeof out->grid);
    return LATHE_OK;
}

/* Keeps `depends` ascending. */
static lathe_status add_edge(cuda_device *d, lathe_graph_node *node, int from, bool programmatic) {
    if (node->depends[LATHE_STREAMS - 1] >= 0)
        return cuda_refuse(d, LATHE_INVALID, "a graph node has more than %d dependencies",
                           LATHE_STREAMS);
    int at = node->depends[0] >= 0 ? 1 : 0;
    if (at == 1 && node->depends[0] > from) {
        node->depends[1] = node->depends[0];
        node->programmatic[1] = node->programmatic[0];
        at = 0;
    }
    node->depends[at] = from;
    node->programmatic[at] = programmatic;
    return LATHE_OK;
}

static lathe_status read_edges(cuda_device *d, const lathe_graph *g, lathe_graph_node *nodes,
                               size_t count, const cu_graph_node *ends,
                               const cu_graph_edge *edges) {
    lathe_status status = LATHE_OK;
    for (size_t i = 0; i < count && status == LATHE_OK; ++i) {
        const int from = number_of(g, ends[i]), to = number_of(g, ends[count + i]);
        if (from < 0 || to < 0)
            return cuda_refuse(d, LATHE_INVALID, "a graph edge joins nodes that were not launched");
        status = add_edge(d, &nodes[to], from, edges[i].type == CU_EDGE_PROGRAMMATIC);
    }
    return status;
}

/* What one node waits for, directly or through nodes of a library's own. */
typedef struct {
    int on[MOST_WAITS];
    bool programmatic[MOST_WAITS];
    int count;
} waits;

static void add_wait(waits *w, int node, bool programmatic) {
    for (int i = 0; i < w->count; ++i)
        if (w->on[i] == node)
            return;
    if (w->count < MOST_WAITS) {
        w->on[w->count] = node;
        w->programmatic[w->count] = programmatic;
    }
    w->count++;
}

static void collect_waits(const lathe_graph *g, cu_graph_node node, size_t count,
                          const cu_graph_node *ends, const cu_graph_edge *edges, bool direct,
                          waits *w) {
    for (size_t i = 0; i < count; ++i) {
        if (ends[count + i] != node)
            continue;
        const int from = number_of(g, ends[i]);
        if (from < 0)
            collect_waits(g, ends[i], count, ends, edges, false, w);
        else
            add_wait(w, from, direct && edges[i].type == CU_EDGE_PROGRAMMATIC);
    }
}

/* Whether node `late` ends after `early`; what both wait for is final. */
static bool follows(const lathe_graph_node *nodes, int late, int early) {
    if (late <= early)
        return late == early;
    for (int s = 0; s < LATHE_STREAMS; ++s)
        if (nodes[late].depends[s] >= 0 && follows(nodes, nodes[late].depends[s], early))
            return true;
    return false;
}

/* A library orders its own work too; where the streams imply that order it says nothing. */
static bool is_implied(const lathe_graph_node *nodes, const waits *w, int i) {
    for (int k = 0; k < w->count; ++k)
        if (k != i && follows(nodes, w->on[k], w->on[i]))
            return true;
    return false;
}

static lathe_status read_library_edges(cuda_device *d, const lathe_graph *g,
                                       lathe_graph_node *nodes, size_t count,
                                       const cu_graph_node *ends, const cu_graph_edge *edges) {
    lathe_status status = LATHE_OK;
    for (int to = 0; to < g->count && status == LATHE_OK; ++to) {
        waits w = {.count = 0};
        collect_waits(g, g->nodes[to], count, ends, edges, g->kernels[to] != NULL, &w);
        if (w.count > MOST_WAITS)
            return cuda_refuse(d, LATHE_INVALID, "a graph node has more than %d dependencies",
                               MOST_WAITS);
        for (int i = 0; i < w.count && status == LATHE_OK; ++i)
            if (!is_implied(nodes, &w, i))
                status = add_edge(d, &nodes[to], w.on[i], w.programmatic[i]);
    }
    return status;
}

static lathe_status fill_edges(cuda_device *d, const lathe_graph *g, lathe_graph_node *nodes,
                               size_t count, cu_graph_node *ends, cu_graph_edge *edges) {
    const lathe_status status = cuda_check(
        d, "cuGraphGetEdges", d->driver.graph_edges(g->graph, ends, ends + count, edges, &count));
    if (status != LATHE_OK)
        return status;
    return g->collective ? read_library_edges(d, g, nodes, count, ends, edges)
                         : read_edges(d, g, nodes, count, ends, edges);
}

static lathe_status read_all_edges(cuda_device *d, const lathe_graph *g, lathe_graph_node *nodes) {
    size_t count = 0;
    lathe_status status =
        cuda_check(d, "cuGraphGetEdges", d->driver.graph_edges(g->graph, NULL, NULL, NULL, &count));
    if (status != LATHE_OK || count == 0)
        return status;
    cu_graph_node *ends = calloc(2 * count, sizeof *ends);
    cu_graph_edge *edges = calloc(count, sizeof *edges);
    status = ends && edges ? fill_edges(d, g, nodes, count, ends, edges)
                           : cuda_refuse(d, LATHE_NO_MEMORY, "no memory for a graph's edges");
    free(ends);
    free(edges);
    return status;
}

lathe_status cuda_graph_nodes(lathe_device *base, const lathe_graph *g, lathe_graph_node *nodes,
                              int room, int *count) {
    cuda_device *d = (cuda_device *)base;
    size_t total = 0;
    lathe_status status = cuda_enter(d);
    if (status == LATHE_OK)
        status = cuda_check(d, "cuGraphGetNodes", d->driver.graph_nodes(g->graph, NULL, &total));
    if (status != LATHE_OK)
        return status;
    *count = g->collective ? g->count : (int)total;
    if (g->collective ? total < (size_t)g->count : total != (size_t)g->count)
        return cuda_refuse(d, LATHE_INVALID, "the graph has %zu nodes for %d launches", total,
                           g->count);
    if (g->count > room)
        return LATHE_OK; /* the caller sees from *count that they did not fit */
    for (int i = 0; i < g->count && status == LATHE_OK; ++i)
        status = read_node(d, g, i, &nodes[i]);
    return status == LATHE_OK ? read_all_edges(d, g, nodes) : status;
}
