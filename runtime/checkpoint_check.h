/* SPDX-License-Identifier: Apache-2.0
 * Compares a checkpoint with a step before anything is built: every tensor, and the records beside
 * them. All that differs is listed, a line each. */
#ifndef LATHE_CHECKPOINT_CHECK_H
#define LATHE_CHECKPOINT_CHECK_H

#include "safetensors.h"
#include "step_table.h"

/* LATHE_INVALID where a tensor is missing, has another dtype or shape than step.json says, holds a
 * NaN scale (e4m3) or number (f32), or is the model's and read by nothing; or where a field of a
 * record differs or its file is missing. `message` then names all of it, as much as `size` holds.
 */
LATHE_CHECKED lathe_status lathe_checkpoint_check(const lathe_step_table *table,
                                                  const lathe_safetensors *checkpoint,
                                                  char *message, size_t size);

#endif
