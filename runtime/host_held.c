/* SPDX-License-Identifier: Apache-2.0
 * What a grid wrote plainly, kept from its early successors. When the grid has ended and before it
 * completes, memory shows what it held at the grid's start; a successor that reads too early reads
 * that. Only memory that this grid alone can have written meanwhile is treated so. What a grid has
 * written ahead, before its early successors begin, they may read; the grid must then leave it. */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST                                                                                    \
    ((size_t)1 << 20) /* bytes of an allocation; weights are larger and never written              \
                       */

static bool is_held(const host_grid *g, const void *base) {
    for (int i = 0; i < g->held_count; i++)
        if (g->held[i].base == base)
            return true;
    return false;
}

/* Memory of argument i; false where it is unknown or too large to be looked at. */
static bool memory_of(const lathe_emulator *e, const host_grid *g, int i, void **base,
                      size_t *bytes) {
    const void *argument = g->from->arguments[i];
    return argument && e->find && e->find(e->find_context, argument, base, bytes) && *bytes > 0 &&
           *bytes <= LARGEST;
}

static bool is_ahead(const lathe_emulator *e, const host_grid *g, const void *base) {
    for (int i = 0; i < g->from->argument_count; i++) {
        void *other;
        size_t bytes;
        if ((g->from->geometry.ahead >> i & 1) && memory_of(e, g, i, &other, &bytes) &&
            other == base)
            return true;
    }
    return false;
}

/* Of all that the grid has written ahead. */
static uint64_t ahead_digest(const lathe_emulator *e, const host_grid *g) {
    uint64_t digest = 0xcbf29ce484222325ull;
    for (int i = 0; i < g->from->argument_count; i++) {
        void *base;
        size_t bytes;
        if (!(g->from->geometry.ahead >> i & 1) || !memory_of(e, g, i, &base, &bytes))
            continue;
        for (size_t k = 0; k < bytes; k++)
            digest = (digest ^ ((const unsigned char *)base)[k]) * 0x100000001b3ull;
    }
    return digest;
}

void lathe_emu_ahead_begin(const lathe_emulator *e, host_grid *g) {
    if (!g->from->geometry.ahead || g->ahead_begun)
        return;
    g->ahead_begun = true;
    g->ahead_digest = ahead_digest(e, g);
}

bool lathe_emu_ahead_kept(const lathe_emulator *e, const host_grid *g) {
    return !g->ahead_begun || g->ahead_digest == ahead_digest(e, g);
}

static void hold(host_grid *g, void *base, size_t bytes) {
    host_held *held = &g->held[g->held_count];
    held->before = malloc(bytes);
    held->after = malloc(bytes);
    if (!held->before || !held->after) { /* then this one is simply not held */
        free(held->before);
        free(held->after);
        return;
    }
    held->base = base;
    held->bytes = bytes;
    memcpy(held->before, base, bytes);
    g->held_count++;
}

/* Whether h may run only because of an early launch after g, directly or through others. */
static bool follows_early(const host_grid *h, const host_grid *g) {
    while (h && h != g)
        h = h->from->geometry.early ? h->before[0] : NULL;
    return h == g;
}

static bool in_flight(const host_grid *g) {
    return g->state == GRID_RUNNING || g->state == GRID_ENDED;
}

/* Another grid that is not of this chain might write the same memory, or rightly read it. */
static bool is_alone(const lathe_emulator *e, const host_grid *g) {
    for (int i = e->first; i < e->grid_count && i < e->first + LATHE_EMU_WINDOW; i++) {
        const host_grid *other = &e->grids[i];
        if (other != g && in_flight(other) && !follows_early(g, other))
            return false;
    }
    return true;
}

void lathe_emu_hold_begin(lathe_emulator *e, host_grid *g) {
    for (int i = e->first; i < e->grid_count && i < e->first + LATHE_EMU_WINDOW; i++)
        if (in_flight(&e->grids[i]) && !follows_early(g, &e->grids[i]))
            lathe_emu_hold_return(&e->grids[i]);
    if (!e->find || !g->followed || lathe_emu_pick(e, 2) == 0 || !is_alone(e, g))
        return;
    g->held = calloc((size_t)g->from->argument_count + 1, sizeof *g->held);
    for (int i = 0; g->held && i < g->from->argument_count; i++) {
        void *base;
        size_t bytes;
        if (memory_of(e, g, i, &base, &bytes) && !is_held(g, base) && !is_ahead(e, g, base))
            hold(g, base, bytes);
    }
}

/* Only where the grid changed something: other ranks may own the rest. */
static void swap_in(const host_held *held, const unsigned char *from) {
    for (size_t i = 0; i < held->bytes; i++)
        if (held->after[i] != held->before[i])
            held->base[i] = from[i];
}

void lathe_emu_hold_end(lathe_emulator *e, host_grid *g) {
    if (!g->held)
        return;
    lathe_emu_grid_flush(e, g); /* stores through prims are part of it */
    g->hidden = true;
    for (int i = 0; i < g->held_count; i++) {
        host_held *held = &g->held[i];
        memcpy(held->after, held->base, held->bytes);
        swap_in(held, held->before);
    }
}

void lathe_emu_hold_return(host_grid *g) {
    for (int i = 0; i < g->held_count; i++) {
        host_held *held = &g->held[i];
        if (g->hidden)
            swap_in(held, held->after);
        free(held->before);
        free(held->after);
    }
    free(g->held);
    g->held = NULL;
    g->held_count = 0;
    g->hidden = false;
}
