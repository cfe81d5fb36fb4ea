/* SPDX-License-Identifier: Apache-2.0
 * Checks a built step against its references, by the contract in design.md, "What a number may be
 * off by": every launch on its real inputs; on calm weights the whole step against the chained
 * reference; then the normal schedule and the graph, whose bits must be those of the launches one
 * by one. Knows no model. */
#ifndef LATHE_CHECK_H
#define LATHE_CHECK_H

#include <stdio.h>

#include "step.h"

typedef struct {
    lathe_engine *const *engines; /* one per rank, built */
    int ranks;
    struct lathe_image *const
        *weights; /* per rank: host copies kept from check to check; NULL: own */
    int variant;
    uint64_t seed;      /* of inputs, sampled columns and jitter */
    int64_t context;    /* tokens of the longest request; 0: the maximum */
    bool padding;       /* the last request of several is padding */
    bool whole_step;    /* compare with the chained reference: calm weights only */
    bool schedules;     /* run the normal schedule and the graph and compare bits */
    int64_t replays;    /* of the graph; 0 means 1 */
    double noise;       /* that a golden case records for the whole step; 0: measure */
    const char *inputs; /* folder of named values that replace the step's own, or NULL */
    const char *dump;   /* folder for what every launch wrote, or NULL */
    FILE *out;          /* the table, or NULL */
    bool timing;        /* seconds of every launch, device and reference, on standard error */
    bool failures_only; /* leave rows that pass out of the table */
} lathe_check_options;

typedef struct {
    int launches;   /* compared */
    int alike;      /* values equal bit for bit on several ranks, as their references are */
    int failed;     /* launches, whole-step values and schedules that do not meet the contract */
    int64_t turned; /* rows of launches that are as expected with a tie inside the launch turned */
    int flips;      /* choices of the chained reference that the device took otherwise */
    double noise;   /* measured by jitter; 0 where it was not */
    double worst;   /* relative L2 of the worst whole-step output */
} lathe_check_result;

/* Checks one step of one variant, the `prepare` launches first. Any status but LATHE_OK means that
 * the check could not be made, with the reason in `message`; what it found is in `result`. */
LATHE_CHECKED lathe_status lathe_check(const lathe_check_options *options,
                                       lathe_check_result *result, char *message, size_t size);

#endif
