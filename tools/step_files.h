/* SPDX-License-Identifier: Apache-2.0
 * A step's inputs from a folder of .npy files named like the buffers: tokens, positions,
 * block_tables.G, seq_lens.G, slot_mapping.G and, for the caches, L03.NAME. A cache without a file
 * holds NaN. */
#ifndef LATHE_STEP_FILES_H
#define LATHE_STEP_FILES_H

#include "step.h"

/* Whether every step has the input of that name, whatever its layout declares. */
bool lathe_step_files_implicit(const char *name);

/* Whether the folder holds a step's inputs at all: a file tokens.npy. */
bool lathe_step_files_exist(const char *folder);

/* The variant whose rows and requests are those of the files, or -1 with a message. */
LATHE_CHECKED lathe_status lathe_step_files_variant(const lathe_step_table *table,
                                                    const char *folder, int *variant, char *message,
                                                    size_t size);

LATHE_CHECKED lathe_status lathe_step_files_write(lathe_engine *engine, int rank, int variant,
                                                  const char *folder, char *message, size_t size);

#endif
