/* SPDX-License-Identifier: Apache-2.0
 * Owns: a communicator from create to destroy: every call polled to its deadline, then aborted.
 *
 * ncclCommAbort first tells the communicator's kernels to end, and then waits until every graph
 * that holds one of them is destroyed, which comes after it. So it has a thread of its own, which
 * is waited for when the communicator is destroyed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deadline.h"
#include "nccl.h"

#define POLL_NS 20000
#define SPINS 2000 /* polls before the first sleep: a call mostly ends within microseconds */
/* Of the GPU's blocks: a fixed number, so that a sum is cut alike in every run. */
#define BLOCKS 8
#define SETTLE_NS 200000000   /* for kernels to end after an abort */
#define JOIN_NS 5000000000ull /* for an abort to end once the graphs are gone */

static lathe_deadline start(const lathe_comm *c) {
    return lathe_deadline_in(c->timeout_ns);
}

/* False once the time is up. */
static bool pause_until(lathe_deadline *d) {
    return lathe_deadline_rest(d, SPINS, POLL_NS);
}

/* What the thread of an abort needs; its own, since the communicator may be gone before it. */
typedef struct {
    nccl_result (*abort)(nccl_comm comm);
    nccl_comm handle;
} abortion;

static void *run_abort(void *context) {
    const abortion a = *(const abortion *)context;
    free(context);
    (void)a.abort(a.handle);
    return NULL;
}

void lathe_comm_abort(lathe_comm *c, const char *why) {
    if (!c->handle)
        return;
    snprintf(c->lost, sizeof c->lost, "%s", why);
    abortion *a = malloc(sizeof *a);
    if (a)
        *a = (abortion){c->nccl->abort, c->handle};
    c->aborting = a && pthread_create(&c->aborter, NULL, run_abort, a) == 0;
    if (!c->aborting) { /* better late than never */
        free(a);
        (void)c->nccl->abort(c->handle);
    }
    c->handle = NULL;
}

/* An abort that does not end is left to itself, and `aborting` says so. */
static void join_abort(lathe_comm *c) {
    lathe_deadline d = lathe_deadline_in(JOIN_NS);
    if (!c->aborting)
        return;
    while (pthread_tryjoin_np(c->aborter, NULL) == EBUSY)
        if (!pause_until(&d)) {
            pthread_detach(c->aborter);
            return;
        }
    c->aborting = false;
}

lathe_status lathe_comm_refuse_lost(const lathe_comm *c, lathe_message_buffer message) {
    return lathe_fail(message, LATHE_PEER_LOST, "rank %d: the communicator is gone: %s", c->rank,
                      c->lost);
}

static lathe_status fail_late(lathe_comm *c, const char *call, lathe_message_buffer message) {
    char why[160];
    snprintf(why, sizeof why,
             "%s: a rank did not come within %.1f s (NCCL says neither which nor where)", call,
             (double)c->timeout_ns * 1e-9);
    lathe_comm_abort(c, why);
    return lathe_fail(message, LATHE_PEER_LOST, "rank %d: %s", c->rank, why);
}

static lathe_status fail_call(lathe_comm *c, const char *call, nccl_result result,
                              lathe_message_buffer message) {
    const char *last = c->nccl->last_error(c->handle);
    char why[240];
    snprintf(why, sizeof why, "%s: %s (%d)%s%s", call, c->nccl->result_text(result), result,
             last && last[0] ? ": " : "", last ? last : "");
    lathe_comm_abort(c, why);
    return lathe_fail(message, result == NCCL_REMOTE ? LATHE_PEER_LOST : LATHE_DEVICE_FAULT,
                      "rank %d: %s", c->rank, why);
}

