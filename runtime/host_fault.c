/* SPDX-License-Identifier: Apache-2.0
 * What the emulator says about a faulty kernel: one message naming kernel, block and thread. */
#include "host_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void append(lathe_emulator *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void append(lathe_emulator *e, const char *format, ...) {
    const size_t used = strlen(e->message);
    va_list list;
    va_start(list, format);
    vsnprintf(e->message + used, sizeof e->message - used, format, list);
    va_end(list);
}

void lathe_emu_fault(host_thread *t, const char *format, ...) {
    lathe_emulator *e = lathe_emu_active;
    const host_block *b = t->block;
    snprintf(e->message, sizeof e->message,
             "kernel %s, block (%u, %u, %u), thread %u: ", b->grid->from->name, b->index[0],
             b->index[1], b->index[2], t->view.thread);
    const size_t used = strlen(e->message);
    va_list list;
    va_start(list, format);
    vsnprintf(e->message + used, sizeof e->message - used, format, list);
    va_end(list);
    e->failed = true;
    lathe_emu_leave(t);
}

static void describe(lathe_emulator *e, const host_thread *t) {
    static const char *const collectives[] = {
        "", "warp_sync", "warp_shuffle", "warp_shuffle_xor", "warp_ballot", "mma_bf16", "load_transposed"};
    const host_block *b = t->block;
    switch (t->wait) {
    case WAIT_WARP:
        append(e, "%s (%u of 32 lanes are there)", collectives[t->wait_id],
               b->warp[t->view.thread / WARP].arrived);
        break;
    case WAIT_BARRIER:
        if (t->wait_id == CLUSTER_BARRIER) {
            append(e, "cluster_sync (%u of %u threads are there)", b->cluster->barrier.arrived,
                   b->cluster->threads);
            break;
        }
        append(e, "%s %u (%u of %u threads are there)",
               t->wait_id == 0 ? "block_sync, barrier" : "block_sync_named, barrier", t->wait_id,
               b->barrier[t->wait_id].arrived, b->barrier[t->wait_id].threads);
        break;
    case WAIT_MBAR:
        append(e, "mbar_wait at shared byte %ld, parity %u",
               (long)((const unsigned char *)t->wait_object - b->shared), t->wait_parity);
        break;
    case WAIT_GRID:
        append(e, "grid_wait");
        break;
    default:
        append(e, "nothing");
    }
}

static bool same_wait(const host_thread *a, const host_thread *b) {
    return b && a->wait == b->wait && a->wait_id == b->wait_id &&
           a->wait_object == b->wait_object && a->wait_parity == b->wait_parity;
}

static void describe_block(lathe_emulator *e, const host_block *b) {
    append(e, "; kernel %s, block (%u, %u, %u):", b->grid->from->name, b->index[0], b->index[1],
           b->index[2]);
    for (uint32_t i = 0; i < b->threads;) {
        const host_thread *t = b->thread[i];
        uint32_t last = i;
        while (t && last + 1 < b->threads && same_wait(t, b->thread[last + 1]))
            last++;
        if (t) {
            append(e, last > i ? " threads %u-%u in " : " thread %u in ", i, last);
            describe(e, t);
            append(e, ".");
        }
        i = last + 1;
    }
}

void lathe_emu_deadlock(lathe_emulator *e) {
    e->failed = true;
    snprintf(e->message, sizeof e->message, "deadlock: every thread waits and nothing is to come");
    for (const host_block *b = e->blocks; b; b = b->next)
        describe_block(e, b);
}
