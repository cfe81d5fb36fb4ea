/* SPDX-License-Identifier: Apache-2.0
 * Owns: the Mailbox structs that kernels get, and the rendezvous of their memory. A rank alone is
 * its own and only peer; with a group every rank learns the others' regions by all-gather.
 *
 * The order matters: a region is emptied before anyone else knows of it, so that no early packet is
 * lost, and every directed pair is proved by data before a kernel relies on it. A rank whose part
 * fails still comes to every meeting, so that all are refused together and all know why. */
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "place.h"

#define SLOTS 3
#define TIMEOUT_NS 2000000000ull

/* As templates/prims/README.md lays it out. */
typedef struct {
    uint32_t rank, world;
    uint64_t slot_bytes, timeout_ns;
    void *epoch, *abort, *fault;
    uint32_t exchange, pad;
    void *base[LATHE_GROUP_MAX];
    void *peer_abort[LATHE_GROUP_MAX];
} device_mailbox;

/* One allocation: the struct, its words, then the slots: [slot][source rank][payload]. The words:
 * fault at 0, epoch at 64, abort and a peer's record at 128, and what proves the pairs, a word per
 * source, at 192. Fault and abort of the first mailbox serve all: once a rank gives up, no exchange
 * of the step waits. */
#define WORDS_AT ((sizeof(device_mailbox) + 255) / 256 * 256)
#define EPOCH_AT (WORDS_AT + 64)
#define ABORT_AT (WORDS_AT + 128)
#define PROOF_AT (WORDS_AT + 192)
#define SLOTS_AT (WORDS_AT + 256)

/* What a rank tells the others. In the same process the address is enough; in another one of the
 * same machine the memory is mapped. */
typedef struct {
    lathe_place place;
    const lathe_device *device;
    char *memory;
    lathe_shared_handle shared;
    char refused[160]; /* why it cannot be shared, or "" */
} handle;

/* Whether a rank's part went well, as all ranks hear it. */
typedef struct {
    int32_t status;
    char reason[252];
} verdict;

#define DESTROY_NS 5000000000ull /* that other ranks may take to come to the end */

static uint64_t slot_bytes(const lathe_step_mailbox *m) {
    return ((uint64_t)m->bytes + 15) / 16 * 16;
}

static lathe_status fail_group(lathe_engine *e, lathe_status status) {
    return lathe_engine_fail(e, status, "mailboxes: %s", e->options.group->message);
}

static lathe_status gather_handles(lathe_engine *e, char *memory, handle *handles) {
    handle mine = {.place = lathe_place_here(), .device = e->device, .memory = memory};
    lathe_group *group = e->options.group;
    if (!group) {
        for (int r = 0; r < lathe_engine_world(e); ++r)
            handles[r] = mine;
        return LATHE_OK;
    }
    if (memory && e->device->ops->share(e->device, memory, &mine.shared) != LATHE_OK)
        snprintf(mine.refused, sizeof mine.refused, "%.150s", e->device->message);
    const lathe_status status = lathe_group_all_gather(group, &mine, sizeof mine, handles);
    return status == LATHE_OK ? status : fail_group(e, status);
}

/* Makes the memory of rank `r` addressable; its address becomes this process's. */
static lathe_status reach_rank(lathe_engine *e, handle *h, int r, void **mapped) {
    const lathe_device_ops *ops = e->device->ops;
    const lathe_place here = lathe_place_here();
    if (!h->memory)
        return lathe_engine_fail(e, LATHE_UNSUPPORTED, "rank %d has no memory for it", r);
    if (h->place.machine != here.machine)
        return lathe_engine_fail(e, LATHE_UNSUPPORTED, "rank %d runs on another machine", r);
    if (h->place.process == here.process) {
        const lathe_status status = ops->open_peer(e->device, h->device);
        return status == LATHE_OK ? status : lathe_engine_fail(e, status, "%s", e->device->message);
    }
    if (h->refused[0])
        return lathe_engine_fail(e, LATHE_UNSUPPORTED, "memory of rank %d is not shared: %s", r,
                                 h->refused);
    const lathe_status status = ops->open_shared(e->device, &h->shared, mapped);
    h->memory = *mapped;
    return status == LATHE_OK
               ? status
               : lathe_engine_fail(e, status, "memory of rank %d: %s", r, e->device->message);
}

