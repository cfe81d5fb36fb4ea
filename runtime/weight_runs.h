/* SPDX-License-Identifier: Apache-2.0
 * Owns: where the elements of one source stand in a rank's weight. They come in runs, the longest
 * stretches that are contiguous both in the whole tensor and in the weight; all have one length,
 * and their places are sums of steps. */
#ifndef LATHE_WEIGHT_RUNS_H
#define LATHE_WEIGHT_RUNS_H

#include <stdbool.h>

#include "step_table.h"

#define LATHE_WEIGHT_RUN_DIMS (LATHE_STEP_MAX_DIMS + 1) /* the sharded axis counts as two */

/* All in elements. */
typedef struct {
    int64_t count;    /* of runs */
    int64_t length;   /* of each */
    int64_t from, to; /* where the first begins: in the whole tensor, in the weight */
    int dims;         /* along which runs are counted, the last one fastest */
    int64_t size[LATHE_WEIGHT_RUN_DIMS];
    int64_t from_step[LATHE_WEIGHT_RUN_DIMS];
    int64_t to_step[LATHE_WEIGHT_RUN_DIMS];
} lathe_weight_runs;

/* The sizes of a rank's share along every dimension; false where the rule does not divide them. */
bool lathe_weight_runs_share(const lathe_step_source *source, int tp, int64_t *local);

/* What `rank` of `tp` holds of the source, at index `join` along `axis` of a weight of shape
 * `whole`. The share fits there. */
void lathe_weight_runs_find(const lathe_step_source *source, const lathe_step_shape *whole,
                            int axis, int64_t join, int rank, int tp, lathe_weight_runs *runs);

/* Where run number n begins. */
void lathe_weight_runs_at(const lathe_weight_runs *runs, int64_t n, int64_t *from, int64_t *to);

#endif
