/* SPDX-License-Identifier: Apache-2.0
 * A measured table of tactics: layouts/tactics/NAME.lua, documented in layouts/tactics/README.md.
 */
#ifndef LATHE_TACTIC_TABLE_H
#define LATHE_TACTIC_TABLE_H

#include "tactic.h"
#include "text.h"

typedef struct {
    lathe_where where;
    const char *provider;
    const lathe_table *shape; /* constant -> number */
    int64_t rows;
    const lathe_table **choices; /* in order of preference */
    size_t choice_count;
    bool used; /* a kernel of this step took it */
} lathe_tactic_entry;

/* Names of the constants that a tactic, or else the shape of an entry, may give. */
const char *lathe_tactic_list_constants(lathe_arena *arena, const lathe_provider *provider,
                                        bool tactic);

const char *lathe_tactic_file(const lathe_tactics *table);

/* How many entries kernels took, of how many; a line for each of the others. */
size_t lathe_tactic_used(const lathe_tactics *table, size_t *count);
void lathe_tactic_list_unused(const lathe_tactics *table, lathe_text *out);

/* The entry for this provider, these constants and rows, or NULL. */
const lathe_tactic_entry *lathe_tactic_find(lathe_arena *arena, const lathe_tactics *table,
                                            const lathe_provider *provider,
                                            const lathe_bound *constants, int64_t rows);

#endif