static lathe_status reach_all(lathe_engine *e, handle *handles, void **mapped) {
    lathe_status status = LATHE_OK;
    for (int r = 0; e->options.group && r < lathe_engine_world(e) && status == LATHE_OK; ++r)
        if (r != e->options.rank)
            status = reach_rank(e, &handles[r], r, &mapped[r]);
    return status;
}

static lathe_status empty_region(lathe_engine *e, const lathe_step_mailbox *m, char *memory) {
    const lathe_device_ops *ops = e->device->ops;
    lathe_status status = ops->fill(e->device, memory, 0, SLOTS_AT);
    if (status == LATHE_OK) /* every word of an empty slot is the sentinel */
        status = ops->fill(e->device, memory + SLOTS_AT, 0xff,
                           (size_t)slot_bytes(m) * SLOTS * (size_t)lathe_engine_world(e));
    return status == LATHE_OK ? status : lathe_engine_fail_device(e, status, m->name);
}

/* What is pushed to rank `r` in loop-back lands where rank `r` would push: a rank alone then fills
 * and empties as many slots and bytes as among others. */
static uintptr_t loop_back(const lathe_engine *e, const lathe_step_mailbox *m, int r) {
    return e->options.loopback ? (uintptr_t)(r - e->options.rank) * slot_bytes(m) : 0;
}

/* `first`: handles of the first mailbox. */
static lathe_status write_struct(lathe_engine *e, const lathe_step_mailbox *m, char *memory,
                                 const handle *handles, const handle *first) {
    device_mailbox box = {
        .rank = (uint32_t)e->options.rank,
        .world = (uint32_t)lathe_engine_world(e),
        .slot_bytes = slot_bytes(m),
        .timeout_ns = e->options.timeout_ns ? e->options.timeout_ns : TIMEOUT_NS,
        .fault = first[e->options.rank].memory + WORDS_AT,
        .epoch = memory + EPOCH_AT,
        .abort = first[e->options.rank].memory + ABORT_AT,
        .exchange = (uint32_t)m->index,
    };
    for (int r = 0; r < lathe_engine_world(e); ++r) {
        box.base[r] = (void *)((uintptr_t)handles[r].memory + SLOTS_AT + loop_back(e, m, r));
        box.peer_abort[r] = first[r].memory + ABORT_AT;
    }
    const lathe_status status = e->device->ops->copy_in(e->device, memory, &box, sizeof box);
    return status == LATHE_OK ? status : lathe_engine_fail_device(e, status, m->name);
}

static uint32_t proof_word(int from, int to) {
    return 0x4c610000u + (uint32_t)(from * LATHE_GROUP_MAX + to);
}

/* Every rank writes a word of its own into every other rank's memory. */
static lathe_status write_proofs(lathe_engine *e, const handle *handles) {
    lathe_status status = LATHE_OK;
    for (int r = 0; r < lathe_engine_world(e) && status == LATHE_OK; ++r) {
        const uint32_t word = proof_word(e->options.rank, r);
        status = e->device->ops->copy_in(
            e->device, handles[r].memory + PROOF_AT + 4 * e->options.rank, &word, sizeof word);
        if (status != LATHE_OK)
            lathe_engine_fail(e, status, "writing to rank %d: %s", r, e->device->message);
    }
    return status;
}

