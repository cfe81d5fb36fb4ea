/* SPDX-License-Identifier: Apache-2.0
 * A CUDA driver without a GPU: device memory is host memory, a launch is recorded, a capture
 * becomes a graph of nodes and edges as the driver would make them. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "fake.h"

#define UNKNOWN 999
#define INVALID 1
#define NODES 2048
#define WAITS 8

static fake_cuda state = {
    .version = 13000, .devices = 1, .major = 9, .memory_free = (size_t)1 << 34};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

fake_cuda *fake_cuda_state(void) {
    return &state;
}

/* Counts the call; whether this one is to fail. */
static cu_result enter(const char *name) {
    pthread_mutex_lock(&lock);
    const int fails = ++state.calls == state.fail_at;
    if (fails)
        snprintf(state.failed, sizeof state.failed, "%s", name);
    pthread_mutex_unlock(&lock);
    return fails ? state.fail_result ? state.fail_result : UNKNOWN : CU_OK;
}

#define ENTER()                                                                                    \
    do {                                                                                           \
        const cu_result entered = enter(__func__);                                                 \
        if (entered != CU_OK)                                                                      \
            return entered;                                                                        \
    } while (0)

struct cu_module_handle {
    char *image;
};
struct cu_function_handle {
    struct cu_function_handle *next;
    cu_module module;
    char name[64];
};
struct cu_graph_node_handle {
    int number;
    cu_kernel_params params;
    int waits[WAITS];
    int programmatic[WAITS];
    int wait_count;
};
struct cu_graph_handle {
    int *holder, holds;
    int count;
    struct cu_graph_node_handle nodes[NODES];
};
struct cu_graph_exec_handle {
    int *holder, holds;
    double microseconds; /* that a replay takes */
};
struct cu_stream_handle {
    int number;
    int busy; /* something was put on it that does not end */
    cu_graph capture;
    int waits[WAITS], wait_count;
    const cu_graph_node *shown;
    cu_graph_node shown_nodes[WAITS];
    cu_graph_edge shown_edges[WAITS];
};
struct cu_event_handle {
    double microseconds; /* of the fake's clock at the record */
    cu_graph capture;
    int waits[WAITS], wait_count;
};
struct cu_context_handle {
    int unused;
};

static struct cu_context_handle context;
static struct cu_function_handle *functions;
static int streams;

static void *make(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (memory)
        __atomic_fetch_add(&state.live, 1, __ATOMIC_SEQ_CST);
    return memory;
}

static void drop(void *memory) {
    if (memory)
        __atomic_fetch_sub(&state.live, 1, __ATOMIC_SEQ_CST);
    free(memory);
}

static int is_stuck(cu_stream stream) {
    return __atomic_load_n(&state.never_ready, __ATOMIC_SEQ_CST) && stream->busy;
}

/* Pageable memory is copied, and a stream synchronised, after all that is on the stream. */
static void wait_for(cu_stream stream) {
    if (!is_stuck(stream))
        return;
    __atomic_fetch_add(&state.blocked, 1, __ATOMIC_SEQ_CST);
    for (int ms = 0; ms < 5000 && is_stuck(stream); ++ms)
        usleep(1000);
}

static void hold(int *holder, int by) {
    if (holder)
        __atomic_fetch_add(holder, by, __ATOMIC_SEQ_CST);
}

void fake_cuda_hold(cu_stream stream, int *count) {
    if (!stream->capture)
        return;
    stream->capture->holder = count;
    stream->capture->holds++;
    hold(count, 1);
}

/* The prototypes of what is exported, from the runtime's own table. */
#define PROTOTYPE(member, symbol, parameters) cu_result symbol parameters;
LATHE_DRIVER_CALLS(PROTOTYPE)

