/* SPDX-License-Identifier: Apache-2.0
 * Collects the files of the generated directory, and the hash over everything that went in. */
#include "emit.h"

#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *lathe_emit_file(lathe_arena *arena, const lathe_kernel *kernel, size_t tactic) {
    return tactic ? lathe_arena_print(arena, "%s_t%zu.cu", kernel->name, tactic)
                  : lathe_arena_print(arena, "%s.cu", kernel->name);
}

const char *lathe_emit_entry(const lathe_plan *plan, const lathe_kernel *kernel, size_t tactic) {
    const char *file = lathe_emit_file(plan->arena, kernel, tactic);
    return lathe_arena_print(plan->arena, "%s_%.*s", plan->layout->name, (int)strlen(file) - 3,
                             file);
}

const char *lathe_emit_config(lathe_arena *arena, const lathe_kernel *kernel, size_t tactic) {
    const char *file = lathe_emit_file(arena, kernel, tactic);
    char *name = lathe_arena_copy(arena, file, strlen(file) - 3);
    size_t length = 0;
    bool begin = true;
    for (const char *c = name; *c; c++) {
        if (*c == '_') {
            begin = true;
            continue;
        }
        name[length++] = (char)(begin ? toupper((unsigned char)*c) : *c);
        begin = false;
    }
    name[length] = '\0';
    return name;
}

bool lathe_emit_wanted(const lathe_emit_options *options, const lathe_kernel *kernel) {
    return kernel->used && !kernel->provider->collective &&
           (!options->only || fnmatch(options->only, kernel->name, 0) == 0);
}

static void add_file(lathe_files *files, const char *name, const char *text, size_t size) {
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->files[i].name, name) == 0)
            return;
    files->files = lathe_arena_grow(files->arena, files->files, files->count, sizeof *files->files);
    files->files[files->count++] = (lathe_file){name, text, size};
}

static bool has_file(const lathe_files *files, const char *name) {
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->files[i].name, name) == 0)
            return true;
    return false;
}

static const lathe_source *read_template(const lathe_plan *plan, const char *shown) {
    const char *path = lathe_arena_print(plan->arena, "%s/%s", lathe_lua_root(plan->lua), shown);
    return lathe_lua_read(plan->lua, shown, path);
}

static int line_of(const char *text, const char *at) {
    int line = 1;
    for (const char *c = text; c < at; c++)
        line += *c == '\n';
    return line;
}

/* The next `#include "NAME"` at or after *text, which then is the line behind it. */
static const char *next_include(lathe_arena *arena, const char **text) {
    for (const char *line = *text; *line;) {
        const char *end = line + strcspn(line, "\n");
        const char *c = line + strspn(line, " \t");
        line = *end ? end + 1 : end;
        if (strncmp(c, "#include", 8) != 0)
            continue;
        c += 8 + strspn(c + 8, " \t");
        const char *close = *c == '"' ? strchr(c + 1, '"') : NULL;
        if (!close || close > end)
            continue;
        *text = line;
        return lathe_arena_copy(arena, c + 1, (size_t)(close - c - 1));
    }
    *text = "";
    return NULL;
}

static void add_template(const lathe_plan *plan, lathe_files *files, const char *shown,
                         lathe_where where);

/* A header is sought beside the file that includes it, then in templates/; prims.cuh is in both
 * prims folders. */
static void follow_includes(const lathe_plan *plan, lathe_files *files, const lathe_source *from) {
    const char *slash = strrchr(from->shown, '/');
    const char *text = from->text;
    for (const char *name; (name = next_include(plan->arena, &text));) {
        if (strcmp(name, "prims.cuh") == 0)
            continue;
        const char *beside = lathe_arena_print(plan->arena, "%.*s/%s", (int)(slash - from->shown),
                                               from->shown, name);
        const char *below = lathe_arena_print(plan->arena, "templates/%s", name);
        const lathe_where where = {from->shown, line_of(from->text, text) - (text[-1] == '\n')};
        if (*name == '/' || strstr(name, "..") ||
            (!read_template(plan, beside) && !read_template(plan, below)))
            lathe_diag_fail(lathe_arena_diag(plan->arena), where,
                            "#include \"%s\": allowed: a header of templates/", name);
        add_template(plan, files, read_template(plan, beside) ? beside : below, where);
    }
}

