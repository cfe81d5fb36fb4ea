/* SPDX-License-Identifier: Apache-2.0
 * Compares two JSON values as a record of a checkpoint is compared with a step. */
#include "checkpoint_record.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

#define SHOWN 80 /* bytes of a value in a message */
#define DEEPEST 16
#define RECORD_LIMIT ((size_t)16 << 20)

typedef struct {
    const char *file;
    void (*differs)(void *context, const char *text);
    void *context;
} comparison;

static void show(const json_t *value, char text[SHOWN]) {
    char *all =
        value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(10)) : NULL;
    snprintf(text, SHOWN, "%s", all ? all : "nothing");
    if (all && strlen(all) >= SHOWN)
        memcpy(text + SHOWN - 4, "...", 4);
    free(all);
}

static void report(const comparison *c, const char *path, const json_t *found,
                   const json_t *wanted) {
    char line[1200], f[SHOWN], w[SHOWN];
    show(found, f);
    show(wanted, w);
    snprintf(line, sizeof line, "%s: %s: found %s, the layout says %s", c->file, path, f, w);
    c->differs(c->context, line);
}

static bool is_equal(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b) && (json_is_real(a) || json_is_real(b))) {
        /* One was computed by a layout, the other by who wrote the checkpoint. */
        const double x = json_number_value(a), y = json_number_value(b);
        return fabs(x - y) <= 1e-9 * fmax(fabs(x), fabs(y));
    }
    if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b)) {
        for (size_t i = 0; i < json_array_size(a); ++i)
            if (!is_equal(json_array_get(a, i), json_array_get(b, i)))
                return false;
        return true;
    }
    return json_equal(a, b);
}

static bool holds(const json_t *list, const json_t *item) {
    for (size_t i = 0; i < json_array_size(list); ++i)
        if (is_equal(json_array_get(list, i), item))
            return true;
    return false;
}

static void compare_includes(const comparison *c, const char *path, const json_t *found,
                             const json_t *items) {
    for (size_t i = 0; i < json_array_size(items); ++i)
        if (!holds(found, json_array_get(items, i)))
            report(c, path, found, json_array_get(items, i));
}

static void compare(const comparison *c, const char *path, const json_t *found,
                    const json_t *wanted, int depth) {
    const json_t *includes = json_object_get(wanted, "includes");
    if (includes) {
        compare_includes(c, path, found, includes);
        return;
    }
    if (!json_is_object(wanted) || depth == DEEPEST) {
        if (!is_equal(found, wanted))
            report(c, path, found, wanted);
        return;
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)wanted, key, value) {
        char inner[512];
        const int length = snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key);
        if (length >= (int)sizeof inner) /* too deep to be named: the whole is reported */
            report(c, path, found, wanted);
        else
            compare(c, inner, json_object_get(found, key), value, depth + 1);
    }
}

static json_t *read_record(const comparison *c, const char *path) {
    char line[800], *text;
    size_t bytes;
    json_error_t error;
    const int failed = lathe_file_read(path, RECORD_LIMIT, &text, &bytes);
    if (failed) {
        snprintf(line, sizeof line, "%s: %s", path, strerror(failed));
        c->differs(c->context, line);
        return NULL;
    }
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!root) {
        snprintf(line, sizeof line, "%s:%d: %s", path, error.line, error.text);
        c->differs(c->context, line);
    }
    return root;
}

void lathe_checkpoint_record_check(const char *folder, const lathe_step_record *record,
                                   void (*differs)(void *context, const char *text),
                                   void *context) {
    char path[600];
    const comparison c = {record->name, differs, context};
    if (!lathe_path_join(path, sizeof path, folder, record->name)) {
        differs(context, "the path of the checkpoint is too long");
        return;
    }
    json_t *found = read_record(&c, path);
    json_t *wanted = json_loads(record->fields, 0, NULL);
    if (found && wanted)
        compare(&c, "", found, wanted, 0);
    else if (!wanted)
        differs(context, "no memory to compare a record");
    json_decref(found);
    json_decref(wanted);
}

/* `{"includes": [...]}` becomes the list. Takes the reference. */
static json_t *fill_in(json_t *value) {
    json_t *list = json_object_get(value, "includes");
    if (list) {
        json_incref(list);
        json_decref(value);
        return list;
    }
    const char *key;
    json_t *inner;
    void *next;
    json_object_foreach_safe(value, next, key, inner)
        json_object_set_new(value, key, fill_in(json_incref(inner)));
    return value;
}

lathe_status lathe_checkpoint_record_write(const char *folder, const lathe_step_record *record,
                                           char *message, size_t size) {
    char path[4096];
    json_t *fields = json_loads(record->fields, 0, NULL);
    fields = fields ? fill_in(fields) : NULL;
    char *text = fields ? json_dumps(fields, JSON_INDENT(1)) : NULL;
    json_decref(fields);
    int error = ENOMEM;
    if (text && lathe_path_join(path, sizeof path, folder, record->name))
        error = lathe_file_write(path, text, strlen(text));
    free(text);
    if (error)
        snprintf(message, size, "%s/%s: %s", folder, record->name, strerror(error));
    return error ? LATHE_IO : LATHE_OK;
}