static lathe_status read_proofs(lathe_engine *e, const char *memory) {
    uint32_t words[LATHE_GROUP_MAX];
    lathe_status status =
        e->device->ops->copy_out(e->device, words, memory + PROOF_AT, sizeof words);
    if (status != LATHE_OK)
        return lathe_engine_fail(e, status, "%s", e->device->message);
    for (int r = 0; r < lathe_engine_world(e); ++r)
        if (words[r] != proof_word(r, e->options.rank))
            status = lathe_engine_fail(
                e, LATHE_UNSUPPORTED,
                "peer access is claimed, but what rank %d wrote did not arrive", r);
    return status;
}

static const char *const elsewhere =
    "; a deployment whose exchanges go by NCCL (the name is nccl) needs no peer access";

/* What fails on one rank refuses the build on every rank, with the first reason. */
static lathe_status agree(lathe_engine *e, const lathe_step_mailbox *m, lathe_status status) {
    verdict mine = {.status = (int32_t)status}, all[LATHE_GROUP_MAX];
    lathe_group *group = e->options.group;
    if (!group)
        return status;
    if (status != LATHE_OK)
        snprintf(mine.reason, sizeof mine.reason, "%.250s", e->message);
    const lathe_status met = lathe_group_all_gather(group, &mine, sizeof mine, all);
    if (met != LATHE_OK)
        return fail_group(e, met);
    for (int r = 0; r < lathe_engine_world(e); ++r) {
        all[r].reason[sizeof all[r].reason - 1] = '\0';
        if (all[r].status != LATHE_OK)
            return lathe_engine_fail(e, (lathe_status)all[r].status, "mailbox %s: rank %d: %s%s",
                                     m->name, r, all[r].reason,
                                     all[r].status == LATHE_UNSUPPORTED ? elsewhere : "");
    }
    return LATHE_OK;
}

/* Alone, memory like any other; else such as other processes may map. */
static lathe_status open_mailbox(lathe_engine *e, const lathe_step_mailbox *m, void **memory) {
    const lathe_device_ops *ops = e->device->ops;
    const size_t bytes = SLOTS_AT + (size_t)slot_bytes(m) * SLOTS * (size_t)lathe_engine_world(e);
    const lathe_status status = e->options.group ? ops->alloc_shared(e->device, bytes, memory)
                                                 : ops->alloc(e->device, bytes, memory);
    return status == LATHE_OK ? status : lathe_engine_fail_device(e, status, m->name);
}

/* Lets go of what the ranks shared before. */
static void unmap_ranks(lathe_engine *e, void **mapped) {
    for (int r = 0; r < LATHE_GROUP_MAX; ++r) {
        if (mapped[r])
            e->device->ops->close_shared(e->device, mapped[r]);
        mapped[r] = NULL;
    }
}

/* Launches that begin early stay on the GPU while they wait, and so do those behind them: where a
 * kernel polls for a rank of the same GPU, they would take the room that this rank's kernels need.
 * So ranks that share a GPU begin nothing early. */
static void look_for_company(lathe_engine *e, const handle *handles) {
    const lathe_place here = lathe_place_here();
    e->crowded = false;
    for (int r = 0; e->options.group && r < lathe_engine_world(e); ++r)
        e->crowded = e->crowded || (r != e->options.rank && e->device->info.gpu >= 0 &&
                                    handles[r].place.machine == here.machine &&
                                    handles[r].place.process == here.process &&
                                    handles[r].device->info.gpu == e->device->info.gpu);
}

/* Collective: what build does once and rejoin again. */
static lathe_status meet(lathe_engine *e, const lathe_step_mailbox *m, char *memory, void **mapped,
                         handle *first) {
    handle handles[LATHE_GROUP_MAX];
    unmap_ranks(e, mapped);
    lathe_status status = agree(e, m, empty_region(e, m, memory));
    if (status == LATHE_OK)
        status = gather_handles(e, memory, handles);
    if (status != LATHE_OK)
        return status;
    look_for_company(e, handles);
    status = reach_all(e, handles, mapped);
    if (m == &e->table->mailboxes[0])
        memcpy(first, handles, sizeof handles);
    if (status == LATHE_OK)
        status = write_struct(e, m, memory, handles, first);
    if (status == LATHE_OK && e->options.group)
        status = write_proofs(e, handles);
    status = agree(e, m, status);
    if (status != LATHE_OK || !e->options.group)
        return status;
    return agree(e, m, read_proofs(e, memory));
}

