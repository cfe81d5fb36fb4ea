/* SPDX-License-Identifier: Apache-2.0
 * A step in which one kernel has another tactic: generated, compared with the step as it is, and
 * what differs compiled. Needs no device. */
#ifndef LATHE_TUNE_CANDIDATE_H
#define LATHE_TUNE_CANDIDATE_H

#include "device.h"
#include "step.h"
#include "tune_choices.h"

/* A kernel of the candidate's step that is not the same in the step as it is: the one whose tactic
 * it is, and those that share a constant with it (a consumer of slices). */
typedef struct {
    const lathe_step_kernel *kernel;
    int tactic;
    bool own;        /* the kernel whose tactic it is */
    char path[4096]; /* of the artefact */
    lathe_kernel *loaded;
} lathe_tune_changed;

#define LATHE_TUNE_CHANGED 64

typedef struct {
    char folder[4096]; /* "": none */
    lathe_step_table *table;
    int changed_count;
    lathe_tune_changed changed[LATHE_TUNE_CHANGED];
    char reason[512]; /* why it is not in the race; "": it is */
    lathe_graph *graph;
} lathe_tune_candidate;

/* What candidates are generated from. */
typedef struct {
    const char *layout; /* file */
    int64_t tp;
    const char *deployment, *arch;
    const char *tactics; /* name of the table that the step was generated with; NULL: none */
    const char *folder;  /* where candidates may write */
    const char *cache;
} lathe_tune_source;

/* Generates the step with tactic `choice` of `kernel` and finds what is changed in it against
 * `launches`. On failure the candidate has the reason. */
void lathe_tune_candidate_make(lathe_tune_candidate *candidate, const lathe_tune_source *source,
                               const lathe_tune_kernel *kernel, int choice,
                               const lathe_step_launch *launches, int count);
/* Compiles what is changed in all candidates, `jobs` at once. One that does not build, a spill
 * among others, has the reason. */
void lathe_tune_candidate_compile(lathe_tune_candidate *candidates, int count,
                                  const lathe_tune_source *source, int jobs);
void lathe_tune_candidate_destroy(lathe_tune_candidate *candidate);

#endif
