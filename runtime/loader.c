/* SPDX-License-Identifier: Apache-2.0
 * Pieces are numbered. Slot n % SLOTS holds piece n: a worker fills it once the copy of piece n -
 * SLOTS has ended, the calling thread enqueues its copy once it is filled. The device is used by
 * the calling thread only. Few bytes are not worth a thread. */
#include "loader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)8 << 20)
#define SLOTS 16
#define WORKERS_MAX 8
#define BYTES_PER_WORKER ((uint64_t)4 << 20)

typedef struct {
    int item;
    size_t first, bytes;
} piece;

typedef struct {
    const lathe_loader *l;
    piece *pieces;
    int64_t count;
    char *staging;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t taken;    /* pieces before it belong to a worker */
    int64_t released; /* slots of the pieces before it may be filled anew */
    bool filled[SLOTS];
    lathe_status status; /* of the first that failed */
} loading;

static int64_t count_pieces(const lathe_loader *l) {
    int64_t n = 0;
    for (int i = 0; i < l->count; ++i)
        n += (int64_t)((l->items[i].bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    return n;
}

static uint64_t count_bytes(const lathe_loader *l) {
    uint64_t n = 0;
    for (int i = 0; i < l->count; ++i)
        n += l->items[i].bytes;
    return n;
}

static void cut(loading *g) {
    int64_t n = 0;
    for (int i = 0; i < g->l->count; ++i)
        for (size_t first = 0; first < g->l->items[i].bytes; first += PIECE_BYTES) {
            const size_t left = g->l->items[i].bytes - first;
            g->pieces[n++] = (piece){i, first, left < PIECE_BYTES ? left : PIECE_BYTES};
        }
}

static char *slot_of(const loading *g, int64_t n) {
    return g->staging + (size_t)(n % SLOTS) * PIECE_BYTES;
}

static lathe_status fill(const loading *g, int64_t n, char *message, size_t size) {
    const piece *p = &g->pieces[n];
    const lathe_loader_item *item = &g->l->items[p->item];
    return lathe_weights_fill_range(g->l->weights, item->weight, item->layer, p->first, p->bytes,
                                    slot_of(g, n), message, size);
}

/* Called with the lock held. The first failure stays. */
static void give_up(loading *g, lathe_status status, const char *message) {
    if (g->status == LATHE_OK) {
        g->status = status;
        snprintf(g->l->message, g->l->size, "%s", message);
    }
    pthread_cond_broadcast(&g->changed);
}

static void *work(void *context) {
    loading *g = context;
    char message[1024] = "";
    pthread_mutex_lock(&g->lock);
    while (g->status == LATHE_OK && g->taken < g->count) {
        const int64_t n = g->taken++;
        while (g->status == LATHE_OK && n >= g->released + SLOTS)
            pthread_cond_wait(&g->changed, &g->lock);
        if (g->status != LATHE_OK)
            break;
        pthread_mutex_unlock(&g->lock);
        const lathe_status status = fill(g, n, message, sizeof message);
        pthread_mutex_lock(&g->lock);
        if (status != LATHE_OK)
            give_up(g, status, message);
        g->filled[n % SLOTS] = true;
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* Whether piece n is in its slot; false once something failed. */
static bool wait_filled(loading *g, int64_t n) {
    pthread_mutex_lock(&g->lock);
    while (g->status == LATHE_OK && !g->filled[n % SLOTS])
        pthread_cond_wait(&g->changed, &g->lock);
    const bool ok = g->status == LATHE_OK;
    g->filled[n % SLOTS] = false;
    pthread_mutex_unlock(&g->lock);
    return ok;
}

/* The copies of pieces before `n` have ended. */
static void release(loading *g, int64_t n, lathe_status status) {
    pthread_mutex_lock(&g->lock);
    g->released = n;
    if (status != LATHE_OK)
        give_up(g, status, g->l->device->message);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static lathe_status enqueue(const loading *g, int64_t n) {
    const piece *p = &g->pieces[n];
    lathe_device *d = g->l->device;
    const lathe_loader_item *item = &g->l->items[p->item];
    const lathe_status status = d->ops->staging_copy(
        d, (int)(n % SLOTS), (char *)item->memory + p->first, slot_of(g, n), p->bytes);
    if (status == LATHE_OK && g->l->done && p->first + p->bytes == item->bytes)
        g->l->done(g->l->context, p->item);
    return status;
}

/* Without workers the calling thread fills the slot itself. */
static bool fill_alone(loading *g, int64_t n) {
    char message[1024] = "";
    const lathe_status status = fill(g, n, message, sizeof message);
    if (status != LATHE_OK)
        give_up(g, status, message);
    return status == LATHE_OK;
}

/* Half of the slots are on their way, half are being filled. */
static void copy_all(loading *g, bool alone) {
    lathe_device *d = g->l->device;
    lathe_status status = LATHE_OK;
    for (int64_t n = 0; status == LATHE_OK && n < g->count + SLOTS / 2; ++n) {
        const int64_t old = n - SLOTS / 2;
        if (n < g->count && !(alone ? fill_alone(g, n) : wait_filled(g, n)))
            return;
        if (n < g->count)
            status = enqueue(g, n);
        if (status == LATHE_OK && old >= 0 && old < g->count)
            status = d->ops->staging_wait(d, (int)(old % SLOTS));
        release(g, old >= 0 ? old + 1 : 0, status);
    }
}

static int count_workers(const lathe_loader *l) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t n = count_bytes(l) / BYTES_PER_WORKER;
    if (n > WORKERS_MAX)
        n = WORKERS_MAX;
    return (int)n < processors ? (int)n : (int)processors;
}

static void run(loading *g) {
    pthread_t workers[WORKERS_MAX];
    const int wanted = count_workers(g->l);
    int started = 0;
    while (started < wanted && pthread_create(&workers[started], NULL, work, g) == 0)
        ++started;
    copy_all(g, started == 0);
    for (int i = 0; i < started; ++i)
        pthread_join(workers[i], NULL);
}

lathe_status lathe_loader_run(const lathe_loader *l) {
    lathe_device *d = l->device;
    loading g = {.l = l, .count = count_pieces(l), .status = LATHE_OK};
    void *staging = NULL;
    g.pieces = calloc((size_t)g.count + 1, sizeof *g.pieces);
    if (!g.pieces) {
        snprintf(l->message, l->size, "no memory to load weights");
        return LATHE_NO_MEMORY;
    }
    cut(&g);
    lathe_status status = d->ops->staging_open(d, SLOTS, PIECE_BYTES, &staging);
    if (status != LATHE_OK)
        snprintf(l->message, l->size, "%s", d->message);
    if (status == LATHE_OK) {
        g.staging = staging;
        pthread_mutex_init(&g.lock, NULL);
        pthread_cond_init(&g.changed, NULL);
        run(&g);
        status = g.status;
        pthread_cond_destroy(&g.changed);
        pthread_mutex_destroy(&g.lock);
    }
    d->ops->staging_close(d);
    free(g.pieces);
    return status;
}
