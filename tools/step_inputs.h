/* SPDX-License-Identifier: Apache-2.0
 * The inputs of one step: tokens, positions, lengths, block tables, slots and what the KV caches
 * hold before it. Seeded, or read from .npy files (step_files.h).
 *
 * Seeded inputs are as unkind as the interface allows: pages in shuffled order, table entries that
 * must not be read hold nonsense, and every slot of a cache that no query may see holds NaN. */
#ifndef LATHE_STEP_INPUTS_H
#define LATHE_STEP_INPUTS_H

#include "step.h"

typedef struct {
    uint64_t seed;
    int64_t context; /* tokens of the longest request, those of the step included; 0: the maximum */
    int rank;        /* of the engine: a cache holds its heads of what all ranks' caches hold */
    bool padding;    /* the last request of several is padding: length 0, slot -1 */
    uint64_t garbage; /* seed of the tokens and positions of padding rows; 0: zeros */
    const char *from; /* folder of .npy files, or NULL */
    bool timing;      /* every request has `context` tokens, and caches stay as they are */
    bool own_tokens;  /* only such as lie in the rank's share of the vocabulary */
} lathe_step_inputs;

/* Writes all inputs of a variant, and the caches. */
LATHE_CHECKED lathe_status lathe_step_inputs_write(lathe_engine *engine, int variant,
                                                   const lathe_step_inputs *inputs, char *message,
                                                   size_t size);

/* Token ids that a step takes: 0 .. n - 1. The step does not say how many there are: they index the
 * weight that a launch of the prologue reads beside them, whose rows the ranks share. */
int64_t lathe_step_inputs_vocabulary(const lathe_step_table *table, int variant);

#endif
