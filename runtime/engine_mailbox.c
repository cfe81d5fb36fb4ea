/* SPDX-License-Identifier: Apache-2.0
 * Owns: the Mailbox structs that kernels get. Here a rank is alone: it is its own only peer. With a
 * group, the regions of all ranks come in through `base` and `peer_abort`; nothing else of an
 * engine changes. */
#include <string.h>

#include "engine.h"

#define SLOTS 3
#define TIMEOUT_NS 10000000000ull

/* As templates/prims/README.md lays it out. */
typedef struct {
    uint32_t rank, world;
    uint64_t slot_bytes, timeout_ns;
    void *epoch, *abort, *fault;
    uint32_t exchange, pad;
    void *base[16];
    void *peer_abort[16];
} device_mailbox;

/* One allocation: the struct, its words, then the slots. */
#define WORDS_AT ((sizeof(device_mailbox) + 255) / 256 * 256)
#define SLOTS_AT (WORDS_AT + 256)

static lathe_status fill_mailbox(lathe_engine *e, const lathe_step_mailbox *m, char *memory) {
    const lathe_device_ops *ops = e->device->ops;
    const uint64_t slot_bytes = ((uint64_t)m->bytes + 15) / 16 * 16;
    device_mailbox box = {
        .rank = 0,
        .world = 1,
        .slot_bytes = slot_bytes,
        .timeout_ns = TIMEOUT_NS,
        .fault = memory + WORDS_AT,
        .epoch = memory + WORDS_AT + 64,
        .abort = memory + WORDS_AT + 128,
        .exchange = (uint32_t)m->index,
    };
    box.base[0] = memory + SLOTS_AT;
    box.peer_abort[0] = box.abort;
    lathe_status status = ops->fill(e->device, memory, 0, SLOTS_AT);
    if (status == LATHE_OK) /* every word of an empty slot is the sentinel */
        status = ops->fill(e->device, memory + SLOTS_AT, 0xff, (size_t)slot_bytes * SLOTS);
    if (status == LATHE_OK)
        status = ops->copy_in(e->device, memory, &box, sizeof box);
    return status;
}

lathe_status lathe_engine_open_mailboxes(lathe_engine *e) {
    const lathe_step_table *t = e->table;
    e->mailboxes = lathe_pool_alloc(e->pool, (size_t)t->mailbox_count, sizeof *e->mailboxes);
    if (!e->mailboxes)
        return lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory for mailboxes");
    for (int i = 0; i < t->mailbox_count; ++i) {
        const size_t slot_bytes = ((size_t)t->mailboxes[i].bytes + 15) / 16 * 16;
        lathe_status status =
            e->device->ops->alloc(e->device, SLOTS_AT + slot_bytes * SLOTS, &e->mailboxes[i]);
        if (status == LATHE_OK)
            status = fill_mailbox(e, &t->mailboxes[i], e->mailboxes[i]);
        if (status != LATHE_OK)
            return lathe_engine_fail_device(e, status, t->mailboxes[i].name);
    }
    return LATHE_OK;
}

void lathe_engine_close_mailboxes(lathe_engine *e) {
    for (int i = 0; e->mailboxes && i < e->table->mailbox_count; ++i)
        if (e->mailboxes[i])
            e->device->ops->release(e->device, e->mailboxes[i]);
}
