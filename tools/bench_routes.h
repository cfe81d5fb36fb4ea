/* SPDX-License-Identifier: Apache-2.0
 * How many distinct experts the routes of each layer touch on this rank. */
#ifndef LATHE_BENCH_ROUTES_H
#define LATHE_BENCH_ROUTES_H

#include "bench_launches.h"

typedef struct {
    int runs;         /* counted so far */
    double *of_layer; /* per layer of the step: the sum over the runs; 0: no routes */
} lathe_bench_routes;

/* Runs the step once, a layer at a time on all ranks, and adds what rank 0 found. `of_layer` is the
 * caller's. */
LATHE_CHECKED lathe_status lathe_bench_routes_count(const lathe_bench_launches *launches,
                                                    lathe_bench_routes *routes, char *message,
                                                    size_t size);

/* Distinct numbers among tiles[0 .. count). */
int lathe_bench_routes_distinct(const int32_t *tiles, int64_t count);

#endif