static lathe_status meet_all(lathe_engine *e) {
    handle first[LATHE_GROUP_MAX];
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i < e->table->mailbox_count; ++i)
        status = meet(e, &e->table->mailboxes[i], e->mailboxes[i], &e->mapped[i * LATHE_GROUP_MAX],
                      first);
    return status;
}

lathe_status lathe_engine_open_mailboxes(lathe_engine *e) {
    const lathe_step_table *t = e->table;
    const size_t count = (size_t)t->mailbox_count;
    e->mailboxes = lathe_pool_alloc(e->pool, count, sizeof *e->mailboxes);
    e->mapped = lathe_pool_alloc(e->pool, count * LATHE_GROUP_MAX, sizeof *e->mapped);
    if (!e->mailboxes || !e->mapped)
        return lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory for mailboxes");
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i < t->mailbox_count; ++i)
        status = agree(e, &t->mailboxes[i], open_mailbox(e, &t->mailboxes[i], &e->mailboxes[i]));
    return status == LATHE_OK ? meet_all(e) : status;
}

/* The barrier keeps a rank that comes back first from emptying what another still runs on. */
lathe_status lathe_engine_reset_mailboxes(lathe_engine *e) {
    lathe_group *group = e->options.group;
    const lathe_status status = group ? lathe_group_barrier(group) : LATHE_OK;
    return status == LATHE_OK ? meet_all(e) : fail_group(e, status);
}

lathe_status lathe_engine_skew(lathe_engine *e, int mailbox) {
    uint32_t epoch = 0;
    if (mailbox < 0 || mailbox >= e->table->mailbox_count)
        return lathe_engine_fail(e, LATHE_INVALID, "there is no mailbox %d", mailbox);
    char *at = (char *)e->mailboxes[mailbox] + EPOCH_AT;
    lathe_status status = e->device->ops->copy_out(e->device, &epoch, at, sizeof epoch);
    ++epoch;
    if (status == LATHE_OK)
        status = e->device->ops->copy_in(e->device, at, &epoch, sizeof epoch);
    return status == LATHE_OK
               ? status
               : lathe_engine_fail_device(e, status, e->table->mailboxes[mailbox].name);
}

lathe_status lathe_engine_read_fault(lathe_engine *e, lathe_engine_fault *f) {
    uint64_t fault[4];
    uint32_t words[8]; /* abort, padding, a peer's record */
    const lathe_device_ops *ops = e->device->ops;
    *f = (lathe_engine_fault){0};
    if (e->table->mailbox_count == 0)
        return LATHE_OK;
    char *memory = e->mailboxes[0];
    lathe_status status = ops->copy_out(e->device, fault, memory + WORDS_AT, sizeof fault);
    if (status == LATHE_OK)
        status = ops->copy_out(e->device, words, memory + ABORT_AT, sizeof words);
    if (status != LATHE_OK)
        return lathe_engine_fail_device(e, status, e->table->mailboxes[0].name);
    if (fault[0])
        *f = (lathe_engine_fault){(int)fault[0], (int)fault[1], e->options.rank, (int)fault[2],
                                  (uint32_t)fault[3]};
    else if (words[0])
        *f = (lathe_engine_fault){(int)(words[4] >> 16), (int)(words[4] & 0xffffu), (int)words[7],
                                  (int)words[5], words[6]};
    return LATHE_OK;
}

