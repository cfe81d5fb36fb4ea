/* SPDX-License-Identifier: Apache-2.0
 * Cuts step.json. What comes out is read like any other step.json, so nothing is checked here that
 * the reader checks. */
#include "step_cut.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

__attribute__((format(printf, 4, 5))) static lathe_status
refuse(char *message, size_t size, lathe_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(message, size, format, list);
    va_end(list);
    return status;
}

/* Keeps the numbers below `layers`. Returns how many are left. */
static size_t cut_numbers(json_t *numbers, int64_t layers) {
    for (size_t i = json_array_size(numbers); i-- > 0;)
        if (json_integer_value(json_array_get(numbers, i)) >= layers)
            json_array_remove(numbers, i);
    return json_array_size(numbers);
}

/* Takes away the elements of `array` whose list "layers" is left empty. */
static void cut_instances(json_t *array, int64_t layers) {
    for (size_t i = json_array_size(array); i-- > 0;) {
        json_t *numbers = json_object_get(json_array_get(array, i), "layers");
        if (numbers && cut_numbers(numbers, layers) == 0)
            json_array_remove(array, i);
    }
}

static bool has_name(const json_t *array, const char *key, const char *name) {
    for (size_t i = 0; name && i < json_array_size(array); ++i) {
        const char *found = json_string_value(json_object_get(json_array_get(array, i), key));
        if (found && strcmp(found, name) == 0)
            return true;
    }
    return false;
}

static void cut_weights(json_t *step) {
    json_t *weights = json_object_get(step, "weights");
    for (size_t i = json_array_size(weights); i-- > 0;) {
        const char *buffer =
            json_string_value(json_object_get(json_array_get(weights, i), "buffer"));
        if (!has_name(json_object_get(step, "buffers"), "name", buffer))
            json_array_remove(weights, i);
    }
}

static bool is_kind_used(const json_t *layers, const char *kind) {
    for (size_t i = 0; i < json_array_size(layers); ++i)
        if (strcmp(json_string_value(json_array_get(layers, i)), kind) == 0)
            return true;
    return false;
}

static void cut_kinds(json_t *step) {
    const json_t *layers = json_object_get(step, "layers");
    json_t *variants = json_object_get(step, "variants");
    for (size_t v = 0; v < json_array_size(variants); ++v) {
        json_t *kinds = json_object_get(json_array_get(variants, v), "kinds");
        const char *name;
        json_t *ops;
        void *next;
        json_object_foreach_safe(kinds, next, name, ops) if (!is_kind_used(layers, name))
            json_object_del(kinds, name);
    }
}

static bool is_wanted(const lathe_step_cut *cut, const json_t *variant) {
    const char *name = json_string_value(json_object_get(variant, "name"));
    for (int i = 0; i < cut->variant_count; ++i)
        if (name && strcmp(cut->variants[i], name) == 0)
            return true;
    return cut->variant_count == 0;
}

static lathe_status cut_variants(json_t *step, const lathe_step_cut *cut, char *message,
                                 size_t size) {
    json_t *variants = json_object_get(step, "variants");
    char names[256] = "";
    for (int i = 0; i < cut->variant_count; ++i) {
        if (has_name(variants, "name", cut->variants[i]))
            continue;
        for (size_t v = 0, n = 0; v < json_array_size(variants) && n < sizeof names; ++v)
            n += (size_t)snprintf(
                names + n, sizeof names - n, " %s",
                json_string_value(json_object_get(json_array_get(variants, v), "name")));
        return refuse(message, size, LATHE_INVALID, "no variant '%s'; declared are:%s",
                      cut->variants[i], names);
    }
    for (size_t v = json_array_size(variants); v-- > 0;)
        if (!is_wanted(cut, json_array_get(variants, v)))
            json_array_remove(variants, v);
    return LATHE_OK;
}

static void mark_kernels(const json_t *ops, json_t *used) {
    for (size_t i = 0; i < json_array_size(ops); ++i) {
        const char *kernel = json_string_value(json_object_get(json_array_get(ops, i), "kernel"));
        if (kernel)
            json_object_set_new(used, kernel, json_true());
    }
}

static void cut_kernels(json_t *step) {
    json_t *used = json_object();
    mark_kernels(json_object_get(step, "prepare"), used);
    json_t *variants = json_object_get(step, "variants");
    for (size_t v = 0; v < json_array_size(variants); ++v) {
        const json_t *variant = json_array_get(variants, v);
        const char *name;
        json_t *ops;
        mark_kernels(json_object_get(variant, "prologue"), used);
        mark_kernels(json_object_get(variant, "epilogue"), used);
        json_object_foreach(json_object_get(variant, "kinds"), name, ops) mark_kernels(ops, used);
    }
    json_t *kernels = json_object_get(step, "kernels");
    for (size_t i = json_array_size(kernels); i-- > 0;) {
        const char *name = json_string_value(json_object_get(json_array_get(kernels, i), "name"));
        if (name && !json_object_get(used, name))
            json_array_remove(kernels, i);
    }
    json_decref(used);
}

lathe_status lathe_step_cut_json(json_t *step, const lathe_step_cut *cut, char *message,
                                 size_t size) {
    json_t *layers = json_object_get(step, "layers");
    const lathe_status status = cut_variants(step, cut, message, size);
    if (status != LATHE_OK)
        return status;
    if (cut->layers > 0) {
        while (json_array_size(layers) > (size_t)cut->layers)
            json_array_remove(layers, json_array_size(layers) - 1);
        cut_instances(json_object_get(step, "buffers"), cut->layers);
        cut_instances(json_object_get(step, "prepare"), cut->layers);
        cut_weights(step);
        cut_kinds(step);
    }
    json_object_del(step, "probe"); /* compares with what no measurement looks at */
    cut_kernels(step);
    return LATHE_OK;
}

/* Everything of `directory` but step.json, as links. */
static int link_rest(const char *directory, const char *folder) {
    char whole[4096], from[4352], to[4352];
    DIR *d = realpath(directory, whole) ? opendir(whole) : NULL;
    int error = d ? 0 : errno;
    for (const struct dirent *entry; !error && (entry = readdir(d));) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "step.json") == 0)
            continue;
        if (!lathe_path_join(from, sizeof from, whole, entry->d_name) ||
            !lathe_path_join(to, sizeof to, folder, entry->d_name))
            error = ENAMETOOLONG;
        else if (symlink(from, to) != 0)
            error = errno;
    }
    if (d)
        closedir(d);
    return error;
}

lathe_status lathe_step_cut_directory(const char *directory, const char *folder,
                                      const lathe_step_cut *cut, char *message, size_t size) {
    char path[4352], to[4352];
    json_error_t error;
    if (!lathe_path_join(path, sizeof path, directory, "step.json") ||
        !lathe_path_join(to, sizeof to, folder, "step.json"))
        return refuse(message, size, LATHE_INVALID, "%s: the path is too long", directory);
    json_t *step = json_load_file(path, 0, &error);
    if (!step)
        return refuse(message, size, LATHE_IO, "%s: %s", path, error.text);
    lathe_status status = lathe_step_cut_json(step, cut, message, size);
    if (status == LATHE_OK && json_dump_file(step, to, JSON_INDENT(1) | JSON_SORT_KEYS) != 0)
        status = refuse(message, size, LATHE_IO, "%s cannot be written", to);
    json_decref(step);
    const int failed = status == LATHE_OK ? link_rest(directory, folder) : 0;
    return failed ? refuse(message, size, LATHE_IO, "%s: %s", directory, strerror(failed)) : status;
}