cu_result cuInit(unsigned int flags) {
    ENTER();
    return flags ? INVALID : state.devices ? CU_OK : 100;
}
cu_result cuDriverGetVersion(int *version) {
    ENTER();
    *version = state.version;
    return CU_OK;
}
cu_result cuGetErrorName(cu_result result, const char **name) {
    *name = result == CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == 100            ? "CUDA_ERROR_NO_DEVICE"
                                       : "CUDA_ERROR_UNKNOWN";
    return CU_OK;
}
cu_result cuGetErrorString(cu_result result, const char **text) {
    *text = result == CU_OUT_OF_MEMORY ? "out of memory"
            : result == 100            ? "no CUDA-capable device is detected"
                                       : "unknown error";
    return CU_OK;
}
cu_result cuDeviceGetCount(int *count) {
    ENTER();
    *count = state.devices;
    return CU_OK;
}
cu_result cuDeviceGet(cu_device *device, int ordinal) {
    ENTER();
    *device = ordinal;
    return CU_OK;
}
cu_result cuDeviceGetName(char *name, int size, cu_device device) {
    ENTER();
    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return CU_OK;
}
cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device device) {
    ENTER();
    (void)device;
    *value = attribute == CU_ATTRIBUTE_MAJOR   ? state.major
             : attribute == CU_ATTRIBUTE_MINOR ? state.minor
                                               : 132;
    return CU_OK;
}
cu_result cuDeviceCanAccessPeer(int *possible, cu_device device, cu_device peer) {
    ENTER();
    *possible = device != peer && !state.no_sharing;
    return CU_OK;
}

cu_result cuCtxEnablePeerAccess(cu_context peer, unsigned int flags) {
    ENTER();
    return peer && flags == 0 ? CU_OK : INVALID;
}
cu_result cuDevicePrimaryCtxRetain(cu_context *out, cu_device device) {
    ENTER();
    (void)device;
    __atomic_fetch_add(&state.live, 1, __ATOMIC_SEQ_CST);
    *out = &context;
    return CU_OK;
}
cu_result cuDevicePrimaryCtxRelease_v2(cu_device device) {
    (void)device;
    __atomic_fetch_sub(&state.live, 1, __ATOMIC_SEQ_CST);
    return CU_OK;
}
cu_result cuCtxSetCurrent(cu_context c) {
    (void)c; /* not counted: every call makes it, and none depends on it here */
    return CU_OK;
}
cu_result cuMemGetInfo_v2(size_t *bytes_free, size_t *total) {
    ENTER();
    *bytes_free = state.memory_free;
    *total = state.memory_free;
    return CU_OK;
}
/* As the driver does it: small allocations are cut out of something larger, large ones stand alone,
 * and only those are shared here, as files that other processes map. */
#define ALONE ((size_t)2 << 20)
#define SHARED 64

static struct shared {
    char *memory;
    size_t bytes;
    int file;
    int foreign;
} shared[SHARED];

static struct shared *find_shared(cu_address address) {
    for (int i = 0; i < SHARED; ++i)
        if (shared[i].memory && address - (cu_address)(uintptr_t)shared[i].memory < shared[i].bytes)
            return &shared[i];
    return NULL;
}

