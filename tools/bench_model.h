/* SPDX-License-Identifier: Apache-2.0
 * What a launch is expected to add to a step: its floor, what a dependent node costs, and where it
 * receives from other ranks what an exchange costs. The two costs are those of the run. */
#ifndef LATHE_BENCH_MODEL_H
#define LATHE_BENCH_MODEL_H

#include <stdbool.h>

typedef struct {
    double time, floor; /* microseconds of one launch */
    bool exchange;      /* it receives what ranks send */
} lathe_bench_sample;

typedef struct {
    double node, exchange; /* microseconds */
} lathe_bench_costs;

/* node: the median of (time - floor) over the launches without an exchange; exchange: that of
 * (time - floor - node) over the others. None is less than zero; 0 where there is no sample. */
lathe_bench_costs lathe_bench_costs_of(const lathe_bench_sample *samples, int count);

static inline double lathe_bench_predict(const lathe_bench_costs *c, double floor, bool exchange) {
    return floor + c->node + (exchange ? c->exchange : 0);
}

#endif
