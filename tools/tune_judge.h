/* SPDX-License-Identifier: Apache-2.0
 * Which of several tactics is the best, from times taken in turn. Knows nothing of how they were
 * taken: the same times give the same answer. */
#ifndef LATHE_TUNE_JUDGE_H
#define LATHE_TUNE_JUDGE_H

#include <stdbool.h>
#include <stddef.h>

/* Times of `count` tactics in microseconds: tactic c's of round r at times[c * room + r]. All
 * rounds of a tactic that is in the race are there: drift falls on all alike, so that differences
 * within a round are what counts. */
typedef struct {
    const double *times;
    const int *simple; /* per tactic: the lower, the simpler */
    bool *racing;      /* per tactic */
    int count, room, rounds;
    double enough; /* microseconds below which a difference does not matter */
} lathe_tune_race;

typedef struct {
    int best;     /* of the racing ones, by the median */
    int taken;    /* of those not told from it and not far behind, the simplest */
    int racing;   /* how many are left */
    bool settled; /* one is left, or the others are within `enough` of it */
    double noise; /* of the largest difference that was not told: three standard errors */
} lathe_tune_verdict;

#define LATHE_TUNE_LEAST 8 /* rounds before anything is said */
#define LATHE_TUNE_NEAR                                                                            \
    4 /* times `enough`: what noise hides, but is further behind, is not taken */

/* Takes out of the race those that are slower than the best by more than the noise. */
lathe_tune_verdict lathe_tune_judge(const lathe_tune_race *race);

/* Median and interquartile range of tactic c's times so far. */
double lathe_tune_median(const lathe_tune_race *race, int c, double *spread);

/* "[####....] attn_qkv_1x8: 5 left of 24, 1:05 to go": `done` of `total` after `seconds`. */
void lathe_tune_progress(char *line, size_t size, const char *what, double done, double total,
                         double seconds);

#endif
