/* SPDX-License-Identifier: Apache-2.0
 * Barriers in shared memory and the bulk copies that they announce. A copy reads its source and
 * writes its destination when it lands, at a seeded moment; until then the destination is poison.
 */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

static host_mbar *find(host_block *b, const void *address) {
    for (int i = 0; i < b->mbars; i++)
        if (b->mbar[i].address == address)
            return &b->mbar[i];
    return NULL;
}

static long long offset_of(const host_thread *t, const void *p) {
    return (long long)((uintptr_t)p - (uintptr_t)t->view.shared);
}

static bool in_shared(const host_thread *t, const void *p, uint32_t bytes) {
    const uintptr_t offset = (uintptr_t)p - (uintptr_t)t->view.shared;
    return offset <= t->view.shared_bytes && bytes <= t->view.shared_bytes - offset;
}

static host_mbar *require(host_thread *t, const void *address, const char *what) {
    host_mbar *m = find(t->block, address);
    if (!m)
        lathe_emu_fault(t, "%s at shared byte %lld, where no mbar_init() has been", what,
                        offset_of(t, address));
    return m;
}

static void mbar_init(unsigned long long *address, unsigned int arrivals) {
    host_thread *t = lathe_emu_current();
    host_block *b = t->block;
    if (!in_shared(t, address, 8) || (uintptr_t)address % 8 != 0 || arrivals == 0)
        lathe_emu_fault(t, "mbar_init(%u) at shared byte %lld of %u", arrivals,
                        offset_of(t, address), t->view.shared_bytes);
    host_mbar *m = find(b, address);
    if (m && (m->waiters || m->bytes != 0))
        lathe_emu_fault(t, "mbar_init at shared byte %lld, which is in use", offset_of(t, address));
    if (!m) {
        if (b->mbars == MBARRIERS)
            lathe_emu_fault(t, "more than %d mbarriers in a block", MBARRIERS);
        m = &b->mbar[b->mbars++];
    }
    *m = (host_mbar){.address = (uint64_t *)address, .arrivals = arrivals, .pending = arrivals};
}

static void mbar_init_fence(void) {
    host_thread *t = lathe_emu_current();
    for (int i = 0; i < t->block->mbars; i++)
        t->block->mbar[i].fenced = true;
}

static void end_phase_if_due(lathe_emulator *e, host_mbar *m) {
    if (m->pending != 0 || m->bytes != 0)
        return;
    m->phase++;
    m->pending = m->arrivals;
    lathe_emu_useful(e);
    host_thread *waiters = m->waiters;
    m->waiters = NULL;
    while (waiters) {
        host_thread *t = waiters;
        waiters = t->next;
        lathe_emu_ready(e, t);
    }
}

static void arrive(host_thread *t, host_mbar *m, uint32_t bytes) {
    if (m->pending == 0)
        lathe_emu_fault(t,
                        "more arrivals at the mbarrier of shared byte %lld than the %u it was "
                        "initialised with",
                        offset_of(t, m->address), m->arrivals);
    lathe_emu_release(t);
    lathe_emu_learn(&m->known, &t->known);
    m->bytes += bytes;
    m->pending--;
    end_phase_if_due(lathe_emu_active, m);
}

static void mbar_expect(unsigned long long *address, unsigned int bytes) {
    host_thread *t = lathe_emu_current();
    arrive(t, require(t, address, "mbar_expect"), bytes);
}
static void mbar_arrive(unsigned long long *address) {
    host_thread *t = lathe_emu_current();
    arrive(t, require(t, address, "mbar_arrive"), 0);
}

static void mbar_wait(unsigned long long *address, unsigned int parity) {
    host_thread *t = lathe_emu_current();
    host_mbar *m = require(t, address, "mbar_wait");
    while ((m->phase & 1u) == (parity & 1u)) {
        t->wait = WAIT_MBAR;
        t->wait_id = 0;
        t->wait_object = address;
        t->wait_parity = parity & 1u;
        t->next = m->waiters;
        m->waiters = t;
        lathe_emu_stop(t);
        m = require(t, address, "mbar_wait");
    }
    lathe_emu_learn(&t->known, &m->known);
}

/* Waits of the rest of the block that a proxy fence would have ordered cannot be seen afterwards,
 * so an unfenced overwrite is reported when it is asked for. */
