/* SPDX-License-Identifier: Apache-2.0
 * A record beside the tensors of a checkpoint (config.json, ...) against the fields that step.json
 * expects in it. */
#ifndef LATHE_CHECKPOINT_RECORD_H
#define LATHE_CHECKPOINT_RECORD_H

#include "step_table.h"

/* Calls `differs` with a line for every field that is missing or has another value, or for the file
 * where it cannot be read. Objects are compared field by field, and may have more; numbers by
 * value; `{"includes": [...]}` wants a list that holds at least these. */
void lathe_checkpoint_record_check(const char *folder, const lathe_step_record *record,
                                   void (*differs)(void *context, const char *text), void *context);

/* Writes FOLDER/NAME so that it passes. */
LATHE_CHECKED lathe_status lathe_checkpoint_record_write(const char *folder,
                                                         const lathe_step_record *record,
                                                         char *message, size_t size);

#endif
