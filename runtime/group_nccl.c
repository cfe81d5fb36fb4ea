/* SPDX-License-Identifier: Apache-2.0
 * Owns: the group whose ranks meet through NCCL, each with a GPU: bytes are staged in GPU memory
 * and gathered over a communicator of the group's own.
 *
 * Every all-gather begins with one of the sizes, so that ranks that disagree hear it instead of
 * waiting for each other. NCCL does not say which rank is missing. */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_cuda.h"
#include "id_file.h"

#define ROOM 65536 /* bytes of a rank at the start */

typedef struct {
    lathe_group base;
    uint64_t timeout_ns;
    cuda_device *device; /* its main stream carries the gathers */
    lathe_nccl nccl;
    lathe_comm comm;
    char *staging;       /* mine, then all */
    size_t room;         /* bytes of one rank */
    lathe_status broken; /* the first failure; LATHE_OK: none */
} nccl_group;

static lathe_message_buffer message_of(nccl_group *g) {
    return (lathe_message_buffer){g->base.message, sizeof g->base.message};
}

static lathe_status fail_device(nccl_group *g, lathe_status status) {
    return lathe_fail(message_of(g), status, "rank %d: %.200s", g->base.rank,
                      g->device->base.message);
}

static lathe_status reserve(nccl_group *g, size_t bytes) {
    lathe_device *d = &g->device->base;
    void *memory = NULL;
    if (bytes <= g->room)
        return LATHE_OK;
    const size_t room = bytes < ROOM ? ROOM : bytes;
    const lathe_status status = d->ops->alloc(d, room * (size_t)(g->base.world + 1), &memory);
    if (status != LATHE_OK)
        return fail_device(g, status);
    d->ops->release(d, g->staging);
    g->staging = memory;
    g->room = room;
    return LATHE_OK;
}

/* All ranks give equally much. */
static lathe_status gather(nccl_group *g, const void *mine, size_t bytes, void *all) {
    lathe_device *d = &g->device->base;
    lathe_status status = d->ops->copy_in(d, g->staging, mine, bytes);
    if (status != LATHE_OK)
        return fail_device(g, status);
    char *to = g->staging + g->room;
    status = lathe_comm_all_gather(&g->comm, g->staging, to, bytes, NCCL_BYTE,
                                   g->device->streams[0], message_of(g));
    if (status == LATHE_OK)
        status =
            lathe_comm_wait(&g->comm, &g->device->driver, g->device->streams[0], message_of(g));
    if (status != LATHE_OK)
        return status;
    status = d->ops->copy_out(d, all, to, bytes * (size_t)g->base.world);
    return status == LATHE_OK ? status : fail_device(g, status);
}

static lathe_status gather_checked(nccl_group *g, const void *mine, size_t bytes, void *all) {
    const lathe_status kept = reserve(g, bytes);
    /* A rank without memory tells a size that no other has. */
    const uint64_t size = kept == LATHE_OK ? bytes : UINT64_MAX;
    uint64_t sizes[LATHE_GROUP_MAX];
    const lathe_status status = gather(g, &size, sizeof size, sizes);
    if (status != LATHE_OK)
        return status;
    if (kept != LATHE_OK)
        return lathe_fail(message_of(g), LATHE_PEER_LOST, "rank %d: no memory for an all-gather",
                          g->base.rank);
    for (int r = 0; r < g->base.world; ++r) {
        if (sizes[r] == UINT64_MAX)
            return lathe_fail(message_of(g), LATHE_PEER_LOST,
                              "rank %d has no memory for an all-gather", r);
        if (sizes[r] != bytes)
            return lathe_fail(message_of(g), LATHE_DISAGREE,
                              "ranks are at different calls: rank %d gave %llu bytes to an "
                              "all-gather, rank %d gave %zu",
                              r, (unsigned long long)sizes[r], g->base.rank, bytes);
    }
    return bytes ? gather(g, mine, bytes, all) : LATHE_OK;
}

static lathe_status all_gather(lathe_group *base, const void *mine, size_t bytes, void *all) {
    nccl_group *g = (nccl_group *)base;
    const bool limited = base->limit_ns && base->limit_ns < g->timeout_ns;
    if (g->broken != LATHE_OK)
        return g->broken; /* the message of the first failure stays */
    lathe_status status = cuda_enter(g->device);
    if (status != LATHE_OK)
        return fail_device(g, status);
    g->comm.timeout_ns = limited ? base->limit_ns : g->timeout_ns;
    status = gather_checked(g, mine, bytes, all);
    if (status == LATHE_OK)
        return LATHE_OK;
    g->broken = status == LATHE_DISAGREE ? status : LATHE_PEER_LOST;
    if (status != LATHE_DISAGREE)                          /* which every rank has heard of */
        lathe_comm_abort(&g->comm, "the group is broken"); /* the others hear of it */
    return g->broken;
}