static void check_copy(host_thread *t, const void *to, const void *from, uint32_t bytes,
                       const host_mbar *m) {
    if (bytes == 0 || bytes % 16 != 0 || (uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0)
        lathe_emu_fault(t,
                        "bulk_load of %u bytes from %p to shared byte %lld: all must be "
                        "multiples of 16",
                        bytes, from, offset_of(t, to));
    if (!in_shared(t, to, bytes))
        lathe_emu_fault(t, "bulk_load of %u bytes to shared byte %lld of %u", bytes,
                        offset_of(t, to), t->view.shared_bytes);
    if (!m->fenced)
        lathe_emu_fault(t,
                        "bulk_load on the mbarrier of shared byte %lld without "
                        "mbar_init_fence()",
                        offset_of(t, m->address));
    const uint32_t first = (uint32_t)offset_of(t, to) / 16;
    for (uint32_t i = first; i < first + bytes / 16; i++)
        if (t->view.touched[i])
            lathe_emu_fault(t,
                            "bulk_load overwrites shared byte %u, which threads used without "
                            "an async_fence() since",
                            i * 16);
}

static void send_off(host_thread *t, const host_copy *copy) {
    lathe_emulator *e = lathe_emu_active;
    if (e->copy_count == e->copy_room) {
        const int room = e->copy_room ? 2 * e->copy_room : 64;
        host_copy *copies = realloc(e->copies, (size_t)room * sizeof *copies);
        if (!copies)
            lathe_emu_fault(t, "no memory for a copy on its way");
        e->copies = copies;
        e->copy_room = room;
    }
    lathe_emu_poison(e, copy->to, copy->bytes);
    e->copies[e->copy_count++] = *copy;
}

static void bulk_load(void *to, const void *from, unsigned int bytes, unsigned long long *address) {
    host_thread *t = lathe_emu_current();
    host_mbar *m = require(t, address, "bulk_load");
    check_copy(t, to, from, bytes, m);
    const host_copy copy = {
        .block = t->block, .to = to, .from = from, .bytes = bytes, .mbar = (uint64_t *)address};
    send_off(t, &copy);
}

/* The block that `number` of the thread's cluster is, as long as it is there. */
static host_block *mate(host_thread *t, uint32_t number) {
    const host_cluster *c = t->block->cluster;
    if (!c || number >= c->blocks)
        lathe_emu_fault(t, "cluster_send to block %u of a cluster of %u", number,
                        c ? c->blocks : 1u);
    host_block *b = c->block[number];
    if (!b)
        lathe_emu_fault(t, "cluster_send to block %u of the cluster, which has ended", number);
    return b;
}

/* To the same place in that block's shared memory, and to the mbarrier at the same place. */
static void cluster_send(unsigned int number, void *to, unsigned int word,
                         unsigned long long *address) {
    host_thread *t = lathe_emu_current();
    host_block *b = mate(t, number);
    if (!in_shared(t, to, 4) || !in_shared(t, address, 8) || (uintptr_t)to % 4 != 0)
        lathe_emu_fault(t, "cluster_send to shared byte %lld, mbarrier at %lld, of %u",
                        offset_of(t, to), offset_of(t, address), t->view.shared_bytes);
    void *const place = b->shared + offset_of(t, address);
    const host_mbar *m = find(b, place);
    if (!m || !m->fenced)
        lathe_emu_fault(t,
                        "cluster_send to the mbarrier at shared byte %lld of block %u, which has "
                        "not passed mbar_init() and mbar_init_fence()",
                        offset_of(t, address), number);
    const host_copy copy = {
        .block = b, .to = b->shared + offset_of(t, to), .word = word, .bytes = 4, .mbar = place};
    send_off(t, &copy);
}

void lathe_emu_land_copy(lathe_emulator *e, int index) {
    const host_copy c = e->copies[index];
    e->copies[index] = e->copies[--e->copy_count];
    memcpy(c.to, c.from ? c.from : (const unsigned char *)&c.word, c.bytes);
    host_mbar *m = find(c.block, c.mbar);
    if (m) {
        m->bytes -= c.bytes;
        end_phase_if_due(e, m);
    }
}

static void async_fence(void) {
    host_thread *t = lathe_emu_current();
    memset(t->view.touched, 0, (t->view.shared_bytes + 15) / 16);
}

void lathe_emu_fill_bulk(lathe_emulator_table *table) {
    table->mbar_init = mbar_init;
    table->mbar_init_fence = mbar_init_fence;
    table->mbar_expect = mbar_expect;
    table->mbar_arrive = mbar_arrive;
    table->mbar_wait = mbar_wait;
    table->bulk_load = bulk_load;
    table->cluster_send = cluster_send;
    table->async_fence = async_fence;
}
