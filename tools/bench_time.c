/* SPDX-License-Identifier: Apache-2.0
 * A thread a rank: each enqueues its replays, and their exchanges keep them together. */
#include "bench_time.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lathe_status fail(const lathe_bench_timer *t, int rank, lathe_status status) {
    if (t->ranks->count > 1)
        snprintf(t->message, t->size, "rank %d: %s", rank, lathe_message(t->ranks->engines[rank]));
    else
        snprintf(t->message, t->size, "%s", lathe_message(t->ranks->engines[rank]));
    return status;
}

static lathe_status fail_memory(const lathe_bench_timer *t) {
    snprintf(t->message, t->size, "no memory");
    return LATHE_NO_MEMORY;
}

lathe_status lathe_bench_graph_create(const lathe_bench_timer *t, const bool *left_out,
                                      lathe_bench_graph *g) {
    const int count = t->plan->count;
    lathe_step_launch *list = calloc((size_t)count + 1, sizeof *list);
    bool *none = calloc((size_t)count + 1, sizeof *none);
    *g = (lathe_bench_graph){.whole = !left_out};
    lathe_status status = list && none ? LATHE_OK : fail_memory(t);
    for (int r = 0; status == LATHE_OK && r < t->ranks->count; ++r) {
        lathe_engine *e = t->ranks->engines[r];
        const int left = lathe_bench_plan_list(t->plan, t->launches->of_rank[r],
                                               left_out ? left_out : none, list);
        status = lathe_engine_record(e, list, left, &g->graphs[r]);
        if (status != LATHE_OK)
            fail(t, r, status);
    }
    free(list);
    free(none);
    if (status != LATHE_OK)
        lathe_bench_graph_destroy(t, g);
    return status;
}

void lathe_bench_graph_destroy(const lathe_bench_timer *t, lathe_bench_graph *g) {
    for (int r = 0; r < t->ranks->count; ++r)
        lathe_engine_forget(t->ranks->engines[r], g->graphs[r]);
    *g = (lathe_bench_graph){.whole = false};
}

typedef struct {
    lathe_engine *engine;
    lathe_graph *graph;
    int count;
    double *times;
    lathe_status status;
} member;

static void *time_rank(void *context) {
    member *m = context;
    m->status = lathe_engine_time(m->engine, m->graph, m->count, m->times);
    if (m->status == LATHE_OK)
        m->status = lathe_engine_check_peers(m->engine);
    return NULL;
}

static lathe_status time_members(const lathe_bench_timer *t, member *members) {
    pthread_t threads[LATHE_GROUP_MAX];
    bool started[LATHE_GROUP_MAX] = {false};
    for (int r = 1; r < t->ranks->count; ++r) {
        started[r] = pthread_create(&threads[r], NULL, time_rank, &members[r]) == 0;
        if (!started[r])
            members[r].status = LATHE_NO_MEMORY;
    }
    time_rank(&members[0]);
    for (int r = 1; r < t->ranks->count; ++r)
        if (started[r])
            pthread_join(threads[r], NULL);
    for (int r = 0; r < t->ranks->count; ++r)
        if (members[r].status != LATHE_OK)
            return fail(t, r, members[r].status);
    return LATHE_OK;
}

lathe_status lathe_bench_time(const lathe_bench_timer *t, const lathe_bench_graph *g, int count,
                              double *microseconds) {
    member members[LATHE_GROUP_MAX] = {{0}};
    const int all = count + LATHE_BENCH_WARM_UP;
    double *times = calloc((size_t)all * (size_t)t->ranks->count, sizeof *times);
    if (!times)
        return fail_memory(t);
    for (int r = 0; r < t->ranks->count; ++r)
        members[r] = (member){.engine = t->ranks->engines[r],
                              .graph = g->graphs[r],
                              .count = all,
                              .times = times + (size_t)r * (size_t)all};
    lathe_status status = time_members(t, members);
    if (status == LATHE_OK)
        memcpy(microseconds, times + LATHE_BENCH_WARM_UP, (size_t)count * sizeof *microseconds);
    free(times);
    /* What was pushed and not received would pass for what comes next. */
    if (status == LATHE_OK && !g->whole && t->plan->table->mailbox_count > 0)
        status = lathe_ranks_rejoin(t->ranks, t->message, t->size);
    return status;
}
