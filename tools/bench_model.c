/* SPDX-License-Identifier: Apache-2.0
 * Medians, so that a few kernels far from their floor do not raise the cost of a node. */
#include "bench_model.h"

#include <stdlib.h>

#include "bench_stats.h"

/* The median of what is left of the samples with or without an exchange, at least zero. */
static double excess(const lathe_bench_sample *samples, int count, bool exchange, double node) {
    double *left = calloc((size_t)count + 1, sizeof *left);
    int n = 0;
    for (int i = 0; left && i < count; ++i)
        if (samples[i].exchange == exchange)
            left[n++] = samples[i].time - samples[i].floor - node;
    const double median = left ? lathe_bench_stats_of(left, n).median : 0;
    free(left);
    return median > 0 ? median : 0;
}

lathe_bench_costs lathe_bench_costs_of(const lathe_bench_sample *samples, int count) {
    lathe_bench_costs c = {.node = excess(samples, count, false, 0)};
    c.exchange = excess(samples, count, true, c.node);
    return c;
}
