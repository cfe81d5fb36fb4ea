/* SPDX-License-Identifier: Apache-2.0
 * A measured table of tactics: layouts/tactics/NAME.lua, documented in layouts/tactics/README.md.
 */
#ifndef LATHE_TACTIC_TABLE_H
#define LATHE_TACTIC_TABLE_H

#include "tactic.h"

typedef struct {
    lathe_where where;
    const char *provider;
    const lathe_table *shape; /* constant -> number */
    int64_t rows;
    const lathe_table **choices; /* in order of preference */
    size_t choice_count;
} lathe_tactic_entry;

const char *lathe_tactic_file(const lathe_tactics *table);

/* The entry for this provider, these constants and rows, or NULL. */
const lathe_tactic_entry *lathe_tactic_find(lathe_arena *arena, const lathe_tactics *table,
                                            const lathe_provider *provider,
                                            const lathe_bound *constants, int64_t rows);

#endif
