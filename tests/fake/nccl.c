/* SPDX-License-Identifier: Apache-2.0
 * An NCCL whose ranks are threads of one process and whose GPU memory is host memory. A call is in
 * progress until every rank of the communicator has made it; the last one moves the data. In a
 * capture a collective becomes two kernels, as a library's own. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"
#include "nccl.h"

#define RANKS 16
#define INVALID 4

typedef struct {
    const void *from;
    void *to;
    size_t count;
    int type, reduce;
} call;

/* What the ranks of one id share. */
typedef struct clique {
    struct clique *next;
    nccl_id id;
    int world, joined, aborted, members;
    int made[RANKS]; /* calls of each rank */
    int done;        /* calls that all have made */
    call calls[RANKS];
} clique;

struct nccl_comm_handle {
    clique *clique;
    int rank;
    int held; /* by graphs that captured its collectives */
};

static fake_nccl state = {.version = 22809, .inner = 2};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static clique *cliques;

fake_nccl *fake_nccl_state(void) {
    return &state;
}

#define PROTOTYPE(member, symbol, parameters) nccl_result symbol parameters;
LATHE_NCCL_CALLS(PROTOTYPE)
const char *ncclGetErrorString(nccl_result result);
const char *ncclGetLastError(nccl_comm comm);

const char *ncclGetErrorString(nccl_result result) {
    return result == NCCL_REMOTE ? "remote process exited or there was a network error"
                                 : "unhandled error";
}

const char *ncclGetLastError(nccl_comm comm) {
    return comm ? "fake detail" : "";
}

nccl_result ncclGetVersion(int *version) {
    const char *env = getenv("FAKE_NCCL_VERSION");
    *version = env ? atoi(env) : state.version;
    return NCCL_OK;
}

nccl_result ncclGetUniqueId(nccl_id *id) {
    static int number;
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "fake id %d", ++number);
    return NCCL_OK;
}

static clique *find_clique(const nccl_id *id, int world) {
    for (clique *c = cliques; c; c = c->next)
        if (memcmp(&c->id, id, sizeof *id) == 0)
            return c;
    clique *c = calloc(1, sizeof *c);
    c->id = *id;
    c->world = world;
    c->next = cliques;
    cliques = c;
    return c;
}

nccl_result ncclCommInitRankConfig(nccl_comm *comm, int world, nccl_id id, int rank,
                                   nccl_config *config) {
    if (config->magic != NCCL_CONFIG_MAGIC || config->size != sizeof *config)
        return INVALID;
    pthread_mutex_lock(&lock);
    state.config_blocking = config->blocking;
    *comm = calloc(1, sizeof **comm);
    (*comm)->clique = find_clique(&id, world);
    (*comm)->rank = rank;
    (*comm)->clique->joined++;
    (*comm)->clique->members++;
    state.live++;
    pthread_mutex_unlock(&lock);
    return NCCL_IN_PROGRESS;
}

static void forget(nccl_comm comm) {
    clique *c = comm->clique;
    state.live--;
    if (--c->members == 0) {
        for (clique **at = &cliques; *at; at = &(*at)->next)
            if (*at == c) {
                *at = c->next;
                break;
            }
        free(c);
    }
    free(comm);
}

nccl_result ncclCommFinalize(nccl_comm comm) {
    (void)comm;
    return NCCL_OK;
}

static void *find_in_driver(const char *symbol) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver ? dlsym(driver, symbol) : NULL;
}

/* The kernels of a communicator that is aborted end. */
static void end_kernels(void) {
    fake_cuda *(*gpu)(void) = NULL;
    void *address = find_in_driver("fake_cuda_state");
    memcpy(&gpu, &address, sizeof gpu);
    if (gpu && gpu()->never_ready == 2)
        __atomic_store_n(&gpu()->never_ready, 0, __ATOMIC_SEQ_CST);
}

/* NCCL itself waits for ever; a test is to fail instead. */
static void wait_for_graphs(nccl_comm comm) {
    int ms = 0;
    while (__atomic_load_n(&comm->held, __ATOMIC_SEQ_CST) > 0 && ms++ < 10000)
        usleep(1000);
    pthread_mutex_lock(&lock);
    state.stuck_aborts += ms > 10000;
    pthread_mutex_unlock(&lock);
}

