/* SPDX-License-Identifier: Apache-2.0
 * Graphs of a step with launches left out, on all ranks, and their times. */
#ifndef LATHE_BENCH_TIME_H
#define LATHE_BENCH_TIME_H

#include "bench_launches.h"
#include "bench_plan.h"
#include "ranks.h"

typedef struct {
    lathe_ranks *ranks;
    const lathe_bench_launches *launches;
    const lathe_bench_plan *plan; /* of rank 0 */
    char *message;
    size_t size;
} lathe_bench_timer;

/* One graph a rank. */
typedef struct {
    lathe_graph *graphs[LATHE_GROUP_MAX];
    bool whole; /* nothing is left out: what it leaves in the mailboxes is in order */
} lathe_bench_graph;

/* The variant without the launches that `left_out` flags (NULL: none). */
LATHE_CHECKED lathe_status lathe_bench_graph_create(const lathe_bench_timer *timer,
                                                    const bool *left_out, lathe_bench_graph *graph);
void lathe_bench_graph_destroy(const lathe_bench_timer *timer, lathe_bench_graph *graph);

/* Replays on all ranks at once, LATHE_BENCH_WARM_UP more than `count`; microseconds[i] is rank 0's
 * time of replay i after those. LATHE_PEER_LOST where a wait within ended at its bound. */
#define LATHE_BENCH_WARM_UP 3
LATHE_CHECKED lathe_status lathe_bench_time(const lathe_bench_timer *timer,
                                            const lathe_bench_graph *graph, int count,
                                            double *microseconds);

#endif
