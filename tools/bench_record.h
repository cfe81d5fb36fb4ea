/* SPDX-License-Identifier: Apache-2.0
 * The record of a benchmark as JSON (tools/README.md, "Records"). */
#ifndef LATHE_BENCH_RECORD_H
#define LATHE_BENCH_RECORD_H

#include <jansson.h>

#include "bench_result.h"
#include "lathe.h"

#define LATHE_BENCH_RECORD_FORMAT 1

/* NULL where there is no memory. */
json_t *lathe_bench_record_make(const lathe_bench_result *result);

/* Reads a record and checks what it says of itself: an object of this format. */
LATHE_CHECKED lathe_status lathe_bench_record_read(const char *path, json_t **record, char *message,
                                                   size_t size);

/* Writes it aside and renames it. */
LATHE_CHECKED lathe_status lathe_bench_record_write(const char *path, const json_t *record,
                                                    char *message, size_t size);

/* A number of `record`, in the element of list `list` of variant `variant` that has the name
 * `name`; list NULL: of the variant itself. NAN where there is none. */
double lathe_bench_record_find(const json_t *record, const char *variant, const char *list,
                               const char *name, const char *key);

#endif
