/* SPDX-License-Identifier: Apache-2.0 */
#include "tune_table.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "tactic_file.h"

#define LARGEST ((size_t)4 << 20)

static lathe_status find_layout(lathe_tune_table *t, const char *directory, const char *layout,
                                const char *model, lathe_message_buffer message) {
    char folder[PATH_MAX];
    if (layout)
        return realpath(layout, t->layout)
                   ? LATHE_OK
                   : lathe_fail(message, LATHE_INVALID, "there is no layout %s", layout);
    if (!realpath(directory, folder))
        return lathe_fail(message, LATHE_IO, "there is no %s", directory);
    for (char *slash; (slash = strrchr(folder, '/')); *slash = '\0') {
        const int n = snprintf(t->layout, sizeof t->layout, "%s/layouts/%s.lua", folder, model);
        if (n > 0 && n < PATH_MAX && access(t->layout, R_OK) == 0)
            return LATHE_OK;
    }
    return lathe_fail(message, LATHE_INVALID,
                      "no folder above %s holds layouts/%s.lua; allowed: --layout FILE", directory,
                      model);
}

static void name_table(lathe_tune_table *t, const char *gpu) {
    const char *word = strrchr(gpu, ' ');
    snprintf(t->name, sizeof t->name, "%s", word ? word + 1 : gpu);
    for (char *c = t->name; *c; ++c)
        *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
}

static lathe_status begin_table(lathe_tune_table *t, const char *gpu,
                                lathe_message_buffer message) {
    if (asprintf(&t->text,
                 "-- SPDX-License-Identifier: Apache-2.0\n"
                 "-- Tactics measured by `lathe tune` (tools/README.md says how).\n\n"
                 "return tactics \"%s\" {\n    doc = \"%s\", arch = \"%s\",\n}\n",
                 t->name, *gpu ? gpu : t->name, t->arch) >= 0)
        return LATHE_OK;
    t->text = NULL;
    return lathe_fail(message, LATHE_NO_MEMORY, "no memory");
}

lathe_status lathe_tune_table_open(lathe_tune_table *t, const char *directory, const char *layout,
                                   const lathe_step_table *step, const char *name, const char *gpu,
                                   lathe_message_buffer message) {
    size_t bytes;
    *t = (lathe_tune_table){.text = NULL};
    snprintf(t->arch, sizeof t->arch, "%s", step->arch);
    const lathe_status status = find_layout(t, directory, layout, step->layout, message);
    if (status != LATHE_OK)
        return status;
    if (name)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        name_table(t, gpu);
    if (!*t->name || t->name[strspn(t->name, "abcdefghijklmnopqrstuvwxyz0123456789_")])
        return lathe_fail(message, LATHE_INVALID,
                          "--tactics '%s'; allowed: a name of a-z 0-9 _, of a file of "
                          "layouts/tactics",
                          t->name);
    const int n = snprintf(t->path, sizeof t->path, "%.*s/tactics/%s.lua",
                           (int)(strrchr(t->layout, '/') - t->layout), t->layout, t->name);
    if (n < 0 || n >= PATH_MAX)
        return lathe_fail(message, LATHE_INVALID, "too long a path of %s", t->name);
    const int error = lathe_file_read(t->path, LARGEST, &t->text, &bytes);
    t->exists = error == 0;
    if (error == ENOENT)
        return begin_table(t, gpu, message);
    return error ? lathe_fail(message, LATHE_IO, "%s: %s", t->path, strerror(error)) : LATHE_OK;
}

void lathe_tune_table_close(lathe_tune_table *t) {
    free(t->text);
    t->text = NULL;
}

static void compare_record(const lathe_tune_table *t, const lathe_tactic_file_entry *e,
                           const lathe_tune_machine *m) {
    const json_t *record = json_object_get(e->fields, "record");
    const char *gpu = json_string_value(json_object_get(record, "gpu"));
    const char *toolkit = json_string_value(json_object_get(record, "toolkit"));
    if (gpu && toolkit && (strcmp(gpu, m->gpu) != 0 || strcmp(toolkit, m->toolkit) != 0))
        fprintf(stderr,
                "lathe tune: warning: %s:%d: measured on %s with toolkit %s, this is %s with %s\n",
                t->path, e->line, gpu, toolkit, m->gpu, m->toolkit);
}

lathe_status lathe_tune_table_check(const lathe_tune_table *t, const lathe_tune_machine *m,
                                    lathe_message_buffer message) {
    lathe_tactic_file file;
    lathe_status status = lathe_tactic_file_parse(t->path, t->text, &file, message);
    if (status != LATHE_OK)
        return status;
    if (*file.arch && strcmp(file.arch, t->arch) != 0)
        status = lathe_fail(message, LATHE_INVALID,
                            "%s is of %s and the step for %s; allowed: --tactics with the name of "
                            "another table, or a new one",
                            t->path, file.arch, t->arch);
    for (int i = 0; i < file.count && *m->gpu; ++i)
        compare_record(t, &file.entries[i], m);
    lathe_tactic_file_free(&file);
    return status;
}

/* The text with the entry; NULL where there is no memory. */
static char *put_entry(const lathe_tune_table *t, const lathe_tactic_file *file,
                       const lathe_tune_kernel *k, const lathe_tune_measured *m) {
    json_t *constants = lathe_tune_constants(k->shape), *fields = lathe_tune_entry(k, m);
    char *entry = constants && fields ? lathe_tactic_file_print(k->provider, fields) : NULL;
    char *text = entry ? lathe_tactic_file_put(
                             t->text, file,
                             lathe_tactic_file_find(file, k->provider, k->rows, constants), entry)
                       : NULL;
    json_decref(constants);
    json_decref(fields);
    free(entry);
    return text;
}

lathe_status lathe_tune_table_put(lathe_tune_table *t, const lathe_tune_kernel *k,
                                  const lathe_tune_measured *m, const char *out,
                                  lathe_message_buffer message) {
    lathe_tactic_file file;
    const lathe_status status = lathe_tactic_file_parse(t->path, t->text, &file, message);
    if (status != LATHE_OK)
        return status;
    char *text = put_entry(t, &file, k, m);
    lathe_tactic_file_free(&file);
    if (!text)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory");
    free(t->text);
    t->text = text;
    const char *path = out ? out : t->path;
    const int error = lathe_file_replace(path, text, strlen(text));
    return error ? lathe_fail(message, LATHE_IO, "%s: %s", path, strerror(error)) : LATHE_OK;
}
