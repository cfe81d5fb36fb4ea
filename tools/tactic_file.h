/* SPDX-License-Identifier: Apache-2.0
 * The text of a table of measured tactics, layouts/tactics/NAME.lua: its entries as JSON, each with
 * its place, and the same text with one entry put in. All else in the text stays as it is. */
#ifndef LATHE_TACTIC_FILE_H
#define LATHE_TACTIC_FILE_H

#include <jansson.h>

#include "lathe.h"
#include "log.h"

typedef struct {
    const char *provider; /* in `name` of the text; owned */
    int line;
    size_t begin, end; /* of `tactic "X" {...}` in the text */
    json_t *fields; /* shape, rows, choose, record; tables with names are objects, others arrays */
} lathe_tactic_file_entry;

typedef struct {
    char arch[16]; /* "": it names none */
    int count;
    lathe_tactic_file_entry *entries;
    size_t close; /* of the brace that ends the table */
    bool comma;   /* what stands before that brace needs no comma */
} lathe_tactic_file;

/* Reads what `lathe tune` and people write there: literals, no expressions. LATHE_INVALID with
 * FILE:LINE otherwise; `name` is how messages call the file. */
LATHE_CHECKED lathe_status lathe_tactic_file_parse(const char *name, const char *text,
                                                   lathe_tactic_file *file,
                                                   lathe_message_buffer message);
void lathe_tactic_file_free(lathe_tactic_file *file);

/* The entry that codegen would take: the provider, the rows, and every constant that the entry's
 * shape names. NULL: none. */
const lathe_tactic_file_entry *lathe_tactic_file_find(const lathe_tactic_file *file,
                                                      const char *provider, int64_t rows,
                                                      const json_t *constants);

/* An entry as the house writes it, indented, without a comma behind. The caller frees it. */
char *lathe_tactic_file_print(const char *provider, const json_t *fields);

/* The text with `entry` in the place of `old`, or NULL: behind all others. The caller frees it. */
char *lathe_tactic_file_put(const char *text, const lathe_tactic_file *file,
                            const lathe_tactic_file_entry *old, const char *entry);

#endif
