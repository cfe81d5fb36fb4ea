/* SPDX-License-Identifier: Apache-2.0
 * The measurement of one batch variant. */
#ifndef LATHE_BENCH_RUN_H
#define LATHE_BENCH_RUN_H

#include "bench_result.h"
#include "pool.h"
#include "ranks.h"

typedef struct {
    lathe_ranks *ranks; /* built */
    int variant;
    bool rank_slice;
    bool step_only;
    const char *kernel; /* part of the names of the kernels to leave out; NULL: all */
    int64_t context;
    double ceiling; /* bytes a second; 0: not known */
    int replays, sets, samples;
    uint64_t seed;
} lathe_bench_run;

/* Fills `result`, whose lists are taken from `pool`. */

LATHE_CHECKED lathe_status lathe_bench_run_variant(const lathe_bench_run *run, lathe_pool *pool,
                                                   lathe_bench_variant *result, char *message,
                                                   size_t size);

#endif
