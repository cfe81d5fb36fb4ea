/* SPDX-License-Identifier: Apache-2.0
 * What a step gives its host: the output buffers of every rank after one step, and how far two
 * deployments of one model lie apart in them (design.md, line 4). */
#ifndef LATHE_OUTPUTS_H
#define LATHE_OUTPUTS_H

#include "group.h"
#include "step.h"

typedef struct {
    const lathe_step_value *value; /* rank 0's: name, layer, type, the variant's shape */
    void *data[LATHE_GROUP_MAX];   /* per rank */
} lathe_output;

typedef struct {
    int ranks;
    int count;
    lathe_output *list;
} lathe_outputs;

/* A step of one variant on every rank, from seeded inputs. */
typedef struct lathe_outputs_step {
    lathe_engine *const *engines;
    int ranks;
    int variant;
    uint64_t seed;
    int64_t context;
    bool padding;
    uint64_t garbage; /* as in lathe_step_inputs */
    /* NULL, or called after every launch, which then is waited for; `launch` is rank 0's. It may
     * ask for the launch again. */
    lathe_status (*after)(void *context, const struct lathe_outputs_step *step,
                          const lathe_step_launch *launch, bool *again);
    void *after_context;
} lathe_outputs_step;

/* Writes the inputs, runs the normal schedule, waits, and reads the outputs. */
LATHE_CHECKED lathe_status lathe_outputs_run(const lathe_outputs_step *step, lathe_outputs *outputs,
                                             char *message, size_t size);
void lathe_outputs_destroy(lathe_outputs *outputs);

/* Number of the output of that name and layer, or -1. */
int lathe_outputs_find(const lathe_outputs *outputs, const char *name, int layer);

/* Relative L2 of one output; where one deployment holds columns and the other has them whole, the
 * ranks' columns stand side by side. NaN where the shapes do not meet, infinity where NaN stand in
 * different places. Integers: the share of unequal ones. */
double lathe_outputs_distance(const lathe_outputs *expected, int index, const lathe_outputs *found,
                              int other);

/* Whether the first `rows` rows are the same bits on every rank. */
bool lathe_outputs_same(const lathe_outputs *a, const lathe_outputs *b, int index, int64_t rows,
                        int64_t all_rows);

#endif
