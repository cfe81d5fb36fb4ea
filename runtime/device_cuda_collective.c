/* SPDX-License-Identifier: Apache-2.0
 * Owns: the CUDA device's collectives, by NCCL on the engine's own streams. The algorithm and the
 * protocol, and with them the order of a sum, are NCCL's choice for a message of that size unless
 * NCCL_ALGO and NCCL_PROTO pin them; the number of GPU blocks is pinned here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_cuda.h"
#include "group.h"

#define CREATE_NS 120000000000ull /* connections between hosts take seconds */
#define LARGEST ((size_t)1 << 18)

/* What every rank tells before a communicator is made. */
typedef struct {
    nccl_id id; /* rank 0's counts */
    int32_t version;
    int32_t status;
    char pins[64]; /* of algorithm and protocol: a sum's order hangs on them */
} offer;

static lathe_message_buffer message_of(cuda_device *d) {
    return (lathe_message_buffer){d->base.message, sizeof d->base.message};
}

/* Every rank has NCCL, and the same one; else none goes on. */
static lathe_status check_offers(cuda_device *d, const offer *all, int world) {
    for (int r = 0; r < world; ++r) {
        if (all[r].status != LATHE_OK)
            return cuda_refuse(d, (lathe_status)all[r].status, "rank %d has no NCCL", r);
        if (all[r].version != all[0].version)
            return cuda_refuse(d, LATHE_DISAGREE, "NCCL of rank %d is %d, of rank 0 %d", r,
                               all[r].version, all[0].version);
        if (memcmp(all[r].pins, all[0].pins, sizeof all[r].pins) != 0)
            return cuda_refuse(d, LATHE_DISAGREE,
                               "NCCL_ALGO and NCCL_PROTO of rank %d are \"%.63s\", of rank 0 "
                               "\"%.63s\"",
                               r, all[r].pins, all[0].pins);
    }
    return LATHE_OK;
}

static void name_pins(char *text, size_t size) {
    const char *algorithm = getenv("NCCL_ALGO"), *protocol = getenv("NCCL_PROTO");
    snprintf(text, size, "%s %s", algorithm ? algorithm : "", protocol ? protocol : "");
}

static lathe_status exchange_id(cuda_device *d, lathe_group *group, nccl_id *id) {
    offer mine = {0}, all[LATHE_GROUP_MAX];
    lathe_status status = lathe_nccl_open(NULL, &d->nccl, message_of(d));
    if (status == LATHE_OK && group->rank == 0)
        status = lathe_nccl_make_id(&d->nccl, &mine.id, message_of(d));
    mine.version = d->nccl.version;
    name_pins(mine.pins, sizeof mine.pins);
    mine.status = (int32_t)status;
    const lathe_status met = lathe_group_all_gather(group, &mine, sizeof mine, all);
    if (status != LATHE_OK)
        return status; /* its message says more than the others' */
    if (met != LATHE_OK)
        return cuda_refuse(d, met, "collectives: %s", group->message);
    *id = all[0].id;
    return check_offers(d, all, group->world);
}

/* The library connects the ranks at the first collectives of a size; that takes long, may not fall
 * into a step, and not into a capture. */
static lathe_status connect_ranks(cuda_device *d, lathe_device *base, int world) {
    static const size_t counts[] = {4, 4096, LARGEST};
    void *memory = NULL;
    const size_t bytes = LARGEST * sizeof(float) * (size_t)(world + 1);
    lathe_status status = base->ops->alloc(base, bytes, &memory);
    if (status == LATHE_OK)
        status = base->ops->fill(base, memory, 0, bytes);
    char *to = (char *)memory + LARGEST * sizeof(float);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && status == LATHE_OK; ++i) {
        status = lathe_comm_all_reduce(&d->comm, memory, to, counts[i], NCCL_FLOAT32, d->streams[0],
                                       message_of(d));
        if (status == LATHE_OK)
            status = lathe_comm_all_gather(&d->comm, memory, to, counts[i] * sizeof(float),
                                           NCCL_BYTE, d->streams[0], message_of(d));
    }
    if (status == LATHE_OK)
        status = lathe_comm_wait(&d->comm, &d->driver, d->streams[0], message_of(d));
    base->ops->release(base, memory);
    return status;
}

lathe_status cuda_open_collectives(lathe_device *base, lathe_group *group, uint64_t timeout_ns) {
    cuda_device *d = (cuda_device *)base;
    nccl_id id;
    lathe_status status = cuda_enter(d);
    if (status != LATHE_OK)
        return status;
    if (d->comm.handle)
        return cuda_refuse(d, LATHE_INVALID, "collectives are open already");
    status = exchange_id(d, group, &id);
    if (status == LATHE_OK)
        status = lathe_comm_create(&d->nccl, group->rank, group->world, &id, CREATE_NS, &d->comm,
                                   message_of(d));
    if (status == LATHE_OK) {
        status = connect_ranks(d, base, group->world);
        d->collective = true;
    }
    d->comm.timeout_ns = timeout_ns;
    return status;
}

void cuda_close_collectives(cuda_device *d) {
    if (d->collective)
        lathe_comm_destroy(&d->comm);
    d->collective = false;
}

static int type_of(lathe_scalar dtype) {
    switch (dtype) {
    case LATHE_SCALAR_BF16:
        return NCCL_BFLOAT16;
    case LATHE_SCALAR_F32:
        return NCCL_FLOAT32;
    case LATHE_SCALAR_I32:
        return NCCL_INT32;
    default:
        return -1;
    }
}

static lathe_status enqueue(cuda_device *d, int stream, lathe_collective kind, lathe_scalar dtype,
                            const void *from, void *to, size_t count) {
    const int type = type_of(dtype);
    if (kind == LATHE_COLLECTIVE_ALL_GATHER)
        return lathe_comm_all_gather(&d->comm, from, to, count * lathe_scalar_bytes(dtype),
                                     NCCL_BYTE, d->streams[stream], message_of(d));
    if (type < 0)
        return cuda_refuse(d, LATHE_UNSUPPORTED, "all_reduce: found %s, allowed: bf16, f32, i32",
                           lathe_scalar_name(dtype));
    return lathe_comm_all_reduce(&d->comm, from, to, count, type, d->streams[stream],
                                 message_of(d));
}

lathe_status cuda_collective(lathe_device *base, int stream, lathe_collective kind,
                             lathe_scalar dtype, const void *from, void *to, size_t count) {
    cuda_device *d = (cuda_device *)base;
    if (!d->collective)
        return cuda_refuse(d, LATHE_INVALID, "a collective before open_collectives");
    lathe_status status = cuda_enter(d);
    if (status == LATHE_OK)
        status = enqueue(d, stream, kind, dtype, from, to, count);
    d->pending = d->pending || !d->recording;
    return status == LATHE_OK && d->recording ? cuda_record_launch(d, d->streams[stream], NULL)
                                              : status;
}

/* It must end though a rank is lost. Where the abort has freed the stream, memory can be read. */
lathe_status cuda_wait_collectives(cuda_device *d) {
    const lathe_status status = lathe_comm_wait(&d->comm, &d->driver, d->streams[0], message_of(d));
    d->pending = status != LATHE_OK && !lathe_comm_settle(&d->driver, d->streams[0]);
    return status;
}

lathe_status cuda_check_collectives(cuda_device *d) {
    return d->collective && !d->comm.handle ? lathe_comm_refuse_lost(&d->comm, message_of(d))
                                            : LATHE_OK;
}
