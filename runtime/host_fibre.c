/* SPDX-License-Identifier: Apache-2.0
 * Fibres: one per CUDA thread, their stacks, and which runs next. */
#include "host_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Enough for a kernel's locals under the sanitizers; only touched pages cost memory. */
#define STACK_BYTES ((size_t)256 * 1024)
#define GUARD_BYTES ((size_t)4096)
#define COLOURS ((size_t)16 * 1024)
/* Stacks of the process with a guard page below them. A guard costs two of the 65530 mappings that
 * a process may have by default, and many ranks together have more threads in flight than that;
 * stacks without one lie in one mapping with their neighbours. */
#define GUARDED_MOST 12000

/* Boost.Context. */
typedef struct {
    void *context;
    void *data;
} transfer;
extern void *make_fcontext(void *top, size_t bytes, void (*body)(transfer));
extern transfer jump_fcontext(void *to, void *data);

/* Present where the program runs under ASan. */
extern void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t bytes)
    __attribute__((weak));
extern void __sanitizer_finish_switch_fiber(void *save, const void **bottom, size_t *bytes)
    __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *p, size_t bytes)
    __attribute__((weak));

_Thread_local lathe_emulator *lathe_emu_active;

/* `save` NULL: the fibre left never runs again. */
static void announce(void **save, const void *bottom, size_t bytes) {
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(save, bottom, bytes);
}
static void arrived(void *save, const void **bottom, size_t *bytes) {
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(save, bottom, bytes);
}

/* What is left must remember where it stopped; the one that arrives is handed its slot for that. */
static void remember(transfer from) {
    if (from.data)
        *(void **)from.data = from.context;
}

static void invoke(const lathe_emulator_grid *g) {
    /* A kernel takes fewer: the calling conventions of the machines we run on ignore the rest. */
    typedef void entry(void *, void *, void *, void *, void *, void *, void *, void *, void *,
                       void *, void *, void *, void *, void *, void *, void *, void *, void *,
                       void *, void *, void *, void *, void *, void *, void *, void *, void *,
                       void *, void *, void *, void *, void *);
    void *a[LATHE_EMULATOR_ARGUMENTS] = {0};
    for (int i = 0; i < g->argument_count; i++)
        a[i] = g->arguments[i];
    ((entry *)g->entry)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
                        a[12], a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22],
                        a[23], a[24], a[25], a[26], a[27], a[28], a[29], a[30], a[31]);
}

static void body(transfer from) {
    remember(from);
    lathe_emulator *e = lathe_emu_active;
    host_thread *t = e->current;
    const void *bottom;
    size_t bytes;
    arrived(NULL, &bottom, &bytes);
    if (e->main_stack == NULL) { /* the first fibre of all comes from the main stack */
        e->main_stack = bottom;
        e->main_stack_bytes = bytes;
    }
    invoke(t->block->grid->from);
    lathe_emu_block_exit(t);
    lathe_emu_end(t);
}

static atomic_int guarded;

static unsigned char *stack_create(void) {
    unsigned char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED)
        return NULL;
    if (atomic_fetch_add(&guarded, 1) < GUARDED_MOST &&
        mprotect(stack, GUARD_BYTES, PROT_NONE) != 0) {
        munmap(stack, STACK_BYTES);
        return NULL;
    }
    return stack;
}

host_thread *lathe_emu_thread_create(lathe_emulator *e) {
    host_thread *t = e->free_threads;
    if (t) {
        e->free_threads = t->next;
        return t;
    }
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->stack = stack_create();
    if (!t->stack) {
        free(t);
        return NULL;
    }
    /* Stacks that all ended at the same place in a page would share few lines of the caches. */
    t->colour = (++e->stacks * 1216) % COLOURS & ~(size_t)63;
    return t;
}

void lathe_emu_thread_arm(host_thread *t) {
    /* What ran here before was stopped half-way, its frames marked. */
    if (t->abandoned && __asan_unpoison_memory_region)
        __asan_unpoison_memory_region(t->stack + GUARD_BYTES, STACK_BYTES - GUARD_BYTES);
    t->context = make_fcontext(t->stack + STACK_BYTES - t->colour,
                               STACK_BYTES - GUARD_BYTES - t->colour, body);
    t->fake_stack = NULL;
    t->abandoned = false;
    t->wait = WAIT_NONE;
}

