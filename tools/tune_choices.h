/* SPDX-License-Identifier: Apache-2.0
 * What there is to choose from: the tactics that specs have for the kernels of a step, and the
 * entry of the table of tactics that a measurement makes of them. Knows no device. */
#ifndef LATHE_TUNE_CHOICES_H
#define LATHE_TUNE_CHOICES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool.h"

typedef struct {
    const char *name; /* "kSplits=2,kTiles=3" or "only" */
    int64_t threads, shared;
    bool rule, taken; /* the spec's rule takes it; the table of tactics does */
    int simple;       /* its rank: 0 is the simplest */
} lathe_tune_choice;

/* A kernel and its tactics, in the spec's order. */
typedef struct {
    const char *name, *provider;
    int64_t rows;
    const char *shape; /* "kN=64,kK=128": all that an entry may name */
    int count;
    lathe_tune_choice *choices;
} lathe_tune_kernel;

/* Reads lathe_generate_result.choices; strings and lists are of the pool. The number of kernels,
 * or -1 where there is no memory. The simplest tactic is the one that the rule takes, since it
 * needs no entry; then the one with less shared memory, then fewer threads, then the spec's order.
 */
int lathe_tune_choices_read(const char *text, lathe_pool *pool, lathe_tune_kernel **kernels);

/* "kA=1,kB=2.5" as {"kA": 1, "kB": 2.5}; "only" as {}. */
json_t *lathe_tune_constants(const char *text);

typedef struct {
    const char *gpu, *toolkit, *driver, *date;
    int taken;             /* the choice that won */
    const double *medians; /* per choice, microseconds of a launch; NAN: not measured */
    double spread;         /* of the winner */
} lathe_tune_measured;

/* Fields of the entry (layouts/tactics/README.md). Losers are sorted by time, then by name. Times
 * are rounded to 10 ns. */
json_t *lathe_tune_entry(const lathe_tune_kernel *kernel, const lathe_tune_measured *measured);

/* The table that holds this entry alone, without a record of a measurement: what makes codegen
 * choose `choice`. The caller frees it. */
char *lathe_tune_override(const lathe_tune_kernel *kernel, int choice);

#endif
