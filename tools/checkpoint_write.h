/* SPDX-License-Identifier: Apache-2.0
 * Writes a checkpoint in safetensors files with an index, from any reader of weights. */
#ifndef LATHE_CHECKPOINT_WRITE_H
#define LATHE_CHECKPOINT_WRITE_H

#include "weights.h"

/* Writes every tensor that the step's weights name to `folder`, in files of about `file_bytes`. */
LATHE_CHECKED lathe_status lathe_checkpoint_write(const lathe_step_table *table,
                                                  const lathe_weight_reader *reader,
                                                  const char *folder, uint64_t file_bytes,
                                                  char *message, size_t size);

#endif
