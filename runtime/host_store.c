/* SPDX-License-Identifier: Apache-2.0
 * When a store through prims becomes visible, and to whom. A thread's store waits in its buffer; a
 * barrier passes it to the block, a fence of any thread of the block to the GPU, chance either. A
 * thread sees the GPU's memory as it was at some earlier moment; chance moves that moment on, and
 * so does a fence after a load or an atomic that met something newer. Neither loses the order of
 * stores to one place. */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

/* Loads in a row, by all threads of a rank, with no other event and no look at the clock. */
#define LONGEST_SPIN (4u * 1000 * 1000)

static uintptr_t granule(const void *p) {
    return (uintptr_t)p >> 4;
}

/* Memory that other ranks' threads may touch at the same moment. */
static void write_word(unsigned char *p, const unsigned char *value, uint32_t bytes) {
    if (bytes == 4) {
        uint32_t v;
        memcpy(&v, value, 4);
        __atomic_store_n((uint32_t *)(void *)p, v, __ATOMIC_RELAXED);
        return;
    }
    for (uint32_t i = 0; i < bytes; i += 8) {
        uint64_t v;
        memcpy(&v, value + i, 8);
        __atomic_store_n((uint64_t *)(void *)(p + i), v, __ATOMIC_RELAXED);
    }
}
static void read_word(const unsigned char *p, unsigned char *value, uint32_t bytes) {
    if (bytes == 4) {
        const uint32_t v = __atomic_load_n((const uint32_t *)(const void *)p, __ATOMIC_RELAXED);
        memcpy(value, &v, 4);
        return;
    }
    for (uint32_t i = 0; i < bytes; i += 8) {
        const uint64_t v =
            __atomic_load_n((const uint64_t *)(const void *)(p + i), __ATOMIC_RELAXED);
        memcpy(value + i, &v, 8);
    }
}

static void note_past(lathe_emulator *e, const host_block *b, unsigned char *p, uint32_t bytes) {
    host_past *past = &e->past[e->commits & (HISTORY - 1)];
    past->p = p;
    past->bytes = (uint8_t)bytes;
    past->block = b ? b->serial : 0;
    read_word(p, past->old, bytes);
    e->commits++;
}

static void make_visible(lathe_emulator *e, const host_block *b, const host_store *s) {
    if (s->space == LATHE_SPACE_SHARED) {
        memcpy(s->p, s->value, s->bytes);
        return;
    }
    note_past(e, b, s->p, s->bytes);
    write_word(s->p, s->value, s->bytes);
}

/* Makes those at `place` visible, oldest first; all when `place` is 0. Returns how many are left.
 */
static int drain(lathe_emulator *e, const host_block *b, host_store *list, int count,
                 uintptr_t place) {
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (place == 0 || granule(list[i].p) == place)
            make_visible(e, b, &list[i]);
        else
            list[kept++] = list[i];
    }
    return kept;
}

/* The block's stores are older than the thread's wherever both concern one place. */
static void drain_thread(host_thread *t, uintptr_t place) {
    lathe_emulator *e = lathe_emu_active;
    host_block *b = t->block;
    if (b->stores)
        b->stores = drain(e, b, b->store, b->stores, place);
    if (t->stores)
        t->stores = drain(e, b, t->store, t->stores, place);
}

static void block_push(lathe_emulator *e, host_block *b, const host_store *s) {
    if (b->stores == BLOCK_STORES)
        b->stores = drain(e, b, b->store, b->stores, 0);
    b->store[b->stores++] = *s;
}

/* Whether to keep stores to shared memory back until the next barrier. */
static void redraw(lathe_emulator *e, host_thread *t) {
    t->view.buffering = (lathe_emu_random(e) & 3u) == 0;
}

static void pass_to_block(lathe_emulator *e, host_thread *t) {
    for (int i = 0; i < t->stores; i++) {
        if (t->store[i].space == LATHE_SPACE_SHARED)
            make_visible(e, t->block, &t->store[i]);
        else
            block_push(e, t->block, &t->store[i]);
    }
    t->stores = 0;
}

void lathe_emu_release(host_thread *t) {
    lathe_emulator *e = lathe_emu_active;
    pass_to_block(e, t);
    redraw(e, t);
}

void lathe_emu_release_gpu(host_thread *t) {
    drain_thread(t, 0);
}

