/* SPDX-License-Identifier: Apache-2.0
 * Compares what a launch wrote with what its reference expects. The tolerances are those of
 * design.md, "What a number may be off by"; each names its line. No other file holds one. */
#ifndef LATHE_COMPARE_H
#define LATHE_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "scalar.h"

typedef enum {
    LATHE_RULE_BF16,      /* line 1: bf16 outputs of a launch */
    LATHE_RULE_F32,       /* line 1: fp32 outputs where every bf16 input was read back */
    LATHE_RULE_F32_FUSED, /* line 1: fp32 outputs across a fused boundary */
    LATHE_RULE_EXACT,     /* line 1: integers */
    LATHE_RULE_CODES,     /* line 2: packed e2m1 codes */
    LATHE_RULE_SCALES,    /* line 2: e4m3 scales */
    LATHE_RULE_STEP       /* line 3: a whole step */
} lathe_rule;

#define LATHE_STEP_TOLERANCE 1.5e-2  /* line 3 */
#define LATHE_STEP_NOISE_FACTOR 3.0  /* line 3 */
#define LATHE_EXPERTS_TOLERANCE 1e-2 /* line 4: EP against expert TP */
#define LATHE_MARGIN_ULPS                                                                          \
    4.0 /* line 2: routing scores closer than this may be taken either way                         \
         */

typedef struct {
    lathe_rule rule;
    bool pass;
    double relative; /* relative L2 over finite elements; fraction unequal for codes and scales */
    double row;      /* the same of the worst row */
    double allowed;
    int64_t compared; /* elements that the reference defines */
    int64_t wrong;    /* unequal integers, codes or scales; NaN or infinity on one side only */
    int64_t worst;    /* index of the element that is off most, or -1 */
    double expected_worst, found_worst;
} lathe_comparison;

/* The rule for an output of that type. `fused`: the launch covers several parts or sums partials
 * itself. */
lathe_rule lathe_compare_rule(lathe_scalar dtype, bool fused);

/* Compares `count` elements of `found` (raw, of `dtype`) with `expected`, skipping those the
 * reference left unset. Codes hold two elements a byte. Reals must keep to the rule in every row of
 * `width` elements too, so that a small row cannot be wrong beside a large one; width 0: one row.
 */
lathe_comparison lathe_compare(lathe_rule rule, lathe_scalar dtype, const double *expected,
                               const void *found, int64_t count, int64_t width);

/* Relative L2 of two arrays of the same floating type; NaN must stand in the same places, or the
 * result is NaN. */
double lathe_compare_arrays(lathe_scalar dtype, const void *expected, const void *found,
                            int64_t count);

/* Element i of raw memory as a double, exactly (i64 beyond 2^53 aside). */
double lathe_compare_value(lathe_scalar dtype, const void *memory, int64_t i);
/* Stores a double as element i: rounded to nearest even for floating types. */
void lathe_compare_store(lathe_scalar dtype, void *memory, int64_t i, double value);

#endif
