/* SPDX-License-Identifier: Apache-2.0
 * Greedy decoding of one sequence by steps: the prompt goes through the same step as what follows,
 * up to q tokens at a time. Proposed tokens ride along behind the last known one; the longest
 * prefix of them that the step itself yields is kept, and the lengths go back over the rest. */
#ifndef LATHE_DECODE_H
#define LATHE_DECODE_H

#include "step.h"

#define LATHE_DECODE_NONE (-1) /* in `draft`: no proposal for this place */

/* Whether the step has the output `logits`, f32 [rows, a rank's vocabulary]. */
bool lathe_decode_has_logits(const lathe_step_table *table);

typedef struct {
    lathe_engine *const *engines; /* one per rank, built */
    int ranks;
    const int32_t *prompt;
    int64_t prompt_count;
    int64_t steps; /* tokens to yield */
    /* Proposals: draft[i] for the token that is yielded as number i, LATHE_DECODE_NONE for none.
     * Never changes what is yielded, only how many steps it takes. */
    const int32_t *draft;
    int64_t draft_count;
    /* Called for every token in order. `logits` are those it is the greatest of, over the whole
     * vocabulary [count], or NULL where the step has no such output. */
    void (*emit)(void *context, int64_t number, int32_t token, const float *logits, int64_t count);
    void *context;
} lathe_decode_options;

typedef struct {
    int64_t steps; /* run, those of the prompt included */
    int64_t proposed, accepted;
} lathe_decode_result;

/* Whether the step can serve: it yields `next_tokens`, takes nothing but tokens, all of prompt and
 * draft are in the vocabulary, and the sequence fits the maximum context. Needs no built engine. */
LATHE_CHECKED lathe_status lathe_decode_check(const lathe_step_table *table,
                                              const lathe_decode_options *options, char *message,
                                              size_t size);

/* After lathe_decode_check. LATHE_INVALID where logits are not finite: their token is not emitted,
 * those before it were. The caches belong to the sequence until the call returns. */
LATHE_CHECKED lathe_status lathe_decode(const lathe_decode_options *options,
                                        lathe_decode_result *result, char *message, size_t size);

#endif
