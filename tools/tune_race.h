/* SPDX-License-Identifier: Apache-2.0
 * Times a kernel's tactics against each other in the real step: every candidate's graph in turn,
 * round by round, on weights that are cold as in the step, routes drawn anew every few rounds. */
#ifndef LATHE_TUNE_RACE_H
#define LATHE_TUNE_RACE_H

#include "bench_engine.h"
#include "tune_candidate.h"
#include "tune_judge.h"

typedef struct {
    lathe_bench_engine *engine; /* built; one rank */
    const lathe_tune_source *source;
    int variant;
    int rounds; /* at most */
    int jobs;
    void (*progress)(void *context, const char *what, double share); /* of this kernel */
    void *context;
} lathe_tune_run;

typedef struct {
    double *medians; /* per choice, microseconds of a launch; NAN: not timed */
    char **reasons;  /* per choice: why it was not timed; NULL: it was */
    double spread;   /* of the one taken: the interquartile range */
    int taken, racing, rounds;
    bool settled; /* else the rounds ran out, and noise hides which of those racing is best */
} lathe_tune_outcome;

/* What `outcome` points to is of the pool. A candidate that does not generate, build or load is out
 * with its reason; LATHE_UNSUPPORTED where none is left. */
LATHE_CHECKED lathe_status lathe_tune_race_run(const lathe_tune_run *run,
                                               const lathe_tune_kernel *kernel, lathe_pool *pool,
                                               lathe_tune_outcome *outcome);

#endif
