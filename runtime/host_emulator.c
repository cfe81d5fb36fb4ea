/* SPDX-License-Identifier: Apache-2.0
 * An emulator's life, and the table of functions that kernels call. */
#include "host_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PACKETS 512

lathe_emulator *lathe_emulator_create(uint64_t seed) {
    lathe_emulator *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->packets = calloc(PACKETS, sizeof *e->packets);
    if (!e->packets) {
        free(e);
        return NULL;
    }
    /* Never zero, and seeds that differ by one start far apart. */
    e->random = (seed + 1) * 0x9e3779b97f4a7c15ull | 1u;
    for (int i = 0; i < 8; i++)
        (void)lathe_emu_random(e);
    lathe_emu_clock_join(e);
    return e;
}

void lathe_emulator_destroy(lathe_emulator *e) {
    if (!e)
        return;
    lathe_emu_clock_part(e);
    lathe_emu_threads_free(e);
    free(e->ready);
    free(e->copies);
    free(e->packets);
    free(e);
}

void lathe_emulator_set_find(lathe_emulator *e, lathe_emulator_find find, void *context) {
    e->find = find;
    e->find_context = context;
}

const char *lathe_emulator_message(const lathe_emulator *e) {
    return e->message;
}

void lathe_emu_poison(lathe_emulator *e, void *p, size_t bytes) {
    /* All ones, or 0x7fc1 in each half-word: NaN as bf16 and as fp32 either way. */
    memset(p, 0xff, bytes);
    if (lathe_emu_random(e) & 1u)
        for (size_t i = 0; i + 1 < bytes; i += 2) {
            ((unsigned char *)p)[i] = 0xc1;
            ((unsigned char *)p)[i + 1] = 0x7f;
        }
}

static __attribute__((const)) lathe_emulator_thread *self(void) {
    return &lathe_emu_active->current->view;
}

static lathe_emulator_table table = {.version = LATHE_EMULATOR_VERSION, .self = self};

static void fill_table(void) {
    lathe_emu_fill_store(&table);
    lathe_emu_fill_warp(&table);
    lathe_emu_fill_bulk(&table);
    lathe_emu_fill_copy(&table);
    lathe_emu_fill_peer(&table);
    lathe_emu_fill_launch(&table);
}

const lathe_emulator_table *lathe_emulator_interface(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_table);
    return &table;
}