void lathe_emu_learn(host_view *known, const host_view *from) {
    if (known->seen < from->seen)
        known->seen = from->seen;
    if (known->observed < from->observed)
        known->observed = from->observed;
}

void lathe_emu_chance(host_thread *t) {
    lathe_emulator *e = lathe_emu_active;
    if (t->stores && (lathe_emu_random(e) & 7u) == 0)
        drain_thread(t, granule(t->store[lathe_emu_pick(e, (uint32_t)t->stores)].p));
}

static void late_push(lathe_emulator *e, host_grid *g, const host_store *s) {
    if (g->late_count == g->late_room) {
        const int room = g->late_room ? 2 * g->late_room : 64;
        host_store *late = realloc(g->late, (size_t)room * sizeof *late);
        if (!late) { /* sooner than it might be, which is allowed */
            make_visible(e, NULL, s);
            return;
        }
        g->late = late;
        g->late_room = room;
    }
    g->late[g->late_count++] = *s;
}

void lathe_emu_retire(host_thread *t) {
    pass_to_block(lathe_emu_active, t);
}

void lathe_emu_block_retire(lathe_emulator *e, host_block *b) {
    for (int i = 0; i < b->stores; i++)
        late_push(e, b->grid, &b->store[i]);
    b->stores = 0;
}

void lathe_emu_grid_flush(lathe_emulator *e, host_grid *g) {
    g->late_count = drain(e, NULL, g->late, g->late_count, 0);
}

/* What nobody fences becomes visible one day all the same: of one thread of one block, of the
 * block, or of threads that have ended. */
void lathe_emu_leak(lathe_emulator *e) {
    for (host_block *b = e->blocks; b; b = b->next) {
        if (lathe_emu_pick(e, 8) != 0)
            continue;
        host_thread *t = b->thread[lathe_emu_pick(e, b->threads)];
        if (t)
            drain_thread(t, 0);
        else
            b->stores = drain(e, b, b->store, b->stores, 0);
    }
    for (int i = e->first; i < e->grid_count && e->grids[i].state != GRID_QUEUED; i++)
        if (e->grids[i].late_count && lathe_emu_pick(e, 32) == 0)
            lathe_emu_grid_flush(e, &e->grids[i]);
}

bool lathe_emu_before_wait(const host_thread *t) {
    return t->block->grid->from->geometry.early && !t->block->waited;
}

/* Lays the pending stores of a list over what was read at p. */
static void overlay(const host_store *list, int count, const unsigned char *p, unsigned char *value,
                    uint32_t bytes) {
    for (int i = 0; i < count; i++) {
        const host_store *s = &list[i];
        if (granule(s->p) != granule(p))
            continue;
        for (uint32_t k = 0; k < s->bytes; k++) {
            const uintptr_t at = (uintptr_t)s->p + k - (uintptr_t)p;
            if (at < bytes)
                value[at] = s->value[k];
        }
    }
}

/* Undoes what became visible after the moment at which the thread sees memory, back to the last
 * store of its own block. */
static void rewind_to_seen(lathe_emulator *e, host_thread *t, const unsigned char *p,
                           unsigned char *value, uint32_t bytes) {
    if (e->commits - t->known.seen > HISTORY)
        t->known.seen = e->commits - HISTORY;
    for (uint64_t n = e->commits; n > t->known.seen; n--) {
        const host_past *past = &e->past[(n - 1) & (HISTORY - 1)];
        if (granule(past->p) != granule(p))
            continue;
        if (past->block == t->block->serial)
            return;
        host_store old = {.p = past->p, .bytes = past->bytes};
        memcpy(old.value, past->old, sizeof old.value);
        overlay(&old, 1, p, value, bytes);
    }
}

/* Whether a load shows memory as it is now. The older the thread's view, the likelier. */
static bool looks_again(lathe_emulator *e, const host_thread *t) {
    const uint64_t age = e->commits - t->known.seen;
    return lathe_emu_pick(e, age > HISTORY / 2 ? 8 : 2) != 0;
}

static void gpu_load(const void *p, void *value, unsigned int bytes) {
    lathe_emulator *e = lathe_emu_active;
    host_thread *t = e->current;
    if (lathe_emu_pick(e, 4) == 0) {
        if (++e->stall > LONGEST_SPIN)
            lathe_emu_fault(t, "spins in gpu_load without end");
        lathe_emu_yield(t);
    }
    if (t->known.seen != e->commits && looks_again(e, t))
        t->known = (host_view){e->commits, e->commits};
    if (t->stores)
        lathe_emu_chance(t);
    unsigned char now[16];
    read_word(p, now, bytes);
    rewind_to_seen(e, t, p, now, bytes);
    overlay(t->block->store, t->block->stores, p, now, bytes);
    overlay(t->store, t->stores, p, now, bytes);
    memcpy(value, now, bytes);
}

