/* SPDX-License-Identifier: Apache-2.0
 * A golden case with its step: generated, built with the case's checkpoint, ready to be checked. */
#ifndef GOLDEN_STEP_H
#define GOLDEN_STEP_H

#include "check.h"
#include "generated.h"
#include "golden_case.h"
#include "ranks.h"
#include "weights.h"

#define GOLDEN_SPLITS 8

typedef struct {
    golden_case c;
    golden_split splits[GOLDEN_SPLITS];
    int split_count;
    lathe_generated generated;
    lathe_safetensors *checkpoint;
    lathe_ranks ranks;
    lathe_engine *engine; /* of rank 0 */
    char folder[64];      /* inputs and dumps */
} golden_step;

/* Run "tp1" of the case. False where the case is not here. */
bool golden_step_open(golden_step *f, const char *name);
/* A run on several ranks, by a deployment of the case's layout (NULL: its default). */
bool golden_step_open_run(golden_step *f, const char *name, const char *run,
                          const char *deployment);
void golden_step_close(golden_step *f);
/* A new folder among the step's temporary ones. */
void golden_step_folder(const golden_step *f, const char *name, int split, char *path, size_t size);
/* Checks the variant that the inputs fit; `whole`: the whole step and its schedules too. */
lathe_check_result golden_step_check(golden_step *f, const char *inputs, const char *dump,
                                     bool whole);

#endif
