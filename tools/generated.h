/* SPDX-License-Identifier: Apache-2.0
 * A generated directory for a command: the one that was named, or one generated from a layout for
 * as long as the command runs. */
#ifndef LATHE_GENERATED_H
#define LATHE_GENERATED_H

#include <stdbool.h>

#include "step_table.h"

typedef struct {
    char *directory; /* that holds step.json */
    char *temporary; /* removed on close; NULL where the directory was named */
} lathe_generated;

/* Whether a target is a layout: its name ends in .lua. Any other is a directory. */
bool lathe_generated_is_layout(const char *target);
/* `target` is a directory, or a layout (its name ends in .lua). Returns an exit status; what is
 * wrong has been printed, by the name of `lathe COMMAND`. */
int lathe_generated_open(const char *command, const char *target, const char *tp, const char *arch,
                         const char *deployment, lathe_generated *generated);
/* What a directory was generated for cannot be chosen any more, only confirmed: LATHE_INVALID where
 * an option (NULL: not given) says something else. */
LATHE_CHECKED lathe_status lathe_generated_check(const lathe_generated *generated,
                                                 const char *target, const lathe_step_table *table,
                                                 const char *tp, const char *arch,
                                                 const char *deployment, char *message,
                                                 size_t size);
void lathe_generated_close(lathe_generated *generated);

#endif
