/* SPDX-License-Identifier: Apache-2.0
 * A thread per rank for whatever ranks can only do together. */
#include "ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "files.h"
#include "nccl.h"

#define MEETING_NS                                                                                 \
    120000000000ull /* compiling and loading take long on one rank before all meet                 \
                     */

typedef enum { SYNCHRONIZE = 0, BUILD, REJOIN } action;

typedef struct {
    lathe_engine *engine;
    action action;
    const lathe_weight_source *source; /* of BUILD */
    lathe_status status;
} member;

static void *act(void *context) {
    member *m = context;
    m->status = m->action == BUILD    ? lathe_build(m->engine, m->source)
                : m->action == REJOIN ? lathe_rejoin(m->engine)
                                      : lathe_engine_synchronize(m->engine);
    if (m->action == SYNCHRONIZE && m->status == LATHE_OK)
        m->status = lathe_engine_check_peers(m->engine);
    return NULL;
}

/* The first status that is not LATHE_OK, a cause before its consequence on other ranks. */
static lathe_status act_all(member *members, int count, int *rank) {
    pthread_t threads[LATHE_GROUP_MAX];
    bool started[LATHE_GROUP_MAX] = {false};
    for (int r = 1; r < count; ++r)
        started[r] = pthread_create(&threads[r], NULL, act, &members[r]) == 0;
    act(&members[0]);
    for (int r = 1; r < count; ++r) {
        if (started[r])
            pthread_join(threads[r], NULL);
        else
            members[r].status = LATHE_NO_MEMORY;
    }
    for (int r = 0; r < count; ++r)
        if (members[r].status != LATHE_OK && members[r].status != LATHE_DISAGREE) {
            *rank = r;
            return members[r].status;
        }
    for (int r = 0; r < count; ++r)
        if (members[r].status != LATHE_OK) {
            *rank = r;
            return members[r].status;
        }
    return LATHE_OK;
}

lathe_status lathe_ranks_synchronize(lathe_engine *const *engines, int count, int *rank) {
    member members[LATHE_GROUP_MAX] = {{0}};
    for (int r = 0; r < count; ++r)
        members[r].engine = engines[r];
    return act_all(members, count, rank);
}

static lathe_status act_and_tell(lathe_ranks *ranks, member *members, char *message, size_t size) {
    int rank = 0;
    const lathe_status status = act_all(members, ranks->count, &rank);
    if (status != LATHE_OK && ranks->world == 1)
        snprintf(message, size, "%s", lathe_message(ranks->engines[0]));
    else if (status != LATHE_OK)
        snprintf(message, size, "rank %d: %s", ranks->first + rank,
                 lathe_message(ranks->engines[rank]));
    return status;
}

lathe_status lathe_ranks_build(lathe_ranks *ranks, const lathe_weight_source *sources,
                               char *message, size_t size) {
    member members[LATHE_GROUP_MAX] = {{0}};
    for (int r = 0; r < ranks->count; ++r)
        members[r] = (member){ranks->engines[r], BUILD, &sources[r], LATHE_OK};
    return act_and_tell(ranks, members, message, size);
}

lathe_status lathe_ranks_rejoin(lathe_ranks *ranks, char *message, size_t size) {
    member members[LATHE_GROUP_MAX] = {{0}};
    for (int r = 0; r < ranks->count; ++r)
        members[r] = (member){ranks->engines[r], REJOIN, NULL, LATHE_OK};
    return act_and_tell(ranks, members, message, size);
}

/* The number of ranks stands in step.json. */
lathe_status lathe_ranks_count(const char *directory, int *count, char *message, size_t size) {
    lathe_step_table *table;
    const lathe_status status = lathe_step_table_read(directory, &table, message, size);
    if (status != LATHE_OK)
        return status;
    *count = table->tp;
    lathe_step_table_destroy(table);
    if (*count <= LATHE_GROUP_MAX)
        return LATHE_OK;
    snprintf(message, size, "%s is for %d ranks; allowed: at most %d", directory, *count,
             LATHE_GROUP_MAX);
    return LATHE_UNSUPPORTED;
}