static void add_template(const lathe_plan *plan, lathe_files *files, const char *shown,
                         lathe_where where) {
    if (has_file(files, shown))
        return;
    const lathe_source *source = read_template(plan, shown);
    if (!source)
        lathe_diag_fail(lathe_arena_diag(plan->arena), where, "there is no %s", shown);
    const lathe_source kept = *source; /* the list of sources may move */
    add_file(files, kept.shown, kept.text, kept.size);
    follow_includes(plan, files, &kept);
}

/* What makes synthetic weights on a GPU: no part of the step, so not in step.json. */
static void add_synthetic(const lathe_plan *plan, lathe_files *files) {
    static const char shown[] = "templates/synthetic/fill.cuh";
    if (strcmp(plan->arch->name, "host") != 0 && read_template(plan, shown))
        add_template(plan, files, shown, (lathe_where){0});
}

static void add_templates(const lathe_plan *plan, lathe_files *files) {
    add_template(plan, files, "templates/prims/cuda/prims.cuh", (lathe_where){0});
    add_template(plan, files, "templates/prims/host/prims.cuh", (lathe_where){0});
    add_synthetic(plan, files);
    for (size_t i = 0; i < plan->kernel_count; i++) {
        const lathe_provider *p = plan->kernels[i].provider;
        if (plan->kernels[i].used && !p->collective)
            add_template(plan, files, lathe_arena_print(plan->arena, "templates/%s.cuh", p->name),
                         p->where);
    }
}

static int compare_sources(const void *a, const void *b) {
    return strcmp(((const lathe_source *)a)->shown, ((const lathe_source *)b)->shown);
}

static int compare_files(const void *a, const void *b) {
    return strcmp(((const lathe_file *)a)->name, ((const lathe_file *)b)->name);
}

/* Over names and texts of all files that went in, and the options. */
static void hash_inputs(const lathe_plan *plan, const lathe_emit_options *o, char hash[17]) {
    size_t count;
    const lathe_source *list = lathe_lua_sources(plan->lua, &count);
    lathe_source *sources = lathe_arena_alloc(plan->arena, count + 1, sizeof *sources);
    memcpy(sources, list, count * sizeof *sources);
    qsort(sources, count, sizeof *sources, compare_sources);
    lathe_text text = {.arena = plan->arena};
    lathe_text_print(&text,
                     "format 1 tp %" PRId64 " deployment '%s' arch %s tactics '%s' only '%s'",
                     plan->deployment->tp, plan->deployment->name, plan->arch->name,
                     o->tactics ? o->tactics : "", o->only ? o->only : "");
    for (size_t i = 0; i < count; i++)
        lathe_text_print(&text, "\n%s %zu %016" PRIx64, sources[i].shown, sources[i].size,
                         (uint64_t)XXH3_64bits(sources[i].text, sources[i].size));
    const uint64_t digest = XXH3_64bits(lathe_text_string(&text), text.size);
    for (int i = 0; i < 16; i++)
        hash[i] = "0123456789abcdef"[digest >> (60 - 4 * i) & 15];
    hash[16] = '\0';
}

lathe_files lathe_emit(const lathe_plan *plan, const lathe_emit_options *options, char hash[17]) {
    lathe_files files = {.arena = plan->arena};
    size_t emitted = 0;
    add_templates(plan, &files);
    for (size_t i = 0; i < plan->kernel_count; i++) {
        const lathe_kernel *k = &plan->kernels[i];
        for (size_t t = 0; lathe_emit_wanted(options, k) && t < k->tactic_count; t++, emitted++) {
            const lathe_text text = lathe_emit_kernel(plan, options, k, t);
            add_file(&files, lathe_emit_file(plan->arena, k, t), lathe_text_string(&text),
                     text.size);
        }
    }
    if (options->only && !emitted)
        lathe_diag_fail(lathe_arena_diag(plan->arena), (lathe_where){0},
                        "--only \"%s\": matches no kernel of this step", options->only);
    hash_inputs(plan, options, hash);
    const lathe_text step = lathe_emit_step(plan, options->only, hash);
    add_file(&files, "step.json", lathe_text_string(&step), step.size);
    qsort(files.files, files.count, sizeof *files.files, compare_files);
    return files;
}
