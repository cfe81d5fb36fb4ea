/* SPDX-License-Identifier: Apache-2.0
 * Memory that ranks share. A peer store is on its way until a fence, the end of its grid, or chance
 * lands it. */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

#define PACKETS 512 /* on their way at once */

/* Whole or not at all. */
static void store16(unsigned char *p, const unsigned char *value) {
#if defined(__x86_64__)
    typedef long long vector __attribute__((vector_size(16)));
    vector v;
    memcpy(&v, value, 16);
    __asm__ volatile("movdqa %1, %0" : "=m"(*(vector *)(void *)p) : "x"(v) : "memory");
#else
    unsigned __int128 v;
    memcpy(&v, value, 16);
    __atomic_store_n((unsigned __int128 *)(void *)p, v, __ATOMIC_RELEASE);
#endif
}
static void load16(const unsigned char *p, unsigned char *value) {
#if defined(__x86_64__)
    typedef long long vector __attribute__((vector_size(16)));
    vector v;
    __asm__ volatile("movdqa %1, %0" : "=x"(v) : "m"(*(const vector *)(const void *)p) : "memory");
    memcpy(value, &v, 16);
#else
    const unsigned __int128 v =
        __atomic_load_n((const unsigned __int128 *)(const void *)p, __ATOMIC_ACQUIRE);
    memcpy(value, &v, 16);
#endif
}

void lathe_emu_land_packet(lathe_emulator *e, int index) {
    const uint64_t thread = e->packets[index].thread;
    unsigned char *p = e->packets[index].store.p;
    /* An older one of the same thread to the same place goes first. */
    for (int i = 0; i < index; i++)
        if (e->packets[i].store.p == p && e->packets[i].thread == thread)
            index = i;
    const host_store s = e->packets[index].store;
    e->packet_count--;
    memmove(&e->packets[index], &e->packets[index + 1],
            (size_t)(e->packet_count - index) * sizeof *e->packets);
    if (s.bytes == 16) {
        store16(s.p, s.value);
    } else {
        uint32_t word;
        memcpy(&word, s.value, 4);
        __atomic_store_n((uint32_t *)(void *)s.p, word, __ATOMIC_RELAXED);
    }
    lathe_emu_progress(e);
}

bool lathe_emu_land_any(lathe_emulator *e) {
    const int total = e->copy_count + e->packet_count;
    if (total == 0)
        return false;
    const int index = (int)lathe_emu_pick(e, (uint32_t)total);
    if (index < e->copy_count)
        lathe_emu_land_copy(e, index);
    else
        lathe_emu_land_packet(e, index - e->copy_count);
    return true;
}

void lathe_emu_land_grid(lathe_emulator *e, const host_grid *g) {
    for (int i = 0; i < e->packet_count;)
        if (e->packets[i].grid == g)
            lathe_emu_land_packet(e, i);
        else
            i++;
}

/* Other ranks write what a grid with mailboxes was given: it cannot be held. */
static void mark_shared(host_grid *g) {
    if (g->held)
        lathe_emu_hold_return(g);
}

static void peer_store(void *p, const void *value, unsigned int bytes) {
    lathe_emulator *e = lathe_emu_active;
    host_thread *t = e->current;
    if (lathe_emu_before_wait(t))
        lathe_emu_fault(t, "peer store before grid_wait() in a kernel launched early");
    if ((uintptr_t)p % bytes != 0)
        lathe_emu_fault(t, "peer store of %u bytes to %p, which is not aligned", bytes, p);
    mark_shared(t->block->grid);
    while (e->packet_count >= PACKETS)
        lathe_emu_land_packet(e, (int)lathe_emu_pick(e, (uint32_t)e->packet_count));
    host_packet *packet = &e->packets[e->packet_count++];
    *packet = (host_packet){.store = {.p = p, .bytes = (uint8_t)bytes},
                            .thread = t->serial,
                            .block = t->block->serial,
                            .grid = t->block->grid};
    memcpy(packet->store.value, value, bytes);
    if (lathe_emu_pick(e, 8) == 0)
        lathe_emu_land_any(e);
}

static void peer_load(const void *p, void *value, unsigned int bytes) {
    lathe_emulator *e = lathe_emu_active;
    host_thread *t = e->current;
    mark_shared(t->block->grid);
    if (lathe_emu_pick(e, 4) == 0)
        lathe_emu_yield(t);
    if (bytes == 16)
        load16(p, value);
    else
        *(uint32_t *)value = __atomic_load_n((const uint32_t *)p, __ATOMIC_RELAXED);
    for (int i = 0; i < e->packet_count; i++)
        if (e->packets[i].store.p == p && e->packets[i].thread == t->serial)
            memcpy(value, e->packets[i].store.value, bytes);
}

static void peer_fence(void) {
    lathe_emulator *e = lathe_emu_active;
    host_thread *t = e->current;
    const uint64_t block = t->block->serial;
    lathe_emu_release_gpu(t);
    t->known = (host_view){e->commits, e->commits};
    for (int i = 0; i < e->packet_count;)
        if (e->packets[i].block == block)
            lathe_emu_land_packet(e, i);
        else
            i++;
}

static unsigned long long clock_ns(void) {
    lathe_emulator *e = lathe_emu_active;
    e->stall = 0; /* a wait that looks at the clock ends by itself */
    return lathe_emu_clock_look(e);
}

/* A block that polls leaves room on the machine: the grid's blocks may wait for those of other
 * ranks, whose order differs. */
static void widen(lathe_emulator *e) {
    for (int i = 0; i < e->grid_count; i++)
        if (e->grids[i].state == GRID_RUNNING && e->grids[i].flight_limit <= e->grids[i].in_flight)
            e->grids[i].flight_limit = e->grids[i].in_flight + 1;
}

static void poll_pause(void) {
    lathe_emulator *e = lathe_emu_active;
    lathe_emu_clock_poll(e, e->current);
    if (++e->polls > e->ready_count) {
        const uint32_t polls = e->polls;
        e->polls = 0;
        widen(e);
        lathe_emu_clock_idle(e, polls);
    }
    if (e->packet_count || e->copy_count)
        if (lathe_emu_pick(e, 2) == 0)
            lathe_emu_land_any(e);
    lathe_emu_yield(e->current);
}

void lathe_emu_fill_peer(lathe_emulator_table *table) {
    table->peer_store = peer_store;
    table->peer_load = peer_load;
    table->peer_fence = peer_fence;
    table->clock_ns = clock_ns;
    table->poll_pause = poll_pause;
}
