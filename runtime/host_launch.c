/* SPDX-License-Identifier: Apache-2.0
 * Grids and blocks: when a grid may start, which block comes next, what happens when one ends. All
 * of it runs in the main context, but for lathe_emu_block_exit(). */
#include "host_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(lathe_emulator *e, const lathe_emulator_grid *g, const char *what) {
    snprintf(e->message, sizeof e->message, "kernel %s: %s", g->name, what);
    e->failed = true;
    return false;
}

static bool out_of_memory(lathe_emulator *e) {
    snprintf(e->message, sizeof e->message, "no memory for the threads of a block");
    e->failed = true;
    return false;
}

static bool reserve_ready(lathe_emulator *e, uint32_t threads) {
    if (threads <= e->ready_room)
        return true;
    uint32_t room = e->ready_room ? e->ready_room : 1024;
    while (room < threads)
        room *= 2;
    host_thread **ready = realloc(e->ready, room * sizeof(*ready));
    if (!ready)
        return false;
    e->ready = ready;
    e->ready_room = room;
    return true;
}

static void leave_cluster(host_block *b) {
    host_cluster *c = b->cluster;
    bool any = false;
    for (uint32_t i = 0; c && i < c->blocks; i++) {
        if (c->block[i] == b)
            c->block[i] = NULL;
        any = any || c->block[i];
    }
    if (!any)
        free(c);
}

static void block_free(lathe_emulator *e, host_block *b) {
    if (b->previous)
        b->previous->next = b->next;
    else if (e->blocks == b)
        e->blocks = b->next;
    if (b->next)
        b->next->previous = b->previous;
    leave_cluster(b);
    free(b->shared);
    free(b->touched);
    free(b->thread);
    free(b);
}

static host_block *block_create(lathe_emulator *e, host_grid *g, uint32_t number) {
    const lathe_geometry *shape = &g->from->geometry;
    host_block *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->grid = g;
    b->serial = ++e->serial;
    b->index[0] = number % shape->grid[0];
    b->index[1] = number / shape->grid[0] % shape->grid[1];
    b->index[2] = number / shape->grid[0] / shape->grid[1];
    b->threads = b->running = shape->block;
    b->shared_bytes = shape->shared_bytes;
    /* Allocated one by one, so that the sanitizer sees what lies beyond. */
    if (posix_memalign((void **)&b->shared, 1024, b->shared_bytes ? b->shared_bytes : 1) != 0)
        b->shared = NULL;
    b->touched = calloc(b->shared_bytes / 16 + 2, 1);
    b->thread = calloc(b->threads, sizeof(*b->thread));
    if (!b->shared || !b->touched || !b->thread) {
        block_free(e, b);
        return NULL;
    }
    lathe_emu_poison(e, b->shared, b->shared_bytes);
    return b;
}

/* By a hash, so that the threads of one warp or block agree. */
static bool is_slow(const lathe_emulator *e, const host_thread *t) {
    uint64_t key = t->block->serial;
    if (e->slowness == SLOW_NONE)
        return false;
    if (e->slowness != SLOW_BLOCKS)
        key = key << 10 | (e->slowness == SLOW_WARPS ? t->view.thread / WARP : t->view.thread);
    return (key * 0x9e3779b97f4a7c15ull ^ e->slow_salt) >> 62 == 0;
}

static void thread_start(lathe_emulator *e, host_block *b, host_thread *t, uint32_t index) {
    const lathe_geometry *shape = &b->grid->from->geometry;
    lathe_emu_thread_arm(t);
    t->block = b;
    t->serial = ++e->serial;
    t->known = (host_view){b->grid->commits, b->grid->commits};
    t->stores = 0;
    t->copies = 0;
    t->groups = 0;
    t->view = (lathe_emulator_thread){.thread = index,
                                      .threads = b->threads,
                                      .shared = b->shared,
                                      .shared_bytes = b->shared_bytes,
                                      .buffering = lathe_emu_pick(e, 4) == 0,
                                      .touched = b->touched};
    memcpy(t->view.block, b->index, sizeof b->index);
    memcpy(t->view.grid, shape->grid, sizeof shape->grid);
    t->slow = is_slow(e, t);
    b->thread[index] = t;
    lathe_emu_ready(e, t);
}

