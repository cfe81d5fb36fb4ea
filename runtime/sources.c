/* SPDX-License-Identifier: Apache-2.0
 * Owns: reading sources and following their includes. A name that is found nowhere is left for the
 * compiler to report, with template and line. */
#include "sources.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "pool.h"

#define LARGEST_SOURCE ((size_t)8 << 20)
#define MOST_HEADERS 512
#define MOST_FILES 4096

typedef struct {
    const char *path; /* of the file system */
    const char *text; /* NULL: there is no such file */
    size_t bytes;
} source_file;

struct lathe_sources {
    lathe_pool *pool;
    const char *directory;
    const char *side;
    int count;
    source_file files[MOST_FILES];
};

/* One closure while it grows. */
typedef struct {
    lathe_sources *sources;
    int count;
    lathe_source_header headers[MOST_HEADERS];
    const char *folders[MOST_HEADERS]; /* of each header, for names relative to it */
    lathe_message_buffer message;
} closure;

lathe_status lathe_sources_create(const char *directory, const char *side, lathe_sources **sources,
                                  lathe_message_buffer message) {
    lathe_pool *pool = lathe_pool_create();
    lathe_sources *s = pool ? lathe_pool_alloc(pool, 1, sizeof *s) : NULL;
    *sources = NULL;
    if (s)
        s->directory = lathe_pool_string(pool, directory);
    if (!s || !s->directory) {
        lathe_pool_destroy(pool);
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for sources");
    }
    s->pool = pool;
    s->side = side;
    *sources = s;
    return LATHE_OK;
}

void lathe_sources_destroy(lathe_sources *s) {
    if (s)
        lathe_pool_destroy(s->pool);
}

/* The file at `path`, read at most once; its text is NULL where there is none. NULL on other
 * failures. */
static const source_file *load(lathe_sources *s, const char *path, lathe_message_buffer message) {
    for (int i = 0; i < s->count; ++i)
        if (strcmp(s->files[i].path, path) == 0)
            return &s->files[i];
    if (s->count == MOST_FILES) {
        lathe_fail(message, LATHE_INVALID, "%s: more than %d files", path, MOST_FILES);
        return NULL;
    }
    char *text;
    source_file file = {.path = lathe_pool_string(s->pool, path)};
    const int error = lathe_file_read(path, LARGEST_SOURCE, &text, &file.bytes);
    char *kept = error ? NULL : lathe_pool_alloc(s->pool, file.bytes + 1, 1);
    if (kept)
        memcpy(kept, text, file.bytes + 1);
    free(text);
    file.text = kept;
    if (!file.path || (!error && !kept) || (error && error != ENOENT && error != ENOTDIR)) {
        lathe_fail(message, LATHE_IO, "%s: %s", path, strerror(error ? error : ENOMEM));
        return NULL;
    }
    s->files[s->count] = file;
    return &s->files[s->count++];
}

static const char *skip_blanks(const char *c) {
    return c + strspn(c, " \t");
}

/* The next #include "NAME" at or after *at; false at the end. */
static bool next_include(const char **at, char *name, size_t size) {
    for (const char *line = *at; *line;) {
        const char *end = line + strcspn(line, "\n");
        const char *c = skip_blanks(line);
        line = *end ? end + 1 : end;
        if (*c != '#' || strncmp(c = skip_blanks(c + 1), "include", 7) != 0)
            continue;
        c = skip_blanks(c + 7);
        const size_t length = *c == '"' ? strcspn(c + 1, "\"\n") : 0;
        if (length == 0 || length >= size || c[1 + length] != '"')
            continue;
        memcpy(name, c + 1, length);
        name[length] = '\0';
        *at = line;
        return true;
    }
    return false;
}

static bool have(const closure *c, const char *name) {
    for (int i = 0; i < c->count; ++i)
        if (strcmp(c->headers[i].name, name) == 0)
            return true;
    return false;
}

static const char *folder_of(lathe_pool *pool, const char *path) {
    const char *slash = strrchr(path, '/');
    return lathe_pool_format(pool, "%.*s", (int)(slash - path), path);
}

/* Adds the header that `name` means within a file of `folder`: beside it, in templates/, or among
 * the prims. */
static lathe_status add_header(closure *c, const char *name, const char *folder) {
    lathe_sources *s = c->sources;
    if (have(c, name))
        return LATHE_OK;
    const char *places[] = {
        lathe_pool_format(s->pool, "%s/%s", folder, name),
        lathe_pool_format(s->pool, "%s/templates/%s", s->directory, name),
        lathe_pool_format(s->pool, "%s/templates/prims/%s/%s", s->directory, s->side, name),
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; ++i) {
        const source_file *file = places[i] ? load(s, places[i], c->message) : NULL;
        if (!file)
            return places[i] ? LATHE_IO : LATHE_NO_MEMORY;
        if (!file->text)
            continue;
        if (c->count == MOST_HEADERS)
            return lathe_fail(c->message, LATHE_INVALID, "%s: more than %d headers", name,
                              MOST_HEADERS);
        c->headers[c->count] =
            (lathe_source_header){lathe_pool_string(s->pool, name), file->text, file->bytes};
        c->folders[c->count] = folder_of(s->pool, file->path);
        if (!c->headers[c->count].name || !c->folders[c->count])
            return lathe_fail(c->message, LATHE_NO_MEMORY, "no memory for sources");
        c->count++;
        return LATHE_OK;
    }
    return LATHE_OK;
}

static lathe_status follow(closure *c, const char *text, const char *folder) {
    char name[256];
    while (next_include(&text, name, sizeof name)) {
        const lathe_status status = add_header(c, name, folder);
        if (status != LATHE_OK)
            return status;
    }
    return LATHE_OK;
}

static lathe_status read_closure(closure *c, const source_file *file, lathe_source *out) {
    lathe_pool *pool = c->sources->pool;
    lathe_status status = follow(c, file->text, c->sources->directory);
    for (int i = 0; i < c->count && status == LATHE_OK; ++i)
        status = follow(c, c->headers[i].text, c->folders[i]);
    if (status != LATHE_OK)
        return status;
    lathe_source_header *list = lathe_pool_alloc(pool, (size_t)c->count, sizeof *list);
    if (!list)
        return lathe_fail(c->message, LATHE_NO_MEMORY, "no memory for sources");
    memcpy(list, c->headers, (size_t)c->count * sizeof *list);
    out->text = file->text;
    out->bytes = file->bytes;
    out->header_count = c->count;
    out->headers = list;
    return LATHE_OK;
}

lathe_status lathe_sources_read(lathe_sources *s, const char *file, const lathe_source **source,
                                lathe_message_buffer message) {
    *source = NULL;
    const char *path = lathe_pool_format(s->pool, "%s/%s", s->directory, file);
    lathe_source *out = lathe_pool_alloc(s->pool, 1, sizeof *out);
    closure *c = calloc(1, sizeof *c);
    lathe_status status = LATHE_NO_MEMORY;
    if (path && out && c && (out->file = lathe_pool_string(s->pool, file))) {
        c->sources = s;
        c->message = message;
        const source_file *text = load(s, path, message);
        if (text && !text->text)
            lathe_fail(message, LATHE_IO, "%s: %s", path, strerror(ENOENT));
        status = text && text->text ? read_closure(c, text, out) : LATHE_IO;
    } else {
        lathe_fail(message, LATHE_NO_MEMORY, "no memory for sources");
    }
    free(c);
    if (status == LATHE_OK)
        *source = out;
    return status;
}
