/* SPDX-License-Identifier: Apache-2.0
 * Another deployment of the same model with the same weights, whose outputs must be those of the
 * one being checked (design.md, line 4). */
#ifndef LATHE_AGAINST_H
#define LATHE_AGAINST_H

#include <stdbool.h>
#include <stdio.h>

#include "outputs.h"
#include "weights.h"

typedef struct lathe_against lathe_against;

typedef struct {
    const char *layout; /* what the checked deployment was made from */
    const char *what;   /* "1" or "2-ep": of that layout; else a directory */
    const char *arch;
    const lathe_options *options; /* of an engine; the directory is replaced */
    lathe_weight_reader reader;
} lathe_against_what;

/* Whether WHAT is a deployment, to be generated from a layout, and not a directory. */
bool lathe_against_is_deployment(const char *what);

/* Generates where need be and builds. */
LATHE_CHECKED lathe_status lathe_against_open(const lathe_against_what *what,
                                              lathe_against **against, char *message, size_t size);
void lathe_against_close(lathe_against *against); /* NULL is allowed */

/* Runs the step on both and compares every output; adds what fails to *failed. `noise`: of the
 * step, by jitter; 0 where it was not measured. */
LATHE_CHECKED lathe_status lathe_against_compare(lathe_against *against,
                                                 const lathe_outputs_step *step, double noise,
                                                 FILE *out, int *failed, char *message,
                                                 size_t size);

#endif
