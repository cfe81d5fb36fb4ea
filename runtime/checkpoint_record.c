/* SPDX-License-Identifier: Apache-2.0
 * Compares two JSON values as a record of a checkpoint is compared with a step. */
#include "checkpoint_record.h"

#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
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

/* One line of what differs: "config.json: text_config.head_dim: ..." */
__attribute__((format(printf, 3, 4))) static void report(const comparison *c, const char *path,
                                                         const char *format, ...) {
    char line[1400];
    const int used = snprintf(line, sizeof line, "%s%s%.500s: ", c->file, *path ? ": " : "", path);
    va_list list;
    va_start(list, format);
    if (used >= 0 && used < (int)sizeof line)
        vsnprintf(line + used, sizeof line - (size_t)used, format, list);
    va_end(list);
    c->differs(c->context, line);
}

static void report_value(const comparison *c, const char *path, const json_t *found,
                         const json_t *wanted) {
    char f[SHOWN], w[SHOWN];
    show(found, f);
    show(wanted, w);
    report(c, path, "found %s, the layout says %s", f, w);
}

/* Whether found `a` says what is wanted. */
static bool is_equal(const json_t *a, const json_t *b) {
    if (json_is_null(a) && json_is_number(b))
        return !(fabs(json_number_value(b)) > 0); /* none of them */
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

/* What a field says that might as well not be there. */
static bool is_nothing(const json_t *value) {
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && !(fabs(json_number_value(value)) > 0)) ||
           (json_is_string(value) && !*json_string_value(value)) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* Lists differ in their length, or in places: the first is shown, the others are counted. */
static void compare_lists(const comparison *c, const char *path, const json_t *found,
                          const json_t *wanted) {
    const size_t count = json_array_size(wanted);
    size_t first = count, wrong = 0;
    char place[600];
    if (!json_is_array(found)) {
        report_value(c, path, found, wanted);
        return;
    }
    if (json_array_size(found) != count) {
        report(c, path, "found a list of %zu, the layout says one of %zu", json_array_size(found),
               count);
        return;
    }
    for (size_t i = 0; i < count; ++i)
        if (!is_equal(json_array_get(found, i), json_array_get(wanted, i)) && ++wrong == 1)
            first = i;
    if (wrong == 0)
        return;
    char f[SHOWN], w[SHOWN];
    show(json_array_get(found, first), f);
    show(json_array_get(wanted, first), w);
    snprintf(place, sizeof place, "%.500s[%zu]", path, first);
    report(c, place, "found %s, the layout says %s (%zu of %zu differ)", f, w, wrong, count);
}

/* Whether an item of a list of modules means the module: a pattern, or a part of its name. */
static bool means(const json_t *item, const char *module) {
    char inside[600];
    const char *pattern = json_string_value(item);
    snprintf(inside, sizeof inside, "%.590s.", module);
    return pattern && *pattern &&
           (strstr(inside, pattern) || fnmatch(pattern, module, 0) == 0 ||
            fnmatch(pattern, inside, 0) == 0);
}

static const json_t *find_item(const json_t *list, const char *module) {
    for (size_t i = 0; i < json_array_size(list); ++i)
        if (means(json_array_get(list, i), module))
            return json_array_get(list, i);
    return NULL;
}

/* `{"modules": [...], "without": [...]}`: a list whose items mean each of these, and none of those.
 */
static void compare_modules(const comparison *c, const char *path, const json_t *found,
                            const json_t *wanted) {
    const json_t *with = json_object_get(wanted, "modules");
    const json_t *without = json_object_get(wanted, "without");
    if (!json_is_array(found)) {
        char text[SHOWN];
        show(found, text);
        report(c, path, "found %s, the layout says a list", text);
        return;
    }
    for (size_t i = 0; i < json_array_size(with); ++i) {
        const char *module = json_string_value(json_array_get(with, i));
        if (module && !find_item(found, module))
            report(c, path, "found nothing that means \"%s\", the layout has it there", module);
    }
    for (size_t i = 0; i < json_array_size(without); ++i) {
        const char *module = json_string_value(json_array_get(without, i));
        const json_t *item = module ? find_item(found, module) : NULL;
        if (item)
            report(c, path, "found \"%.200s\", which means \"%s\"; the layout has it not there",
                   json_string_value(item), module);
    }
}

static void compare(const comparison *c, const char *path, const json_t *found,
                    const json_t *wanted, int depth);

static bool matches_any(const json_t *patterns, const char *key) {
    for (size_t i = 0; i < json_array_size(patterns); ++i) {
        const char *pattern = json_string_value(json_array_get(patterns, i));
        if (pattern && fnmatch(pattern, key, 0) == 0)
            return true;
    }
    return false;
}

static bool join_key(char *inner, size_t size, const char *path, const char *key) {
    const int length = snprintf(inner, size, "%s%s%s", path, *path ? "." : "", key);
    return length >= 0 && length < (int)size;
}

/* Fields that the layout does not name, where it says which those may be. */
static void compare_others(const comparison *c, const char *path, const json_t *found,
                           const json_t *wanted) {
    const json_t *others = json_object_get(wanted, "others");
    const char *key;
    json_t *value;
    if (!others)
        return;
    json_object_foreach((json_t *)(uintptr_t)found, key, value) {
        char inner[512], text[SHOWN];
        if (json_object_get(wanted, key) || is_nothing(value) || matches_any(others, key))
            continue;
        show(value, text);
        if (join_key(inner, sizeof inner, path, key))
            report(c, inner, "found %s, the layout does not know this field", text);
        else
            report(c, path, "found a field with a name too long");
    }
}

static void compare_objects(const comparison *c, const char *path, const json_t *found,
                            const json_t *wanted, int depth) {
    const char *key;
    json_t *value;
    if (!json_is_object(found)) {
        char text[SHOWN];
        show(found, text);
        report(c, path, "found %s, the layout says an object", text);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)wanted, key, value) {
        char inner[512];
        if (strcmp(key, "others") == 0)
            continue;
        if (!join_key(inner, sizeof inner, path, key)) /* too deep to be named: the whole */
            report_value(c, path, found, wanted);
        else
            compare(c, inner, json_object_get(found, key), value, depth + 1);
    }
    compare_others(c, path, found, wanted);
}

