/* SPDX-License-Identifier: Apache-2.0
 * The bytes that a step really reads. step.json counts each kernel at its most: every request at
 * the longest context, every route at an expert of its own. */
#ifndef LATHE_BENCH_BYTES_H
#define LATHE_BENCH_BYTES_H

#include "step.h"

typedef struct {
    int64_t requests, q, context; /* of the batch: all requests are as long */
    double experts;               /* distinct ones that a launch found; 0: not known */
    const lathe_step_table *table;
} lathe_bench_load;

/* Experts of this rank that the routes of a layer can touch at most, from a launch that reads
 * `cta_expert`; 0 for any other launch. */
int64_t lathe_bench_most_experts(const lathe_step_launch *launch);

double lathe_bench_bytes(const lathe_step_launch *launch, const lathe_bench_load *load);

#endif
