/* SPDX-License-Identifier: Apache-2.0
 * A generated directory with fewer layers and variants, for measurements: a step.json that says so
 * beside links to the same sources. */
#ifndef LATHE_STEP_CUT_H
#define LATHE_STEP_CUT_H

#include <jansson.h>
#include <stdint.h>

#include "lathe.h"

typedef struct {
    int64_t layers;              /* the first so many; 0: all */
    const char *const *variants; /* names */
    int variant_count;           /* 0: all */
} lathe_step_cut;

/* Takes from `step`, a whole step.json, all that the layers and variants that are left do not use:
 * kinds, kernels, instances of buffers, weights, operations of `prepare`; and the probe of experts.
 * LATHE_INVALID where a variant does not exist. */
LATHE_CHECKED lathe_status lathe_step_cut_json(json_t *step, const lathe_step_cut *cut,
                                               char *message, size_t size);

/* Makes the cut directory in `folder`, which exists and is empty. */
LATHE_CHECKED lathe_status lathe_step_cut_directory(const char *directory, const char *folder,
                                                    const lathe_step_cut *cut, char *message,
                                                    size_t size);

#endif
