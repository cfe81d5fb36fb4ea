/* SPDX-License-Identifier: Apache-2.0
 * What lanes of a warp and threads of a block do together. The last to arrive does the work. */
#include "host_internal.h"

#include <string.h>

static const char *const names[] = {
    "", "warp_sync", "warp_shuffle", "warp_shuffle_xor", "warp_ballot", "mma_bf16", "load_transposed"};

static void shuffle(host_warp *w) {
    for (uint32_t i = 0; i < WARP; i++) {
        host_thread *t = w->lane[i];
        const uint32_t from = w->kind == WARP_SHUFFLE ? t->lane & 31u : (i ^ t->lane) & 31u;
        t->result = w->lane[from]->value;
    }
}

static void ballot(host_warp *w) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < WARP; i++)
        bits |= w->lane[i]->value << i;
    for (uint32_t i = 0; i < WARP; i++)
        w->lane[i]->result = bits;
}

/* Hot, and reads only what its own arrays and the lanes' fragments hold. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined"), optimize("O3")))

UNCHECKED static inline float bf16_of(uint32_t pair, uint32_t half) {
    const uint32_t bits = half ? pair & 0xffff0000u : pair << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Operands in the PTX layout: lane = 4 group + in. */
UNCHECKED static void gather(const host_warp *w, float a[16][16], float b[16][8]) {
    for (uint32_t i = 0; i < WARP; i++) {
        const host_thread *t = w->lane[i];
        const uint32_t group = i / 4, in = i % 4;
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t k = 2 * in + half;
            a[group][k] = bf16_of(t->a[0], half);
            a[group + 8][k] = bf16_of(t->a[1], half);
            a[group][k + 8] = bf16_of(t->a[2], half);
            a[group + 8][k + 8] = bf16_of(t->a[3], half);
            b[k][group] = bf16_of(t->b[0], half);
            b[k + 8][group] = bf16_of(t->b[1], half);
        }
    }
}

UNCHECKED static void multiply(float a[16][16], float b[16][8], float d[16][8]) {
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++)
                d[i][j] += a[i][k] * b[k][j];
}

static void mma(host_warp *w) {
    float a[16][16], b[16][8], d[16][8] = {{0}};
    gather(w, a, b);
    multiply(a, b, d);
    for (uint32_t i = 0; i < WARP; i++) {
        float *out = w->lane[i]->d;
        const uint32_t group = i / 4, column = 2 * (i % 4);
        out[0] += d[group][column];
        out[1] += d[group][column + 1];
        out[2] += d[group + 8][column];
        out[3] += d[group + 8][column + 1];
    }
}

/* Lane 8 m + r holds row r of matrix m. */
static void transpose(const host_warp *w) {
    for (uint32_t i = 0; i < WARP; i++)
        for (uint32_t m = 0; m < 4; m++) {
            const uint32_t row = 8 * m + i % 4 * 2, column = i / 4 * 2;
            memcpy(w->lane[i]->words + m, w->lane[row]->row + column, 2);
            memcpy((unsigned char *)(w->lane[i]->words + m) + 2, w->lane[row + 1]->row + column, 2);
        }
}

static void share_views(host_warp *w) {
    host_view all = {0, 0};
    for (uint32_t i = 0; i < WARP; i++)
        lathe_emu_learn(&all, &w->lane[i]->known);
    for (uint32_t i = 0; i < WARP; i++)
        w->lane[i]->known = all;
}

static void perform(lathe_emulator *e, host_warp *w) {
    if (w->kind == WARP_SHUFFLE || w->kind == WARP_SHUFFLE_XOR)
        shuffle(w);
    else if (w->kind == WARP_BALLOT)
        ballot(w);
    else if (w->kind == WARP_MMA)
        mma(w);
    else if (w->kind == WARP_MATRICES)
        transpose(w);
    else if (w->kind == WARP_SYNC)
        share_views(w);
    for (uint32_t i = 0; i < WARP; i++)
        if (w->lane[i]->wait == WAIT_WARP)
            lathe_emu_ready(e, w->lane[i]);
    w->kind = WARP_NONE;
    w->arrived = 0;
    lathe_emu_useful(e);
}

static void collective(host_thread *t, host_collective kind) {
    lathe_emulator *e = lathe_emu_active;
    host_warp *w = &t->block->warp[t->view.thread / WARP];
    if (t->view.threads - t->view.thread / WARP * WARP < WARP)
        lathe_emu_fault(t, "%s in a warp of fewer than 32 lanes", names[kind]);
    if (w->kind != WARP_NONE && w->kind != kind)
        lathe_emu_fault(t, "calls %s while %u lanes of its warp wait in %s", names[kind],
                        w->arrived, names[w->kind]);
    w->kind = kind;
    w->lane[t->view.thread % WARP] = t;
    if (t->stores)
        lathe_emu_chance(t);
    if (++w->arrived == WARP) {
        perform(e, w);
        if (lathe_emu_random(e) & 3u)
            return; /* goes on at once */
        lathe_emu_ready(e, t);
    } else {
        t->wait = WAIT_WARP;
        t->wait_id = kind;
        t->wait_object = w;
        t->wait_parity = 0;
    }
    lathe_emu_stop(t);
}

