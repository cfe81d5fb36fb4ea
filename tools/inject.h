/* SPDX-License-Identifier: Apache-2.0
 * Faults of one rank made on purpose, and a step of all ranks in which one may happen. */
#ifndef LATHE_INJECT_H
#define LATHE_INJECT_H

#include "ranks.h"

typedef enum {
    LATHE_INJECT_NOTHING,
    LATHE_INJECT_LOST, /* the rank is gone before the step */
    LATHE_INJECT_LATE, /* it begins the step late: on the host device in virtual time */
    LATHE_INJECT_SKEW, /* its count of the first mailbox's exchanges is one ahead, from the start */
    LATHE_INJECT_NAN   /* what it computes from is NaN during the step */
} lathe_inject_kind;

typedef struct {
    lathe_inject_kind kind;
    int rank;          /* index among the engines that run */
    int64_t step;      /* from 0; 0 for skew */
    uint64_t delay_ns; /* of late */
} lathe_inject;

#define LATHE_INJECT_ALLOWED "lost:RANK@STEP, late:RANK@STEP:MS, skew:RANK, nan:RANK@STEP"

#define LATHE_INJECT_LATEST_MS 3600000 /* as --timeout */

/* False where the text is none of LATHE_INJECT_ALLOWED. */
bool lathe_inject_parse(const char *text, lathe_inject *inject);

/* What enqueueing took. */
typedef struct {
    uint64_t waits;    /* for a device */
    double enqueue_us; /* host time of the last rank's lathe_run */
} lathe_inject_cost;

/* Step number `step` of all ranks: enqueued on each, waited for together, finished on each. What
 * happens to rank r stands in statuses[r] and in its engine's message; a rank that is lost has
 * LATHE_OK. Returns the first status that is not, and its rank; adds to `cost->waits`, and sets the
 * rest of it. */
LATHE_CHECKED lathe_status lathe_inject_run(const lathe_inject *inject, int64_t step,
                                            lathe_engine *const *engines,
                                            const lathe_step_plan *plans, int count,
                                            lathe_status *statuses, int *rank,
                                            lathe_inject_cost *cost);

/* Elements of the engine's outputs that are NaN; -1 where they cannot be read. */
int64_t lathe_inject_count_nan(lathe_engine *engine);

#endif