static char *map_shared(int file, size_t bytes, int foreign) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pthread_mutex_lock(&lock);
    for (int i = 0; memory != MAP_FAILED && i < SHARED; ++i) {
        if (shared[i].memory)
            continue;
        shared[i] = (struct shared){memory, bytes, file, foreign};
        __atomic_fetch_add(&state.live, 1, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&lock);
        return memory;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void unmap_shared(struct shared *s) {
    pthread_mutex_lock(&lock);
    munmap(s->memory, s->bytes);
    close(s->file);
    *s = (struct shared){0};
    __atomic_fetch_sub(&state.live, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&lock);
}

static void *make_alone(size_t bytes) {
    const int file = memfd_create("fake", MFD_CLOEXEC);
    return file >= 0 && ftruncate(file, (off_t)bytes) == 0 ? map_shared(file, bytes, 0) : NULL;
}

cu_result cuMemAlloc_v2(cu_address *address, size_t bytes) {
    ENTER();
    void *memory = !bytes ? NULL : bytes >= ALONE ? make_alone(bytes) : make(bytes);
    state.allocations++;
    *address = (cu_address)(uintptr_t)memory;
    return memory ? CU_OK : bytes ? CU_OUT_OF_MEMORY : INVALID;
}
cu_result cuMemFree_v2(cu_address address) {
    struct shared *s = find_shared(address);
    if (s)
        unmap_shared(s);
    else
        drop((void *)(uintptr_t)address);
    return CU_OK;
}
cu_result cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags) {
    ENTER();
    *memory = make(bytes);
    return flags ? INVALID : *memory ? CU_OK : CU_OUT_OF_MEMORY;
}
cu_result cuMemFreeHost(void *memory) {
    drop(memory);
    return CU_OK;
}
cu_result cuMemGetAddressRange_v2(cu_address *base, size_t *bytes, cu_address address) {
    ENTER();
    const struct shared *s = find_shared(address);
    *base = s ? (cu_address)(uintptr_t)s->memory : address;
    *bytes = s ? s->bytes : 0;
    return CU_OK;
}
cu_result cuIpcGetMemHandle(cu_shared_handle *handle, cu_address address) {
    ENTER();
    const struct shared *s = find_shared(address);
    if (!s || s->foreign || state.no_sharing)
        return INVALID;
    memset(handle, 0, sizeof *handle);
    snprintf(handle->bytes, sizeof handle->bytes, "%d %d %zu", getpid(), s->file, s->bytes);
    return CU_OK;
}
cu_result cuIpcOpenMemHandle_v2(cu_address *address, cu_shared_handle handle, unsigned int flags) {
    ENTER();
    char path[64];
    int process = 0, number = 0;
    size_t bytes = 0;
    if (sscanf(handle.bytes, "%d %d %zu", &process, &number, &bytes) != 3 || process == getpid() ||
        flags != CU_SHARED_OPENS_PEER)
        return INVALID; /* a process cannot open its own */
    snprintf(path, sizeof path, "/proc/%d/fd/%d", process, number);
    FILE *file = fopen(path, "r+");
    void *memory = file ? map_shared(dup(fileno(file)), bytes, 1) : NULL;
    if (file)
        fclose(file);
    *address = (cu_address)(uintptr_t)memory;
    return memory ? CU_OK : INVALID;
}
cu_result cuIpcCloseMemHandle(cu_address address) {
    struct shared *s = find_shared(address);
    if (!s || !s->foreign || s->memory != (char *)(uintptr_t)address)
        return INVALID;
    unmap_shared(s);
    return CU_OK;
}
cu_result cuMemcpyHtoDAsync_v2(cu_address to, const void *from, size_t bytes, cu_stream stream) {
    ENTER();
    wait_for(stream);
    const struct shared *s = find_shared(to);
    if (!state.lose_writes || !s || !s->foreign)
        memcpy((void *)(uintptr_t)to, from, bytes);
    return stream->capture ? INVALID : CU_OK;
}
cu_result cuMemcpyDtoHAsync_v2(void *to, cu_address from, size_t bytes, cu_stream stream) {
    ENTER();
    wait_for(stream);
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return stream->capture ? INVALID : CU_OK;
}
cu_result cuMemsetD8Async(cu_address to, unsigned char byte, size_t bytes, cu_stream stream) {
    ENTER();
    memset((void *)(uintptr_t)to, byte, bytes);
    return stream->capture ? INVALID : CU_OK;
}

cu_result cuModuleLoadData(cu_module *module, const void *image) {
    ENTER();
    *module = make(sizeof **module);
    state.modules_loaded++;
    return *module && image ? CU_OK : CU_OUT_OF_MEMORY;
}
cu_result cuModuleUnload(cu_module module) {
    pthread_mutex_lock(&lock);
    for (struct cu_function_handle **f = &functions; *f;) {
        struct cu_function_handle *gone = *f;
        if (gone->module != module) {
            f = &gone->next;
            continue;
        }
        *f = gone->next;
        free(gone);
    }
    pthread_mutex_unlock(&lock);
    drop(module);
    return CU_OK;
}
cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name) {
    ENTER();
    *function = calloc(1, sizeof **function);
    (*function)->module = module;
    snprintf((*function)->name, sizeof(*function)->name, "%s", name);
    pthread_mutex_lock(&lock);
    (*function)->next = functions;
    functions = *function;
    pthread_mutex_unlock(&lock);
    return CU_OK;
}
cu_result cuFuncLoad(cu_function function) {
    ENTER();
    return function ? CU_OK : INVALID;
}
cu_result cuFuncSetAttribute(cu_function function, int attribute, int value) {
    ENTER();
    (void)function;
    return attribute == CU_FUNCTION_DYNAMIC_SHARED && value <= 232448 ? CU_OK : INVALID;
}