static void compare(const comparison *c, const char *path, const json_t *found,
                    const json_t *wanted, int depth) {
    const json_t *optional = json_object_get(wanted, "optional");
    if (optional && (!found || json_is_null(found)))
        return;
    if (json_object_get(wanted, "nothing")) {
        char text[SHOWN];
        show(found, text);
        if (!is_nothing(found))
            report(c, path, "found %s, the layout says nothing", text);
    } else if (optional)
        compare(c, path, found, optional, depth);
    else if (json_object_get(wanted, "modules"))
        compare_modules(c, path, found, wanted);
    else if (json_is_array(wanted))
        compare_lists(c, path, found, wanted);
    else if (json_is_object(wanted) && depth < DEEPEST)
        compare_objects(c, path, found, wanted, depth);
    else if (!is_equal(found, wanted))
        report_value(c, path, found, wanted);
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

/* As a checkpoint has it: a list of modules is its names, what may be left out is. Takes the
 * reference. */
static json_t *fill_in(json_t *value) {
    json_t *list = json_object_get(value, "modules");
    if (list) {
        json_incref(list);
        json_decref(value);
        return list;
    }
    const char *key;
    json_t *inner;
    void *next;
    json_object_del(value, "others");
    json_object_foreach_safe(value, next, key, inner) {
        if (json_object_get(inner, "optional") || json_object_get(inner, "nothing"))
            json_object_del(value, key);
        else
            json_object_set_new(value, key, fill_in(json_incref(inner)));
    }
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
