/* SPDX-License-Identifier: Apache-2.0
 * The table of tactics that `lathe tune` reads and writes: layouts/tactics/NAME.lua beside the
 * layout. */
#ifndef LATHE_TUNE_TABLE_H
#define LATHE_TUNE_TABLE_H

#include <limits.h>

#include "log.h"
#include "step_table.h"
#include "tune_choices.h"

typedef struct {
    char layout[PATH_MAX];
    char name[128], path[PATH_MAX];
    char arch[16]; /* of the step */
    bool exists;   /* before the first entry is put */
    char *text;
} lathe_tune_table;

/* Where a measurement is made. */
typedef struct {
    char gpu[128], driver[80], toolkit[32], date[16];
} lathe_tune_machine;

/* Reads the table `name`, NULL: called as the GPU's last word ("NVIDIA H200": h200); one that does
 * not exist begins empty, of the step's architecture. The layout is `layout`, NULL: that of `step`
 * in the nearest folder at or above `directory` that has it in layouts/. */
LATHE_CHECKED lathe_status lathe_tune_table_open(lathe_tune_table *table, const char *directory,
                                                 const char *layout, const lathe_step_table *step,
                                                 const char *name, const char *gpu,
                                                 lathe_message_buffer message);
/* Says on stderr which records are of another GPU or toolkit. LATHE_INVALID where the table is not
 * one that entries can be put into, or of another architecture. */
LATHE_CHECKED lathe_status lathe_tune_table_check(const lathe_tune_table *table,
                                                  const lathe_tune_machine *machine,
                                                  lathe_message_buffer message);
/* Puts the entry of a kernel in the place of the one that fits it, or behind all others, and writes
 * the table to `out`, NULL: where it was read. */
LATHE_CHECKED lathe_status lathe_tune_table_put(lathe_tune_table *table,
                                                const lathe_tune_kernel *kernel,
                                                const lathe_tune_measured *measured,
                                                const char *out, lathe_message_buffer message);
void lathe_tune_table_close(lathe_tune_table *table);

#endif
