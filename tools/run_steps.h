/* SPDX-License-Identifier: Apache-2.0
 * Runs a step through the public interface, as a host would: plan, run, finish. The bits of the
 * outputs must be the same every time (design.md, "What a number may be off by", line 5), no step
 * may allocate on the device, and lathe_run may not wait. */
#ifndef LATHE_RUN_STEPS_H
#define LATHE_RUN_STEPS_H

#include "alike.h"
#include "inject.h"
#include "step.h"

typedef struct {
    lathe_engine *const *engines; /* one per rank, built */
    int ranks;
    int variant;
    int64_t context; /* 0: the maximum */
    uint64_t seed;
    int64_t steps;
    const char *inputs;         /* folder, or NULL */
    const char *dump;           /* folder, or NULL */
    const lathe_inject *inject; /* or NULL */
    lathe_ranks *rejoin;        /* which rejoin after its fault; NULL: the fault ends the run */
    int first;                  /* rank of engines[0] */
    lathe_group *group;         /* where the other ranks are processes of their own; else NULL */
} lathe_run_steps_options;

typedef struct {
    bool identical;           /* but for the step that an injected NaN spoils */
    int64_t nan;              /* in the outputs of that step: the fewest of a rank */
    lathe_alike_result alike; /* of the ranks' outputs, where there are several */
    uint64_t allocations; /* on the devices, from before the first step to the end of the last */
    uint64_t waits;       /* synchronisations within lathe_run */
    double enqueue_us;    /* host time of lathe_run, the median of the steps */
    double milliseconds;  /* host time of one step */
    char fault[4096];     /* what the ranks said before they rejoined; else "" */
} lathe_run_steps_result;

LATHE_CHECKED lathe_status lathe_run_steps(const lathe_run_steps_options *options,
                                           lathe_run_steps_result *result, char *message,
                                           size_t size);

#endif