static void add_wait(int *waits, int *count, int node) {
    for (int i = 0; i < *count; ++i)
        if (waits[i] == node)
            return;
    waits[(*count)++] = node;
}

static void record_node(cu_stream stream, const cu_launch_config *c, cu_function f, int early) {
    cu_graph g = stream->capture;
    struct cu_graph_node_handle *n = &g->nodes[g->count];
    *n = (struct cu_graph_node_handle){.number = g->count, .wait_count = stream->wait_count};
    n->params.function = f;
    memcpy(n->params.grid, c->grid, sizeof c->grid);
    memcpy(n->params.block, c->block, sizeof c->block);
    n->params.shared_bytes = c->shared_bytes;
    memcpy(n->waits, stream->waits, sizeof n->waits);
    n->programmatic[0] = early && n->wait_count == 1;
    if (state.extra_edge && g->count > 1)
        add_wait(n->waits, &n->wait_count, 0);
    stream->waits[0] = g->count++;
    stream->wait_count = 1;
}

cu_result cuLaunchKernelEx(const cu_launch_config *c, cu_function f, void **parameters,
                           void **extra) {
    ENTER();
    int cooperative = 0, early = 0;
    for (unsigned int i = 0; i < c->attribute_count; ++i) {
        cooperative |=
            c->attributes[i].id == CU_LAUNCH_COOPERATIVE && c->attributes[i].value.number;
        early |= c->attributes[i].id == CU_LAUNCH_PROGRAMMATIC && c->attributes[i].value.number;
    }
    if (extra || !parameters || (cooperative && early))
        return INVALID;
    if (c->stream->capture) {
        record_node(c->stream, c, f, early);
        return CU_OK;
    }
    c->stream->busy |= state.never_ready;
    fake_launch *l = &state.launches[state.launch_count++ % FAKE_LAUNCHES];
    snprintf(l->name, sizeof l->name, "%s", f->name);
    memcpy(l->grid, c->grid, sizeof l->grid);
    l->block = c->block[0];
    l->shared_bytes = c->shared_bytes;
    l->cooperative = cooperative;
    l->early = early;
    l->stream = c->stream->number;
    return CU_OK;
}

cu_result cuStreamCreate(cu_stream *stream, unsigned int flags) {
    ENTER();
    *stream = make(sizeof **stream);
    (*stream)->number = streams++ % 2;
    return flags == CU_STREAM_OWN_ORDER ? CU_OK : INVALID;
}
cu_result cuStreamDestroy_v2(cu_stream stream) {
    drop(stream);
    return CU_OK;
}
cu_result cuStreamSynchronize(cu_stream stream) {
    ENTER();
    state.synchronizations++;
    wait_for(stream);
    return stream->capture ? INVALID : CU_OK;
}
cu_result cuStreamQuery(cu_stream stream) {
    ENTER();
    return stream->capture ? INVALID : is_stuck(stream) ? CU_NOT_READY : CU_OK;
}
cu_result cuEventCreate(cu_event *event, unsigned int flags) {
    ENTER();
    *event = make(sizeof **event);
    return flags == CU_EVENT_WITHOUT_TIME || flags == CU_EVENT_WITH_TIME ? CU_OK : INVALID;
}
cu_result cuEventDestroy_v2(cu_event event) {
    drop(event);
    return CU_OK;
}
cu_result cuEventSynchronize(cu_event event) {
    ENTER();
    return event->capture ? INVALID : CU_OK;
}
cu_result cuEventRecord(cu_event event, cu_stream stream) {
    ENTER();
    event->microseconds = state.microseconds;
    event->capture = stream->capture;
    event->wait_count = stream->wait_count;
    memcpy(event->waits, stream->waits, sizeof event->waits);
    return CU_OK;
}
cu_result cuEventElapsedTime(float *milliseconds, cu_event start, cu_event end) {
    ENTER();
    *milliseconds = (float)((end->microseconds - start->microseconds) * 1e-3);
    return CU_OK;
}
static cu_stream side; /* the stream that joined a capture, to be let go at its end */

/* A stream that waits for an event of a capture joins the capture. */
cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned int flags) {
    ENTER();
    if (event->capture && !stream->capture) {
        stream->capture = event->capture;
        stream->wait_count = 0;
        side = stream;
    }
    for (int i = 0; event->capture && i < event->wait_count; ++i)
        add_wait(stream->waits, &stream->wait_count, event->waits[i]);
    return flags ? INVALID : CU_OK;
}

