/* SPDX-License-Identifier: Apache-2.0
 * Quantiles by sorting. */
#include "bench_stats.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest sample that a share `q` of all does not exceed. */
static double quantile(const double *sorted, int count, double q) {
    const int rank = (int)ceil(q * (double)count);
    return sorted[rank < 1 ? 0 : rank - 1];
}

lathe_bench_stats lathe_bench_stats_of(double *samples, int count) {
    if (count < 1)
        return (lathe_bench_stats){0};
    qsort(samples, (size_t)count, sizeof *samples, compare);
    return (lathe_bench_stats){
        .median = (samples[(count - 1) / 2] + samples[count / 2]) / 2,
        .p10 = quantile(samples, count, 0.10),
        .p25 = quantile(samples, count, 0.25),
        .p75 = quantile(samples, count, 0.75),
        .p90 = quantile(samples, count, 0.90),
        .p99 = quantile(samples, count, 0.99),
        .count = count,
    };
}