void lathe_emu_threads_free(lathe_emulator *e) {
    while (e->free_threads) {
        host_thread *t = e->free_threads;
        e->free_threads = t->next;
        munmap(t->stack, STACK_BYTES);
        atomic_fetch_sub(&guarded, 1);
        free(t);
    }
}

void lathe_emu_ready(lathe_emulator *e, host_thread *t) {
    t->wait = WAIT_NONE;
    e->ready[e->ready_count++] = t; /* room for every thread in flight: lathe_emulator_run */
}

/* Takes the next thread to run off the list. */
static host_thread *choose(lathe_emulator *e) {
    const uint32_t last = e->ready_count - 1;
    const uint64_t r = lathe_emu_random(e);
    const bool fair = lathe_emu_clock_fair(e);
    uint32_t index = last;
    if (fair || (r & 15u) >= e->last_first)
        index = (uint32_t)(((r >> 8 & 0xffffffu) * e->ready_count) >> 24);
    /* Twice a slow one lets another go first, nearly always. */
    for (int again = 0;
         again < 2 && !fair && e->ready[index]->slow && (r >> (32 + 5 * again) & 31u); again++)
        index = lathe_emu_pick(e, e->ready_count);
    host_thread *t = e->ready[index];
    e->ready[index] = e->ready[last];
    e->ready_count = last;
    return t;
}

static bool chance_to_land(lathe_emulator *e) {
    return (e->copy_count || e->packet_count) && (lathe_emu_random(e) & e->land_mask) == 0;
}

/* The main context looks after what no fibre can: starting blocks, completing grids. */
static bool main_is_due(const lathe_emulator *e) {
    return e->ready_count == 0 || (e->switches & 63u) == 0;
}

static void jump_to_thread(lathe_emulator *e, host_thread *to, void **slot, void **save) {
    e->current = to;
    announce(save, to->stack, STACK_BYTES);
    remember(jump_fcontext(to->context, slot));
}

static void jump_to_main(lathe_emulator *e, void **slot, void **save) {
    announce(save, e->main_stack, e->main_stack_bytes);
    remember(jump_fcontext(e->main_context, slot));
}

void lathe_emu_stop(host_thread *t) {
    lathe_emulator *e = lathe_emu_active;
    e->switches++;
    if (chance_to_land(e))
        lathe_emu_land_any(e);
    if (main_is_due(e)) {
        jump_to_main(e, &t->context, &t->fake_stack);
    } else {
        host_thread *next = choose(e);
        if (next == t)
            return;
        jump_to_thread(e, next, &t->context, &t->fake_stack);
    }
    arrived(t->fake_stack, NULL, NULL);
}

void lathe_emu_yield(host_thread *t) {
    lathe_emulator *e = lathe_emu_active;
    lathe_emu_ready(e, t);
    lathe_emu_stop(t);
}

void lathe_emu_end(host_thread *t) {
    lathe_emulator *e = lathe_emu_active;
    e->switches++;
    t->wait = WAIT_ENDED;
    t->next = e->free_threads; /* reused by the main context only, when this stack is left */
    e->free_threads = t;
    if (main_is_due(e))
        jump_to_main(e, NULL, NULL);
    else
        jump_to_thread(e, choose(e), NULL, NULL);
    abort(); /* not reached: nothing jumps to an ended fibre */
}

void lathe_emu_leave(host_thread *t) {
    (void)t;
    jump_to_main(lathe_emu_active, NULL, NULL);
    abort(); /* not reached */
}

void lathe_emu_enter(lathe_emulator *e) {
    e->switches++; /* so that main_is_due does not hold for ever */
    jump_to_thread(e, choose(e), &e->main_context, &e->main_fake_stack);
    arrived(e->main_fake_stack, NULL, NULL);
    e->current = NULL;
}
