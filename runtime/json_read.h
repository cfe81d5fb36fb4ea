/* SPDX-License-Identifier: Apache-2.0
 * Owns: reading untrusted JSON: the path of the value at hand, checked fields, and the first error.
 *
 * Every reader returns false after a failure, with the message written: path, what was found, what
 * is allowed. */
#ifndef LATHE_JSON_READ_H
#define LATHE_JSON_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lathe.h"
#include "pool.h"

typedef struct {
    lathe_pool *pool;
    const char *file;
    char path[512];
    size_t path_length;
    lathe_status status;
    char *message;
    size_t size;
} lathe_json;

typedef enum {
    LATHE_NAME_TEXT,       /* any printable text */
    LATHE_NAME_WORD,       /* printable ASCII without spaces */
    LATHE_NAME_FOLDER,     /* may name a file or folder: letters, digits, _ . - ; no dot in front */
    LATHE_NAME_FILE,       /* a path below the directory */
    LATHE_NAME_IDENTIFIER, /* of C */
} lathe_name_kind;

/* Extends the path by a key or an index; `leave` with the value returned takes it away again. */
size_t lathe_json_enter(lathe_json *j, const char *key);
size_t lathe_json_enter_index(lathe_json *j, size_t index);
void lathe_json_leave(lathe_json *j, size_t mark);

/* Writes the message for the value at the current path and returns false. Only the first failure is
 * kept. */
bool lathe_json_fail(lathe_json *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool lathe_json_fail_memory(lathe_json *j);

/* The same for the value under `key`. */
bool lathe_json_fail_at(lathe_json *j, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* `value` is an object with the keys listed, those ending in '?' at will, and no other: "name shape
 * line?". */
bool lathe_json_object(lathe_json *j, const json_t *value, const char *keys);

bool lathe_json_int(lathe_json *j, const json_t *object, const char *key, int64_t min, int64_t max,
                    int64_t *out);
bool lathe_json_int_value(lathe_json *j, const json_t *value, int64_t min, int64_t max,
                          int64_t *out);
/* Absent: `*out` is left as it is. */
bool lathe_json_bool(lathe_json *j, const json_t *object, const char *key, bool *out);
bool lathe_json_name(lathe_json *j, const json_t *object, const char *key, lathe_name_kind kind,
                     const char **out);
bool lathe_json_name_value(lathe_json *j, const json_t *value, lathe_name_kind kind,
                           const char **out);
/* One of `names`, given as a list with spaces between; its number goes to *out. Absent: *out is
 * left. */
bool lathe_json_choice(lathe_json *j, const json_t *object, const char *key, const char *names,
                       int *out);
/* An array of min .. max elements. Absent: an empty one where min is 0. */
bool lathe_json_array(lathe_json *j, const json_t *object, const char *key, size_t min, size_t max,
                      const json_t **array, int *count);

/* Memory from the pool; false and a message where there is none. */
void *lathe_json_alloc(lathe_json *j, int count, size_t bytes);

/* A short rendering of a value for a message; `text` has 64 bytes. */
const char *lathe_json_show(const json_t *value, char *text);

#endif