static void warp_sync(void) {
    host_thread *t = lathe_emu_current();
    lathe_emu_release(t);
    collective(t, WARP_SYNC);
}
static unsigned int warp_shuffle(unsigned int bits, unsigned int lane) {
    host_thread *t = lathe_emu_current();
    t->value = bits;
    t->lane = lane;
    collective(t, WARP_SHUFFLE);
    return t->result;
}
static unsigned int warp_shuffle_xor(unsigned int bits, unsigned int mask) {
    host_thread *t = lathe_emu_current();
    t->value = bits;
    t->lane = mask;
    collective(t, WARP_SHUFFLE_XOR);
    return t->result;
}
static unsigned int warp_ballot(int predicate) {
    host_thread *t = lathe_emu_current();
    t->value = predicate != 0;
    collective(t, WARP_BALLOT);
    return t->result;
}
static void mma_bf16(float *d, const unsigned int *a, const unsigned int *b) {
    host_thread *t = lathe_emu_current();
    t->d = d;
    t->a = a;
    t->b = b;
    collective(t, WARP_MMA);
}

static void load_transposed(unsigned int *d, const void *row) {
    host_thread *t = lathe_emu_current();
    const uintptr_t offset = (uintptr_t)row - (uintptr_t)t->view.shared;
    if (offset % 16 != 0 || offset > t->view.shared_bytes || t->view.shared_bytes - offset < 16)
        lathe_emu_fault(t, "load_transposed at shared byte %lld of %u: 16 bytes at a multiple of 16",
                        (long long)offset, t->view.shared_bytes);
    t->view.touched[offset / 16] = 1;
    t->row = row;
    t->words = d;
    collective(t, WARP_MATRICES);
}

static void open_barrier(lathe_emulator *e, host_barrier *barrier) {
    host_view all = {0, 0};
    for (const host_thread *t = barrier->waiters; t; t = t->next)
        lathe_emu_learn(&all, &t->known);
    while (barrier->waiters) {
        host_thread *t = barrier->waiters;
        barrier->waiters = t->next;
        t->known = all;
        lathe_emu_ready(e, t);
    }
    barrier->arrived = 0;
    lathe_emu_useful(e);
}

static void arrive(host_thread *t, host_barrier *barrier, uint32_t id, uint32_t threads) {
    barrier->threads = threads;
    lathe_emu_release(t);
    t->next = barrier->waiters;
    barrier->waiters = t;
    t->wait = WAIT_BARRIER;
    t->wait_id = id;
    t->wait_object = barrier;
    t->wait_parity = 0;
    if (++barrier->arrived == threads)
        open_barrier(lathe_emu_active, barrier);
    lathe_emu_stop(t);
}

static void block_sync(unsigned int id, unsigned int threads, int whole_block) {
    host_thread *t = lathe_emu_current();
    if (whole_block)
        threads = t->view.threads;
    else if (id == 0 || id >= BARRIERS || threads % WARP != 0 || threads == 0 ||
             threads > t->view.threads)
        lathe_emu_fault(t,
                        "block_sync_named(%u, %u): barriers are 1 to 15, threads a multiple of "
                        "32 of the block's %u",
                        id, threads, t->view.threads);
    host_barrier *barrier = &t->block->barrier[id];
    if (barrier->arrived && barrier->threads != threads)
        lathe_emu_fault(t, "barrier %u for %u threads, while others wait at it for %u", id, threads,
                        barrier->threads);
    arrive(t, barrier, id, threads);
}

/* Without a cluster a block is its own. */
static void cluster_sync(void) {
    host_thread *t = lathe_emu_current();
    host_cluster *c = t->block->cluster;
    if (c)
        arrive(t, &c->barrier, CLUSTER_BARRIER, c->threads);
    else
        block_sync(0, 0, 1);
}

void lathe_emu_fill_warp(lathe_emulator_table *table) {
    table->block_sync = block_sync;
    table->cluster_sync = cluster_sync;
    table->warp_sync = warp_sync;
    table->shuffle = warp_shuffle;
    table->shuffle_xor = warp_shuffle_xor;
    table->ballot = warp_ballot;
    table->load_transposed = load_transposed;
    table->mma_bf16 = mma_bf16;
}