static void destroy(lathe_group *base) {
    nccl_group *g = (nccl_group *)base;
    if (g->device) {
        lathe_device *d = &g->device->base;
        if (cuda_enter(g->device) == LATHE_OK)
            lathe_comm_destroy(&g->comm);
        d->ops->release(d, g->staging);
        d->ops->destroy(d);
    }
    if (!g->comm.aborting) /* else its thread still runs in there */
        lathe_nccl_close(&g->nccl);
    free(g);
}

static lathe_status find_id(nccl_group *g, const lathe_nccl_group *o, nccl_id *id,
                            lathe_message_buffer message) {
    if (o->id) {
        memcpy(id, o->id, sizeof *id);
        return LATHE_OK;
    }
    if (o->rank != 0)
        return lathe_id_file_read(o->file, id, sizeof *id, o->timeout_ns, message);
    const lathe_status status = lathe_nccl_make_id(&g->nccl, id, message);
    return status == LATHE_OK ? lathe_id_file_write(o->file, id, sizeof *id, message) : status;
}

static lathe_status open_device(nccl_group *g, const lathe_nccl_group *o,
                                lathe_message_buffer message) {
    lathe_device *d = NULL;
    const lathe_status status =
        lathe_device_cuda_create(o->ordinal, &d, message.text, message.size);
    if (status != LATHE_OK)
        return status;
    g->device = (cuda_device *)d;
    return reserve(g, ROOM) == LATHE_OK
               ? LATHE_OK
               : lathe_fail(message, LATHE_NO_MEMORY, "%s", g->base.message);
}

static lathe_status open_group(nccl_group *g, const lathe_nccl_group *o,
                               lathe_message_buffer message) {
    nccl_id id;
    lathe_status status = lathe_nccl_open(o->nccl, &g->nccl, message);
    if (status == LATHE_OK)
        status = open_device(g, o, message);
    if (status == LATHE_OK)
        status = find_id(g, o, &id, message);
    if (status == LATHE_OK)
        status =
            lathe_comm_create(&g->nccl, o->rank, o->world, &id, o->timeout_ns, &g->comm, message);
    if (status == LATHE_OK && o->file && !o->id && o->rank == 0)
        lathe_id_file_remove(o->file); /* all have read it */
    return status;
}

static lathe_status check_options(const lathe_nccl_group *o, lathe_message_buffer message) {
    if (!o || o->size != sizeof *o)
        return lathe_fail(message, LATHE_INVALID, "group: options of another size");
    if (o->world < 1 || o->world > LATHE_GROUP_MAX || o->rank < 0 || o->rank >= o->world)
        return lathe_fail(message, LATHE_INVALID,
                          "group: found rank %d of %d, allowed: at most %d ranks, from 0", o->rank,
                          o->world, LATHE_GROUP_MAX);
    if (!o->id && !o->file)
        return lathe_fail(message, LATHE_INVALID, "group: neither an id nor a file for it");
    return LATHE_OK;
}

lathe_status lathe_group_nccl_create(const lathe_nccl_group *o, lathe_group **group, char *message,
                                     size_t size) {
    static const lathe_group_ops ops = {all_gather, destroy};
    const lathe_message_buffer out = {message, size};
    *group = NULL;
    lathe_status status = check_options(o, out);
    if (status != LATHE_OK)
        return status;
    nccl_group *g = calloc(1, sizeof *g);
    if (!g)
        return lathe_fail(out, LATHE_NO_MEMORY, "no memory for a group");
    g->base = (lathe_group){.ops = &ops, .rank = o->rank, .world = o->world};
    g->timeout_ns = o->timeout_ns;
    status = open_group(g, o, out);
    if (status == LATHE_OK)
        *group = &g->base;
    else
        destroy(&g->base);
    return status;
}

lathe_status lathe_group_nccl_id(const char *where, void *id, char *message, size_t size) {
    const lathe_message_buffer out = {message, size};
    lathe_nccl nccl;
    nccl_id made;
    lathe_status status = lathe_nccl_open(where, &nccl, out);
    if (status == LATHE_OK)
        status = lathe_nccl_make_id(&nccl, &made, out);
    if (status == LATHE_OK)
        memcpy(id, &made, sizeof made);
    lathe_nccl_close(&nccl);
    return status;
}
