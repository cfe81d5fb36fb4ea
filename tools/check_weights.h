/* SPDX-License-Identifier: Apache-2.0
 * Owns: the weights that lie on a device against what the host generates: tensors of up to 2^20
 * elements whole, of larger ones 64 seeded stretches of up to 4096 elements. */
#ifndef LATHE_CHECK_WEIGHTS_H
#define LATHE_CHECK_WEIGHTS_H

#include <stdio.h>

#include "step.h"
#include "weights.h"

typedef struct {
    int64_t tensors;
    int64_t elements; /* compared */
    int64_t all;      /* elements that there are */
    int64_t failed;   /* tensors with a wrong element */
} lathe_check_weights_result;

/* `weights` are those that the built engine was filled from. Names the first wrong element of every
 * tensor on `out`. Adds to `result`. */
LATHE_CHECKED lathe_status lathe_check_weights(lathe_engine *engine, const lathe_weights *weights,
                                               FILE *out, lathe_check_weights_result *result,
                                               char *message, size_t size);

#endif