/* Follows a call that was made until NCCL is done with it. */
static lathe_status finish(lathe_comm *c, const char *call, nccl_result result,
                           lathe_message_buffer message) {
    lathe_deadline d = start(c);
    while (result == NCCL_IN_PROGRESS) {
        nccl_result state = NCCL_OK;
        const nccl_result asked = c->nccl->state(c->handle, &state);
        result = asked == NCCL_OK ? state : asked;
        if (result == NCCL_IN_PROGRESS && !pause_until(&d))
            return fail_late(c, call, message);
    }
    return result == NCCL_OK ? LATHE_OK : fail_call(c, call, result, message);
}

lathe_status lathe_comm_create(const lathe_nccl *nccl, int rank, int world, const nccl_id *id,
                               uint64_t timeout_ns, lathe_comm *c, lathe_message_buffer message) {
    nccl_config config = {.size = sizeof config,
                          .magic = NCCL_CONFIG_MAGIC,
                          .version = NCCL_CONFIG_VERSION,
                          .blocking = 0,
                          .cluster_size = NCCL_CONFIG_DEFAULT,
                          .least_blocks = BLOCKS,
                          .most_blocks = BLOCKS,
                          .net_name = NULL,
                          .split_share = NCCL_CONFIG_DEFAULT};
    *c = (lathe_comm){.nccl = nccl, .rank = rank, .world = world, .timeout_ns = timeout_ns};
    const nccl_result result = nccl->create(&c->handle, world, *id, rank, &config);
    if (!c->handle)
        return lathe_fail(message, LATHE_DEVICE_FAULT, "rank %d: ncclCommInitRankConfig: %s (%d)",
                          rank, nccl->result_text(result), result);
    const lathe_status status = finish(c, "ncclCommInitRankConfig", result, message);
    if (status != LATHE_OK)
        join_abort(c);
    return status;
}

void lathe_comm_destroy(lathe_comm *c) {
    char text[256];
    if (c->handle && finish(c, "ncclCommFinalize", c->nccl->finalize(c->handle),
                            (lathe_message_buffer){text, sizeof text}) == LATHE_OK)
        (void)c->nccl->destroy(c->handle);
    c->handle = NULL;
    join_abort(c);
}

lathe_status lathe_comm_all_reduce(lathe_comm *c, const void *from, void *to, size_t count,
                                   int type, cu_stream stream, lathe_message_buffer message) {
    if (!c->handle)
        return lathe_comm_refuse_lost(c, message);
    return finish(c, "ncclAllReduce",
                  c->nccl->all_reduce(from, to, count, type, NCCL_SUM, c->handle, stream), message);
}

lathe_status lathe_comm_all_gather(lathe_comm *c, const void *from, void *to, size_t count,
                                   int type, cu_stream stream, lathe_message_buffer message) {
    if (!c->handle)
        return lathe_comm_refuse_lost(c, message);
    return finish(c, "ncclAllGather", c->nccl->all_gather(from, to, count, type, c->handle, stream),
                  message);
}

lathe_status lathe_comm_wait(lathe_comm *c, const lathe_driver *driver, cu_stream stream,
                             lathe_message_buffer message) {
    lathe_deadline d = start(c);
    if (!c->handle)
        return lathe_comm_refuse_lost(c, message);
    for (;;) {
        nccl_result state = NCCL_OK;
        const cu_result result = driver->stream_query(stream);
        if (result == CU_OK)
            return LATHE_OK;
        if (result != CU_NOT_READY)
            return lathe_driver_fail(driver, "cuStreamQuery", result, message);
        const nccl_result asked = c->nccl->state(c->handle, &state);
        if (asked != NCCL_OK || (state != NCCL_OK && state != NCCL_IN_PROGRESS))
            return fail_call(c, "a collective", asked != NCCL_OK ? asked : state, message);
        if (!pause_until(&d))
            return fail_late(c, "a collective", message);
    }
}

bool lathe_comm_settle(const lathe_driver *driver, cu_stream stream) {
    lathe_deadline d = lathe_deadline_in(SETTLE_NS);
    cu_result result;
    while ((result = driver->stream_query(stream)) == CU_NOT_READY && pause_until(&d))
        continue;
    return result == CU_OK;
}