cu_result cuStreamBeginCapture_v2(cu_stream stream, int mode) {
    ENTER();
    if (stream->capture || mode != CU_CAPTURE_THREAD)
        return INVALID;
    stream->capture = make(sizeof *stream->capture);
    stream->wait_count = 0;
    return CU_OK;
}
cu_result cuStreamGetCaptureInfo_v3(cu_stream stream, int *status, uint64_t *id, cu_graph *graph,
                                    const cu_graph_node **waits, const cu_graph_edge **edges,
                                    size_t *count) {
    ENTER();
    (void)graph;
    *status = stream->capture ? CU_CAPTURE_ACTIVE : 0;
    *id = 1;
    for (int i = 0; stream->capture && i < stream->wait_count; ++i)
        stream->shown_nodes[i] = &stream->capture->nodes[stream->waits[i]];
    *waits = stream->shown_nodes;
    if (edges)
        *edges = stream->shown_edges;
    *count = (size_t)stream->wait_count;
    return CU_OK;
}
cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph) {
    const cu_result entered = enter(__func__);
    *graph = stream->capture;
    stream->capture = NULL;
    stream->wait_count = 0;
    if (side) {
        side->capture = NULL;
        side->wait_count = 0;
        side = NULL;
    }
    if (entered != CU_OK) {
        drop(*graph);
        *graph = NULL;
    }
    return entered;
}
static double takes(const struct cu_graph_node_handle *n) {
    return state.dear_threads > 0 && (int)n->params.block[0] > state.dear_threads ? 2 : 1;
}

cu_result cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph,
                                      unsigned long long flags) {
    ENTER();
    *exec = make(sizeof **exec);
    for (int i = 0; i < graph->count; ++i)
        (*exec)->microseconds += takes(&graph->nodes[i]);
    (*exec)->holder = graph->holder;
    (*exec)->holds = graph->holds;
    hold(graph->holder, graph->holds);
    return flags ? INVALID : CU_OK;
}
cu_result cuGraphUpload(cu_graph_exec exec, cu_stream stream) {
    ENTER();
    return exec && stream ? CU_OK : INVALID;
}
cu_result cuGraphLaunch(cu_graph_exec exec, cu_stream stream) {
    ENTER();
    state.graph_launches++;
    stream->busy |= state.never_ready;
    state.microseconds += exec->microseconds;
    return exec && !stream->capture ? CU_OK : INVALID;
}
cu_result cuGraphExecDestroy(cu_graph_exec exec) {
    hold(exec->holder, -exec->holds);
    drop(exec);
    return CU_OK;
}
cu_result cuGraphDestroy(cu_graph graph) {
    hold(graph->holder, -graph->holds);
    drop(graph);
    return CU_OK;
}
cu_result cuGraphGetNodes(cu_graph graph, cu_graph_node *nodes, size_t *count) {
    ENTER();
    for (int i = 0; nodes && i < graph->count; ++i)
        nodes[i] = &graph->nodes[graph->count - 1 - i];
    *count = (size_t)graph->count;
    return CU_OK;
}
cu_result cuGraphGetEdges_v2(cu_graph graph, cu_graph_node *from, cu_graph_node *to,
                             cu_graph_edge *edges, size_t *count) {
    ENTER();
    size_t n = 0;
    for (int i = graph->count - 1; i >= 0; --i) {
        for (int w = graph->nodes[i].wait_count - 1; w >= 0; --w, ++n) {
            if (!from)
                continue;
            from[n] = &graph->nodes[graph->nodes[i].waits[w]];
            to[n] = &graph->nodes[i];
            edges[n] = (cu_graph_edge){.type = graph->nodes[i].programmatic[w] ? 1 : 0};
        }
    }
    *count = n;
    return CU_OK;
}
cu_result cuGraphNodeGetType(cu_graph_node node, int *type) {
    ENTER();
    (void)node;
    *type = CU_NODE_KERNEL;
    return CU_OK;
}
cu_result cuGraphKernelNodeGetParams_v2(cu_graph_node node, cu_kernel_params *params) {
    ENTER();
    *params = node->params;
    return CU_OK;
}