static void link_block(lathe_emulator *e, host_block *b) {
    host_grid *g = b->grid;
    b->next = e->blocks;
    if (e->blocks)
        e->blocks->previous = b;
    e->blocks = b;
    g->started++;
    g->in_flight++;
}

static bool threads_start(lathe_emulator *e, host_block *b) {
    if (!reserve_ready(e, e->in_flight + b->threads))
        return out_of_memory(e);
    for (uint32_t i = 0; i < b->threads; i++) {
        host_thread *t = lathe_emu_thread_create(e);
        if (!t)
            return out_of_memory(e);
        e->in_flight++;
        thread_start(e, b, t, i);
    }
    return true;
}

static uint32_t cluster_size(const host_grid *g) {
    return g->from->geometry.cluster > 1 ? g->from->geometry.cluster : 1;
}

/* The next block, or all blocks of the next cluster, there before any of their threads runs. */
static bool block_start(lathe_emulator *e, host_grid *g) {
    const uint32_t size = cluster_size(g);
    host_block *block[MAX_CLUSTER];
    host_cluster *c = size > 1 ? calloc(1, sizeof *c) : NULL;
    if (size > 1 && !c)
        return out_of_memory(e);
    for (uint32_t i = 0; i < size; i++) {
        block[i] = block_create(e, g, g->order[g->started]);
        if (!block[i]) {
            if (i == 0)
                free(c);
            return out_of_memory(e);
        }
        link_block(e, block[i]);
        block[i]->cluster = c;
        if (c) {
            c->block[c->blocks++] = block[i];
            c->threads += block[i]->threads;
        }
    }
    for (uint32_t i = 0; i < size; i++)
        if (!threads_start(e, block[i]))
            return false;
    return true;
}

static void trigger(host_block *b) {
    if (!b->triggered) {
        b->triggered = true;
        b->grid->triggered++;
    }
}

static void check_block_end(host_thread *t) {
    const lathe_emulator *e = lathe_emu_active;
    const host_block *b = t->block;
    if (b->grid->from->geometry.early && !b->waited)
        lathe_emu_fault(t,
                        "the kernel was launched early, and the block ended without grid_wait()");
    for (int i = 0; i < e->copy_count; i++)
        if (e->copies[i].block == b)
            lathe_emu_fault(t, "the block ended while a bulk copy to it was on its way");
}

static void block_end(lathe_emulator *e, host_block *b) {
    host_grid *g = b->grid;
    trigger(b);
    lathe_emu_block_retire(e, b);
    g->in_flight--;
    g->ended++;
    block_free(e, b);
}

void lathe_emu_block_exit(host_thread *t) {
    lathe_emulator *e = lathe_emu_active;
    host_block *b = t->block;
    if (t->copies)
        lathe_emu_fault(t, "the thread ended while %d of its copies were on their way", t->copies);
    if (b->running == 1)
        check_block_end(t);
    lathe_emu_retire(t);
    b->thread[t->view.thread] = NULL;
    e->in_flight--;
    lathe_emu_useful(e);
    if (--b->running == 0)
        block_end(e, b);
}

static bool may_start(const host_grid *g) {
    for (int i = 0; i < LATHE_EMULATOR_BEFORE; i++) {
        const host_grid *before = g->before[i];
        if (!before)
            continue;
        const bool launched = before->state != GRID_QUEUED && before->triggered == before->blocks;
        if (!(before->settled || (i == 0 && g->from->geometry.early && launched)))
            return false;
    }
    return true;
}

static bool shuffle_order(lathe_emulator *e, host_grid *g) {
    g->order = malloc(g->blocks * sizeof *g->order);
    if (!g->order)
        return out_of_memory(e);
    const uint32_t size = cluster_size(g);
    uint32_t *const first = g->order; /* of each cluster, at every `size` places */
    for (uint32_t i = 0; i < g->blocks; i += size)
        first[i] = i;
    for (uint32_t i = g->blocks / size; i > 1; i--) {
        const uint32_t k = lathe_emu_pick(e, i) * size, last = (i - 1) * size;
        const uint32_t swap = first[k];
        first[k] = first[last];
        first[last] = swap;
    }
    for (uint32_t i = 0; i < g->blocks; i++)
        g->order[i] = first[i / size * size] + i % size;
    return true;
}

