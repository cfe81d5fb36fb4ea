/* SPDX-License-Identifier: Apache-2.0
 * inspect's page: report/page.html with the facts, sources and operations put in as JSON. */
#include "inspect_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "tactic_file.h"

#define LARGEST_TEXT ((size_t)4 << 20)

static const char page[] = {
#include "page.inc"
};

/* NULL where the file cannot be read. */
static char *read_text(const char *folder, const char *name) {
    char path[4096], *text;
    size_t bytes;
    if (!lathe_path_join(path, sizeof path, folder, name) ||
        lathe_file_read(path, LARGEST_TEXT, &text, &bytes) != 0)
        return NULL;
    return text;
}

/* The nearest folder at or above `directory` that has FOLDER/NAME; its text, or NULL. */
static char *read_above(const char *directory, const char *name) {
    char folder[4096];
    if (!realpath(directory, folder))
        return NULL;
    for (char *slash; (slash = strrchr(folder, '/'));) {
        char *text = read_text(*folder ? folder : "/", name);
        if (text)
            return text;
        *slash = '\0';
    }
    return NULL;
}

/* Adds the Lua files that comments of a generated source name as "layouts/X.lua:LINE". */
static void add_lua(json_t *lua, const char *directory, const char *source) {
    for (const char *c = source; (c = strstr(c, "// layouts/")); c += 3) {
        char name[256];
        const size_t length = strcspn(c + 3, ":\n ");
        if (c[3 + length] != ':' || length >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length, c + 3);
        if (strstr(name, "..") || json_object_get(lua, name))
            continue;
        char *text = read_above(directory, name);
        if (text)
            json_object_set_new(lua, name, json_string(text));
        free(text);
    }
}

static json_t *tactic_names(const lathe_step_kernel *k) {
    json_t *names = json_array();
    for (int i = 0; i < k->tactic_count; ++i)
        json_array_append_new(names, json_string(k->tactics[i].name));
    return names;
}

/* The entry of the table of tactics that the tactic came from: "measured,
 * layouts/tactics/h200.lua:8". It has the record of the measurement, and what lost. */
static void add_history(json_t *object, const char *directory, const char *origin) {
    char name[256], said[256];
    int line = 0;
    lathe_tactic_file file;
    if (!origin || sscanf(origin, "measured, %255[^:]:%d", name, &line) != 2 || strstr(name, ".."))
        return;
    char *text = read_above(directory, name);
    if (text && lathe_tactic_file_parse(name, text, &file,
                                        (lathe_message_buffer){said, sizeof said}) == LATHE_OK) {
        for (int i = 0; i < file.count; ++i)
            if (file.entries[i].line == line)
                json_object_set(object, "history", file.entries[i].fields);
        lathe_tactic_file_free(&file);
    }
    free(text);
}

static lathe_status add_sass(json_t *object, const lathe_inspect_kernel *k,
                             lathe_message_buffer message) {
    char *text = NULL;
    FILE *file = tmpfile(); /* another program writes it: it needs a descriptor */
    if (!file)
        return lathe_fail(message, LATHE_IO, "no temporary file: %s", strerror(errno));
    lathe_status status = lathe_inspect_sass_kernel(k, file, message);
    const long bytes = status == LATHE_OK && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
    if (bytes > 0 && (text = malloc((size_t)bytes))) {
        rewind(file);
        const size_t read = fread(text, 1, (size_t)bytes, file);
        json_object_set_new(object, "sass", json_stringn(text, read));
    }
    free(text);
    fclose(file);
    return status;
}

static lathe_status add_sources(json_t *root, const lathe_inspect *in, const char *directory,
                                bool sass, lathe_message_buffer message) {
    json_t *lua = json_object(), *kernels = json_object_get(root, "kernels");
    lathe_status status = LATHE_OK;
    for (int i = 0; i < in->table->kernel_count && status == LATHE_OK; ++i) {
        const lathe_inspect_kernel *k = &in->kernels[i];
        json_t *object = json_array_get(kernels, (size_t)i);
        char *text = read_text(directory, k->tactic->file);
        json_object_set_new(object, "tactics", tactic_names(k->kernel));
        add_history(object, directory, k->origin);
        if (text) {
            json_object_set_new(object, "source", json_string(text));
            add_lua(lua, directory, text);
        }
        free(text);
        if (sass)
            status = add_sass(object, k, message);
    }
    json_object_set_new(root, "lua", lua);
    return status;
}

static json_t *operation(const lathe_step_table *t, const lathe_step_op *op) {
    static const char *const words[] = {"launch", "fork", "join", "collective"};
    const bool work = op->kind == LATHE_OP_LAUNCH || op->kind == LATHE_OP_COLLECTIVE;
    return json_pack("{ss, si, ss*, ss*, sb}", "op", words[op->kind], "stream", op->stream,
                     "kernel", op->kind == LATHE_OP_LAUNCH ? t->kernels[op->kernel].name : NULL,
                     "collective", op->collective ? op->collective->part : NULL, "exchange",
                     (int)(work && lathe_inspect_receives(t, op)));
}

/* The operations of each part, in the order of lathe_inspect_variant. */
static void add_operations(json_t *root, const lathe_inspect *in) {
    const lathe_step_table *t = in->table;
    for (int v = 0; v < t->variant_count; ++v) {
        const lathe_step_variant *variant = &t->variants[v];
        json_t *parts =
            json_object_get(json_array_get(json_object_get(root, "variants"), (size_t)v), "parts");
        for (int p = 0; p < t->kind_count + 2; ++p) {
            const lathe_step_ops *ops = p == 0               ? &variant->prologue
                                        : p <= t->kind_count ? &variant->kinds[p - 1]
                                                             : &variant->epilogue;
            json_t *list = json_array();
            for (int i = 0; i < ops->count; ++i)
                json_array_append_new(list, operation(t, &ops->ops[i]));
            json_object_set_new(json_array_get(parts, (size_t)p), "operations", list);
        }
    }
}

/* The page with the JSON in place of @DATA@. '<' stands only in strings there, and is escaped so
 * that no text can end the script. */
static bool write_page(const char *json, FILE *out) {
    const char *place = strstr(page, "@DATA@");
    if (!place)
        return false;
    fwrite(page, 1, (size_t)(place - page), out);
    for (const char *c = json; *c; ++c)
        if (*c == '<')
            fputs("\\u003c", out);
        else
            fputc(*c, out);
    fputs(place + strlen("@DATA@"), out);
    return true;
}

static lathe_status write_file(const char *json, const char *file, lathe_message_buffer message) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory");
    const bool written = write_page(json, out);
    if (fclose(out) != 0 || !written) {
        free(text);
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for the page");
    }
    const int error = lathe_file_replace(file, text, bytes);
    free(text);
    return error ? lathe_fail(message, LATHE_IO, "%s: %s", file, strerror(error)) : LATHE_OK;
}

lathe_status lathe_inspect_html(const lathe_inspect *in, const char *directory, bool sass,
                                const char *file, lathe_message_buffer message) {
    json_t *root = lathe_inspect_json(in);
    if (!root)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory");
    lathe_status status = add_sources(root, in, directory, sass, message);
    add_operations(root, in);
    char *json =
        status == LATHE_OK ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(root);
    if (status == LATHE_OK && !json)
        status = lathe_fail(message, LATHE_NO_MEMORY, "no memory");
    if (status == LATHE_OK)
        status = write_file(json, file, message);
    free(json);
    return status;
}