nccl_result ncclCommDestroy(nccl_comm comm) {
    wait_for_graphs(comm);
    pthread_mutex_lock(&lock);
    forget(comm);
    pthread_mutex_unlock(&lock);
    return NCCL_OK;
}

nccl_result ncclCommAbort(nccl_comm comm) {
    pthread_mutex_lock(&lock);
    state.aborts++;
    comm->clique->aborted = 1;
    pthread_mutex_unlock(&lock);
    end_kernels();
    wait_for_graphs(comm);
    pthread_mutex_lock(&lock);
    forget(comm);
    pthread_mutex_unlock(&lock);
    return NCCL_OK;
}

nccl_result ncclCommGetAsyncError(nccl_comm comm, nccl_result *result) {
    pthread_mutex_lock(&lock);
    const clique *c = comm->clique;
    *result = state.state                     ? state.state
              : c->aborted                    ? NCCL_REMOTE
              : c->joined < c->world          ? NCCL_IN_PROGRESS
              : c->made[comm->rank] > c->done ? NCCL_IN_PROGRESS
                                              : NCCL_OK;
    pthread_mutex_unlock(&lock);
    return NCCL_OK;
}

static float get(const call *c, size_t i) {
    uint32_t word;
    float value;
    if (c->type == NCCL_FLOAT32)
        return ((const float *)c->from)[i];
    word = (uint32_t)((const uint16_t *)c->from)[i] << 16;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* bf16 is cut, not rounded: the tests add what it holds. */
static void put(const call *c, size_t i, float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    if (c->type == NCCL_FLOAT32)
        ((float *)c->to)[i] = value;
    else
        ((uint16_t *)c->to)[i] = (uint16_t)(word >> 16);
}

static void move(const clique *c, int rank) {
    const call *mine = &c->calls[rank];
    for (int r = 0; r < c->world && !mine->reduce; ++r)
        memcpy((char *)mine->to + (size_t)r * mine->count, c->calls[r].from, mine->count);
    for (size_t i = 0; mine->reduce && i < mine->count; ++i) {
        float sum = 0;
        for (int r = 0; r < c->world; ++r)
            sum += get(&c->calls[r], i);
        put(mine, i, sum);
    }
}

/* In a capture the work is a library's own kernels, and the graph holds the communicator. */
static void launch_inner(nccl_comm comm, cu_stream stream) {
    static char function[256];
    cu_result (*launch)(const cu_launch_config *, cu_function, void **, void **) = NULL;
    void (*hold)(cu_stream, int *) = NULL;
    void *address = find_in_driver("cuLaunchKernelEx");
    void *none[1] = {NULL};
    memcpy(&launch, &address, sizeof launch);
    address = find_in_driver("fake_cuda_hold");
    memcpy(&hold, &address, sizeof hold);
    if (hold)
        hold(stream, &comm->held);
    const cu_launch_config config = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream};
    for (int i = 0; launch && i < state.inner; ++i)
        (void)launch(&config, (cu_function)(void *)function, none, NULL);
}

static nccl_result collect(nccl_comm comm, call mine, cu_stream stream) {
    if (state.fail_calls)
        return state.fail_calls;
    pthread_mutex_lock(&lock);
    clique *c = comm->clique;
    state.collectives++;
    c->calls[comm->rank] = mine;
    c->made[comm->rank]++;
    int all = 1;
    for (int r = 0; r < c->world; ++r)
        all = all && c->made[r] > c->done;
    for (int r = 0; all && r < c->world; ++r)
        move(c, r);
    c->done += all;
    launch_inner(comm, stream);
    pthread_mutex_unlock(&lock);
    return NCCL_IN_PROGRESS;
}

nccl_result ncclAllReduce(const void *from, void *to, size_t count, int type, int operation,
                          nccl_comm comm, cu_stream stream) {
    if ((type != NCCL_FLOAT32 && type != NCCL_BFLOAT16) || operation != NCCL_SUM || from == to)
        return INVALID; /* all that the fake can add */
    return collect(comm, (call){from, to, count, type, 1}, stream);
}

nccl_result ncclAllGather(const void *from, void *to, size_t count, int type, nccl_comm comm,
                          cu_stream stream) {
    if (type != NCCL_BYTE)
        return INVALID;
    return collect(comm, (call){from, to, count, type, 0}, stream);
}