static lathe_status read_region(lathe_engine *e, int mailbox, size_t offset, void *host,
                                size_t bytes) {
    if (!e->mailboxes || mailbox < 0 || mailbox >= e->table->mailbox_count)
        return lathe_engine_fail(e, LATHE_INVALID, "there is no mailbox %d", mailbox);
    const char *memory = e->mailboxes[mailbox];
    const lathe_status status = e->device->ops->copy_out(e->device, host, memory + offset, bytes);
    return status == LATHE_OK
               ? status
               : lathe_engine_fail_device(e, status, e->table->mailboxes[mailbox].name);
}

lathe_status lathe_engine_read_epoch(lathe_engine *e, int mailbox, uint32_t *epoch) {
    return read_region(e, mailbox, EPOCH_AT, epoch, sizeof *epoch);
}

/* Where what `source` sends in exchange `epoch` lies; 0 with a message where nowhere. */
static size_t find_slot(lathe_engine *e, int mailbox, uint32_t epoch, int source, size_t bytes) {
    if (mailbox < 0 || mailbox >= e->table->mailbox_count || source < 0 ||
        source >= lathe_engine_world(e) || bytes > slot_bytes(&e->table->mailboxes[mailbox])) {
        lathe_engine_fail(e, LATHE_INVALID, "mailbox %d: no %zu bytes from rank %d", mailbox, bytes,
                          source);
        return 0;
    }
    const size_t slot = (size_t)(epoch % SLOTS) * (size_t)lathe_engine_world(e) + (size_t)source;
    return SLOTS_AT + slot * slot_bytes(&e->table->mailboxes[mailbox]);
}

lathe_status lathe_engine_read_slot(lathe_engine *e, int mailbox, uint32_t epoch, int source,
                                    void *host, size_t bytes) {
    const size_t at = find_slot(e, mailbox, epoch, source, bytes);
    return at ? read_region(e, mailbox, at, host, bytes) : LATHE_INVALID;
}

lathe_status lathe_engine_write_slot(lathe_engine *e, int mailbox, uint32_t epoch, int source,
                                     const void *host, size_t bytes) {
    const size_t at = find_slot(e, mailbox, epoch, source, bytes);
    if (!at || !e->mailboxes)
        return LATHE_INVALID;
    char *memory = e->mailboxes[mailbox];
    const lathe_status status = e->device->ops->copy_in(e->device, memory + at, host, bytes);
    return status == LATHE_OK
               ? status
               : lathe_engine_fail_device(e, status, e->table->mailboxes[mailbox].name);
}

/* Whether other processes' memory was mapped; kernels that may still write there end first. */
static bool unmap_all(lathe_engine *e) {
    const int count = e->mapped ? e->table->mailbox_count * LATHE_GROUP_MAX : 0;
    bool any = false;
    for (int i = 0; i < count; ++i)
        any = any || e->mapped[i];
    if (any && e->device->ops->synchronize(e->device) != LATHE_OK)
        lathe_logger_write(&e->log, LATHE_LOG_NOTE, "the last step did not end well");
    for (int i = 0; any && i < e->table->mailbox_count; ++i)
        unmap_ranks(e, &e->mapped[i * LATHE_GROUP_MAX]);
    return any;
}

/* Memory that another process maps goes back after it let go. A rank that is lost is waited for
 * only so long; what it still maps stays valid in its own process. */
void lathe_engine_close_mailboxes(lathe_engine *e) {
    lathe_group *group = e->options.group;
    if (group && unmap_all(e) && e->state == LATHE_ENGINE_BUILT) {
        group->limit_ns = DESTROY_NS;
        if (lathe_group_barrier(group) != LATHE_OK)
            lathe_logger_write(&e->log, LATHE_LOG_NOTE, "not all ranks came to the end");
        group->limit_ns = 0;
    }
    for (int i = 0; e->mailboxes && i < e->table->mailbox_count; ++i)
        if (e->mailboxes[i])
            e->device->ops->release(e->device, e->mailboxes[i]);
}
