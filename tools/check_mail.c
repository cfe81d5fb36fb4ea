/* SPDX-License-Identifier: Apache-2.0
 * What lies in mailboxes between a launch that publishes a value and the one that receives it, and
 * that nothing lies there afterwards. */
#include <stdlib.h>
#include <string.h>

#include "check_state.h"

enum { SLOTS = 3 };

const char *lathe_check_value_name(const lathe_step_value *v) {
    return v->carried ? v->carried : v->buffer ? v->buffer->name : v->arg->name;
}

bool lathe_check_publishes(const lathe_step_value *v) {
    return v->carried && v->arg->publishes;
}

bool lathe_check_receives(const lathe_step_value *v) {
    return v->carried && !v->arg->publishes;
}

/* The number of the mailbox at any rank: all read the same step.json. */
static int find_mailbox(const lathe_check_state *c, const lathe_step_value *v) {
    for (int i = 0; i < c->table->mailbox_count; ++i)
        if (c->table->mailboxes[i].index == v->mailbox->index)
            return i;
    return -1;
}

static lathe_status read_slot(lathe_check_state *c, int owner, int source, uint32_t ahead,
                              const lathe_step_value *v, void *to, size_t bytes) {
    lathe_engine *e = c->options->engines[owner];
    const int mailbox = find_mailbox(c, v);
    uint32_t epoch = 0;
    lathe_status status = lathe_engine_read_epoch(e, mailbox, &epoch);
    if (status == LATHE_OK)
        status = lathe_engine_read_slot(e, mailbox, epoch % SLOTS + ahead, source, to, bytes);
    return status == LATHE_OK ? status : lathe_check_refuse_engine(c, owner, status);
}

lathe_status lathe_check_read_slot(lathe_check_state *c, int owner, int source,
                                   const lathe_step_value *v, void **to) {
    *to = malloc(v->bytes ? v->bytes : 1);
    if (!*to)
        return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for %s",
                                  lathe_check_value_name(v));
    return read_slot(c, owner, source, 0, v, *to, v->bytes);
}

lathe_status lathe_check_write_slots(lathe_check_state *c, int source, const lathe_step_value *v,
                                     const void *data) {
    lathe_status status = LATHE_OK;
    for (int rank = 0; status == LATHE_OK && rank < c->ranks; ++rank) {
        lathe_engine *e = c->options->engines[rank];
        uint32_t epoch = 0;
        status = lathe_engine_read_epoch(e, find_mailbox(c, v), &epoch);
        if (status == LATHE_OK)
            status = lathe_engine_write_slot(e, find_mailbox(c, v), epoch, source, data, v->bytes);
        if (status != LATHE_OK)
            lathe_check_refuse_engine(c, rank, status);
    }
    return status;
}

lathe_status lathe_check_arrival(lathe_check_state *c, int source, const lathe_step_value *v,
                                 const void *mine, int *owner) {
    for (int rank = 0; rank < c->ranks; ++rank) {
        void *theirs = NULL;
        const lathe_status status = lathe_check_read_slot(c, rank, source, v, &theirs);
        if (status == LATHE_OK && memcmp(mine, theirs, v->bytes) != 0)
            *owner = rank;
        free(theirs);
        if (status != LATHE_OK)
            return status;
    }
    return LATHE_OK;
}

lathe_status lathe_check_empty(lathe_check_state *c, int owner, const lathe_step_value *v,
                               bool *empty) {
    const size_t bytes = (size_t)v->mailbox->bytes;
    unsigned char *slot = malloc(bytes);
    lathe_status status =
        slot ? LATHE_OK
             : lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for %s", v->mailbox->name);
    *empty = true;
    for (int i = 0; status == LATHE_OK && i < SLOTS * c->ranks; ++i) {
        status = read_slot(c, owner, i % c->ranks, (uint32_t)(i / c->ranks), v, slot, bytes);
        for (size_t b = 0; status == LATHE_OK && b < bytes; ++b)
            *empty = *empty && slot[b] == 0xff;
    }
    free(slot);
    return status;
}