static bool grid_start(lathe_emulator *e, host_grid *g) {
    lathe_emu_hold_begin(e, g);
    g->state = GRID_RUNNING;
    g->commits = e->commits;
    g->flight_limit =
        g->from->geometry.cooperative ? g->blocks : 1u << lathe_emu_pick(e, 5); /* 1 to 16 */
    return shuffle_order(e, g);
}

/* A successor's early start waits for a seeded moment, unless nothing else can run. */
static bool due(lathe_emulator *e, const host_grid *g) {
    const host_grid *before = g->before[0];
    if (!g->from->geometry.early || !before || before->settled || e->ready_count == 0)
        return true;
    return lathe_emu_pick(e, 4) == 0;
}

/* Grids are looked at from the first that has not settled on; behind these, none can be in flight.
 */
static int window_end(const lathe_emulator *e) {
    return e->first + LATHE_EMU_WINDOW < e->grid_count ? e->first + LATHE_EMU_WINDOW
                                                       : e->grid_count;
}

static bool start_blocks(lathe_emulator *e) {
    for (int i = e->first; i < window_end(e); i++) {
        host_grid *g = &e->grids[i];
        if (g->state != GRID_QUEUED && g->triggered == g->blocks)
            lathe_emu_ahead_begin(e, g);
        if (g->state == GRID_QUEUED && may_start(g) && due(e, g) && !grid_start(e, g))
            return false;
        if (g->state != GRID_RUNNING)
            continue;
        while (g->started < g->blocks && g->in_flight < g->flight_limit &&
               (g->from->geometry.cooperative || g->in_flight == 0 ||
                e->in_flight < THREADS_IN_FLIGHT))
            if (!block_start(e, g))
                return false;
    }
    return true;
}

static void settle(lathe_emulator *e) {
    for (int i = e->first; i < window_end(e); i++) {
        host_grid *g = &e->grids[i];
        bool settled = g->state == GRID_COMPLETE;
        for (int k = 0; k < LATHE_EMULATOR_BEFORE; k++)
            settled = settled && (!g->before[k] || g->before[k]->settled);
        g->settled = settled;
    }
    while (e->first < e->grid_count && e->grids[e->first].settled)
        e->first++;
}

/* What the grid wrote is there for all, and who waits for that goes on. */
static void grid_complete(lathe_emulator *e, host_grid *g) {
    lathe_emu_hold_return(g);
    lathe_emu_grid_flush(e, g);
    lathe_emu_land_grid(e, g);
    g->state = GRID_COMPLETE;
    e->grids_left--;
    settle(e);
    while (g->waiters) {
        host_thread *t = g->waiters;
        g->waiters = t->next;
        t->known = (host_view){e->commits, e->commits};
        lathe_emu_ready(e, t);
    }
    free(g->order);
    free(g->late);
    g->order = NULL;
    g->late = NULL;
    lathe_emu_progress(e);
}

/* At a seeded moment, or at once when `must`. Returns whether one completed. */
static bool complete_grids(lathe_emulator *e, bool must) {
    bool any = false;
    for (int i = e->first; i < window_end(e); i++) {
        host_grid *g = &e->grids[i];
        if (g->state == GRID_RUNNING && g->ended == g->blocks) {
            g->state = GRID_ENDED;
            if (!lathe_emu_ahead_kept(e, g))
                return refuse(e, g->from,
                              "wrote an argument after grid_trigger() that is to be "
                              "complete before it");
            lathe_emu_hold_end(e, g);
        }
        if (g->state == GRID_ENDED && (must || lathe_emu_pick(e, g->hidden ? 16 : 4) == 0)) {
            grid_complete(e, g);
            any = true;
        }
    }
    return any;
}

static void run_all(lathe_emulator *e) {
    while (e->grids_left && !e->failed) {
        e->rounds_of_main++;
        if (e->useful)
            lathe_emu_progress(e);
        lathe_emu_leak(e);
        if (complete_grids(e, false))
            continue;
        if (!start_blocks(e))
            return;
        if (e->ready_count)
            lathe_emu_enter(e);
        else if (!lathe_emu_land_any(e) && !complete_grids(e, true) && !e->failed) {
            lathe_emu_deadlock(e);
            return;
        }
    }
}