static lathe_status create_rank(lathe_ranks *ranks, const lathe_options *options, int rank,
                                int gpus, char *message, size_t size) {
    lathe_options o = *options;
    o.rank = rank;
    o.ordinal = gpus > 0 ? rank % gpus : 0;
    lathe_status status = LATHE_OK;
    if (ranks->meeting)
        status = lathe_group_join(ranks->meeting, rank, &ranks->groups[rank]);
    o.group = ranks->groups[rank];
    if (status != LATHE_OK)
        snprintf(message, size, "no memory for a group");
    return status == LATHE_OK ? lathe_create(&o, &ranks->engines[rank], message, size) : status;
}

lathe_status lathe_ranks_create(const lathe_options *options, lathe_ranks *ranks, char *message,
                                size_t size) {
    memset(ranks, 0, sizeof *ranks);
    lathe_status status = lathe_ranks_count(options->directory, &ranks->count, message, size);
    if (status != LATHE_OK)
        ranks->count = 0;
    else if (options->loopback) /* one of them, alone */
        ranks->count = 1;
    ranks->world = ranks->count;
    if (status == LATHE_OK && ranks->count > 1) {
        status = lathe_meeting_create(ranks->count, MEETING_NS, &ranks->meeting);
        if (status != LATHE_OK)
            snprintf(message, size, "no memory for a group");
    }
    const int gpus = options->device == LATHE_DEVICE_CUDA ? lathe_device_cuda_count() : 0;
    for (int r = 0; status == LATHE_OK && r < ranks->count; ++r)
        status = create_rank(ranks, options, r, gpus, message, size);
    return status;
}

/* All ranks find the same: they see the same libraries. NCCL wants a GPU for each. */
static bool meets_by_nccl(const lathe_options *options, int world, int gpus) {
    char text[256];
    lathe_nccl nccl;
    if (options->device != LATHE_DEVICE_CUDA || world > gpus ||
        lathe_nccl_open(NULL, &nccl, (lathe_message_buffer){text, sizeof text}) != LATHE_OK)
        return false;
    lathe_nccl_close(&nccl);
    return true;
}

static lathe_status meet_processes(const lathe_options *o, int world, int gpus, const char *meet,
                                   lathe_group **group, char *message, size_t size) {
    char path[4096];
    if (!lathe_path_join(path, sizeof path, meet, "group")) {
        snprintf(message, size, "%s: the path is too long", meet);
        return LATHE_INVALID;
    }
    const lathe_nccl_group by_nccl = {.size = sizeof by_nccl,
                                      .rank = o->rank,
                                      .world = world,
                                      .ordinal = o->ordinal,
                                      .timeout_ns = MEETING_NS,
                                      .file = path};
    return meets_by_nccl(o, world, gpus)
               ? lathe_group_nccl_create(&by_nccl, group, message, size)
               : lathe_group_file_create(path, o->rank, world, MEETING_NS, group, message, size);
}

lathe_status lathe_ranks_create_one(const lathe_options *options, int rank, const char *meet,
                                    lathe_ranks *ranks, char *message, size_t size) {
    lathe_options o = *options;
    const int gpus = options->device == LATHE_DEVICE_CUDA ? lathe_device_cuda_count() : 0;
    memset(ranks, 0, sizeof *ranks);
    lathe_status status = lathe_ranks_count(o.directory, &ranks->world, message, size);
    if (status != LATHE_OK)
        return status;
    o.rank = ranks->first = rank;
    o.ordinal = gpus > 0 ? rank % gpus : 0;
    status = meet_processes(&o, ranks->world, gpus, meet, &ranks->groups[0], message, size);
    if (status != LATHE_OK)
        return status;
    o.group = ranks->groups[0];
    ranks->count = 1;
    return lathe_create(&o, &ranks->engines[0], message, size);
}

void lathe_ranks_destroy(lathe_ranks *ranks) {
    for (int r = 0; r < ranks->count; ++r)
        lathe_destroy(ranks->engines[r]);
    for (int r = 0; r < ranks->count; ++r)
        lathe_group_destroy(ranks->groups[r]);
    lathe_meeting_destroy(ranks->meeting);
}