static void push(host_thread *t, void *p, const void *value, uint32_t bytes, uint8_t space) {
    if (t->stores == THREAD_STORES)
        drain_thread(t, 0);
    host_store *s = &t->store[t->stores++];
    s->p = p;
    s->bytes = (uint8_t)bytes;
    s->space = space;
    memcpy(s->value, value, bytes);
    t->view.buffering = 1;
}

static void check_after_wait(host_thread *t, const char *what) {
    if (lathe_emu_before_wait(t))
        lathe_emu_fault(t, "%s before grid_wait() in a kernel launched early", what);
}

static void gpu_store(void *p, const void *value, unsigned int bytes) {
    host_thread *t = lathe_emu_current();
    check_after_wait(t, "gpu_store");
    push(t, p, value, bytes, LATHE_SPACE_GLOBAL);
    lathe_emu_chance(t);
}

static void gpu_fence(void) {
    lathe_emulator *e = lathe_emu_active;
    host_thread *t = e->current;
    lathe_emu_release_gpu(t);
    t->known.seen = t->known.observed;
    redraw(e, t);
}

/* Atomics act on the latest value, and move nothing but that word. */
static uint32_t *atomic_begin(host_thread *t, unsigned int *p, const char *what) {
    check_after_wait(t, what);
    if (lathe_emu_pick(lathe_emu_active, 4) == 0)
        lathe_emu_yield(t);
    drain_thread(t, granule(p));
    note_past(lathe_emu_active, t->block, (unsigned char *)p, 4);
    t->known.observed = lathe_emu_active->commits;
    return p;
}
static unsigned int gpu_atomic_add(unsigned int *p, unsigned int value) {
    uint32_t *word = atomic_begin(lathe_emu_current(), p, "gpu_atomic_add");
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}
static unsigned int gpu_atomic_or(unsigned int *p, unsigned int value) {
    uint32_t *word = atomic_begin(lathe_emu_current(), p, "gpu_atomic_or");
    return __atomic_fetch_or(word, value, __ATOMIC_RELAXED);
}

static void check_shared(host_thread *t, const void *p, uint32_t bytes, const char *what) {
    const uintptr_t offset = (uintptr_t)p - (uintptr_t)t->view.shared;
    if (offset > t->view.shared_bytes || bytes > t->view.shared_bytes - offset)
        lathe_emu_fault(t, "%s of %u bytes at byte %lld of %u bytes of shared memory", what, bytes,
                        (long long)offset, t->view.shared_bytes);
    t->view.touched[offset >> 4] = 1;
}
static void shared_load(const void *p, void *value, unsigned int bytes) {
    host_thread *t = lathe_emu_current();
    check_shared(t, p, bytes, "shared_load");
    unsigned char now[16];
    memcpy(now, p, bytes);
    overlay(t->store, t->stores, p, now, bytes);
    memcpy(value, now, bytes);
}
static void shared_store(void *p, const void *value, unsigned int bytes) {
    host_thread *t = lathe_emu_current();
    check_shared(t, p, bytes, "shared_store");
    push(t, p, value, bytes, LATHE_SPACE_SHARED);
}
static unsigned int shared_atomic_add(unsigned int *p, unsigned int value) {
    host_thread *t = lathe_emu_current();
    check_shared(t, p, 4, "shared_atomic_add");
    if (lathe_emu_pick(lathe_emu_active, 4) == 0)
        lathe_emu_yield(t);
    drain_thread(t, granule(p));
    const unsigned int old = *p;
    *p = old + value;
    return old;
}

void lathe_emu_fill_store(lathe_emulator_table *table) {
    table->shared_load = shared_load;
    table->shared_store = shared_store;
    table->shared_atomic_add = shared_atomic_add;
    table->gpu_load = gpu_load;
    table->gpu_store = gpu_store;
    table->gpu_fence = gpu_fence;
    table->gpu_atomic_add = gpu_atomic_add;
    table->gpu_atomic_or = gpu_atomic_or;
}