static void abandon(lathe_emulator *e) {
    while (e->blocks) {
        host_block *b = e->blocks;
        for (uint32_t i = 0; i < b->threads; i++) {
            host_thread *t = b->thread[i];
            if (t) {
                t->abandoned = true;
                t->next = e->free_threads;
                e->free_threads = t;
            }
        }
        block_free(e, b);
    }
    e->copy_count = e->packet_count = 0;
    e->ready_count = e->in_flight = 0;
}

static bool prepare(lathe_emulator *e, const lathe_emulator_grid *grids, int count) {
    e->grids = calloc((size_t)count + 1, sizeof *e->grids);
    if (!e->grids)
        return out_of_memory(e);
    e->grid_count = e->grids_left = count;
    e->first = 0;
    for (int i = 0; i < count; i++) {
        const lathe_emulator_grid *from = &grids[i];
        const lathe_geometry *shape = &from->geometry;
        host_grid *g = &e->grids[i];
        const uint64_t blocks = (uint64_t)shape->grid[0] * shape->grid[1] * shape->grid[2];
        if (blocks == 0 || blocks > 1u << 24)
            return refuse(e, from, "the grid has no block, or more than 2^24");
        if (shape->block == 0 || shape->block > MAX_THREADS)
            return refuse(e, from, "a block has 1 to 1024 threads");
        if (from->argument_count > LATHE_EMULATOR_ARGUMENTS)
            return refuse(e, from, "more than 32 arguments");
        if (shape->cluster > MAX_CLUSTER || (shape->cluster > 1 && shape->grid[0] % shape->cluster))
            return refuse(e, from, "a cluster has 1 to 8 blocks, and divides the grid along x");
        if (shape->early && (from->before_count == 0 || shape->cooperative))
            return refuse(e, from, "an early launch needs a predecessor and is not co-operative");
        g->from = from;
        g->blocks = (uint32_t)blocks;
        for (int k = 0; k < from->before_count; k++)
            if (from->before[k] < i)
                g->before[k] = &e->grids[from->before[k]];
        if (shape->early && g->before[0])
            g->before[0]->followed = true;
    }
    return true;
}

bool lathe_emulator_run(lathe_emulator *e, const lathe_emulator_grid *grids, int count) {
    static const uint32_t masks[4] = {0, 3, 15, 127}, firsts[4] = {0, 0, 8, 15};
    e->failed = false;
    e->message[0] = '\0';
    e->stall = 0;
    e->land_mask = masks[lathe_emu_pick(e, 4)];
    e->last_first = firsts[lathe_emu_pick(e, 4)];
    e->slowness = (host_slowness)lathe_emu_pick(e, SLOW_KINDS);
    e->slow_salt = lathe_emu_random(e) << 16;
    lathe_emulator *outer = lathe_emu_active;
    lathe_emu_active = e;
    e->main_stack = NULL;
    lathe_emu_clock_begin(e);
    if (prepare(e, grids, count))
        run_all(e);
    abandon(e);
    for (int i = 0; i < e->grid_count; i++) {
        free(e->grids[i].order);
        free(e->grids[i].late);
        lathe_emu_hold_return(&e->grids[i]);
    }
    free(e->grids);
    e->grids = NULL;
    e->grid_count = 0;
    lathe_emu_clock_end(e);
    lathe_emu_active = outer;
    return !e->failed;
}

static void grid_wait(void) {
    lathe_emulator *e = lathe_emu_active;
    host_thread *t = lathe_emu_current();
    host_block *b = t->block;
    host_grid *before = b->grid->from->geometry.early ? b->grid->before[0] : NULL;
    if (before && before->state != GRID_COMPLETE) {
        t->wait = WAIT_GRID;
        t->wait_id = t->wait_parity = 0;
        t->wait_object = before;
        t->next = before->waiters;
        before->waiters = t;
        lathe_emu_stop(t);
    }
    if (before) /* complete by now, though it may not have been when this thread began */
        t->known = (host_view){e->commits, e->commits};
    b->waited = true;
}

static void grid_trigger(void) {
    trigger(lathe_emu_current()->block);
}

void lathe_emu_fill_launch(lathe_emulator_table *table) {
    table->grid_wait = grid_wait;
    table->grid_trigger = grid_trigger;
}
