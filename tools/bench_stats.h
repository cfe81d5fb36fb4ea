/* SPDX-License-Identifier: Apache-2.0
 * What a list of times says. */
#ifndef LATHE_BENCH_STATS_H
#define LATHE_BENCH_STATS_H

typedef struct {
    double median, p10, p25, p75, p90, p99; /* in the samples' unit */
    int count;
} lathe_bench_stats;

/* Sorts `samples`. A quantile is the sample of the nearest rank; the median of an even number is
 * the mean of the two in the middle. All zero where count is 0. */
lathe_bench_stats lathe_bench_stats_of(double *samples, int count);

#endif
