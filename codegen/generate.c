/* SPDX-License-Identifier: Apache-2.0
 * The sequence of `lathe gen`: load, pick, wire, emit, check, rename. */
#include "generate.h"

#include "emit.h"
#include "emit_aside.h"
#include "tactic_table.h"
#include "wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a call holds beside its arena. */
typedef struct {
    lathe_diag diag;
    lathe_arena *arena;
    lathe_lua *lua;
    const char *aside;
    int lock; /* of `aside`; -1: none */
    bool done;
} session;

static bool is_directory(lathe_arena *arena, const char *folder, const char *name) {
    struct stat info;
    const char *path = lathe_arena_print(arena, "%s/%s", folder, name);
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static const char *parent(lathe_arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == path ? "/" : lathe_arena_copy(arena, path, (size_t)(slash - path));
}

/* The nearest folder above the layout that holds layouts/ and templates/. */
static const char *find_root(lathe_arena *arena, const char *layout) {
    for (const char *folder = parent(arena, layout); folder[1]; folder = parent(arena, folder))
        if (is_directory(arena, folder, "layouts") && is_directory(arena, folder, "templates"))
            return folder;
    lathe_diag_fail(lathe_arena_diag(arena), (lathe_where){0},
                    "no folder above the layout holds layouts/ and templates/; name one with "
                    "--root");
}

static const char *real_path(lathe_arena *arena, const char *path) {
    char real[PATH_MAX];
    if (!realpath(path, real))
        lathe_diag_fail(lathe_arena_diag(arena), (lathe_where){0}, "%s: %s", path, strerror(errno));
    return lathe_arena_copy(arena, real, strlen(real));
}

/* How messages and output name the layout: never by the machine's folders. */
static const char *shown_name(const char *root, const char *layout) {
    const size_t length = strlen(root);
    if (strncmp(layout, root, length) == 0 && layout[length] == '/')
        return layout + length + 1;
    return strrchr(layout, '/') + 1;
}

static void make_plan(session *s, const lathe_generate_options *o, lathe_plan *plan,
                      const char **shown) {
    *plan = (lathe_plan){.arena = s->arena};
    plan->arch = lathe_arch_find(&s->diag, (lathe_where){0}, o->arch ? o->arch : "sm_90a");
    const char *layout = real_path(s->arena, o->layout);
    const char *root = o->root ? real_path(s->arena, o->root) : find_root(s->arena, layout);
    s->lua = plan->lua = lathe_lua_create(
        s->arena, (lathe_lua_folders){.root = root, .layout = parent(s->arena, layout)});
    *shown = shown_name(root, layout);
    const lathe_node returned = lathe_lua_run(s->lua, *shown, layout);
    plan->layout = lathe_layout_read(s->lua, *shown, &returned);
    plan->deployment =
        lathe_layout_pick(s->lua, plan->layout, o->tp, o->deployment ? o->deployment : "");
    plan->model = lathe_layout_model(s->lua, plan->layout, plan->deployment);
    plan->table = o->tactics ? lathe_tactic_load(s->lua, o->tactics, plan->arch) : NULL;
    plan->before =
        o->before ? lathe_tactic_load_file(s->lua, "tactics", o->before, plan->arch) : NULL;
    plan->list_choices = o->choices;
    lathe_wire(plan);
    lathe_layout_check_unused(s->arena, plan->model);
}

static const char *output_directory(const lathe_plan *plan, const lathe_generate_options *o) {
    if (o->out)
        return o->out;
    const lathe_deployment *d = plan->deployment;
    return lathe_arena_print(plan->arena, "generated/%s-tp%" PRId64 "%s%s-%s", plan->layout->name,
                             d->tp, *d->name ? "-" : "", d->name, plan->arch->name);
}

static void explain_tactic(const lathe_tactic *t, const char *why, lathe_text *text) {
    lathe_text_print(text,
                     "    %s: %s\n        grid %" PRId64 " x %" PRId64 " x %" PRId64 ", %" PRId64
                     " threads, %" PRId64 " bytes of shared memory, %" PRId64 " registers\n",
                     t->name, why, t->grid[0], t->grid[1], t->grid[2], t->block, t->shared,
                     t->registers);
}

static char *explain(const lathe_plan *plan) {
    lathe_text text = {.arena = plan->arena};
    for (size_t i = 0; i < plan->kernel_count; i++) {
        const lathe_kernel *k = &plan->kernels[i];
        if (!k->used || k->provider->collective)
            continue;
        lathe_text_print(&text, "%s, %s\n", k->name, k->provider->name);
        for (size_t t = 0; t < k->tactic_count; t++)
            explain_tactic(&k->tactics[t], t ? "where the one before does not build" : k->why,
                           &text);
    }
    if (plan->table)
        lathe_tactic_list_unused(plan->table, &text);
    return strdup(lathe_text_string(&text));
}

/* "kN=64,kK=128": the integers that the shape of an entry may name. */
static void list_shape(const lathe_kernel *k, lathe_text *text) {
    const lathe_provider *p = k->provider;
    bool first = true;
    for (size_t i = 0; i < p->constant_count; i++) {
        const lathe_const *c = &p->constants[i];
        if (c->source == LATHE_CONST_TACTIC || c->source == LATHE_CONST_COMPUTED || c->real)
            continue;
        lathe_text_print(text, "%s%s=%" PRId64, first ? "" : ",", c->name, k->constants[i].integer);
        first = false;
    }
}

static char *list_choices(const lathe_plan *plan) {
    static const char *const words[] = {"-", "default", "taken", "both"};
    lathe_text text = {.arena = plan->arena};
    for (size_t i = 0; i < plan->kernel_count; i++) {
        const lathe_kernel *k = &plan->kernels[i];
        if (!k->used || k->provider->collective)
            continue;
        for (size_t c = 0; c < k->choice_count; c++) {
            const lathe_tactic *t = &k->choices[c];
            const bool taken = strcmp(k->tactics[0].name, t->name) == 0;
            const bool rule = strcmp(k->rule, t->name) == 0;
            lathe_text_print(&text, "%s\t%s\t%" PRId64 "\t", k->name, k->provider->name, k->rows);
            list_shape(k, &text);
            lathe_text_print(&text, "\t%s\t%s\t%" PRId64 "\t%" PRId64 "\n", words[rule + 2 * taken],
                             t->name, t->block, t->shared);
        }
    }
    return strdup(lathe_text_string(&text));
}

static void run(session *s, const lathe_generate_options *o, lathe_generate_result *r) {
    lathe_plan *plan = lathe_arena_alloc(s->arena, 1, sizeof *plan);
    const char *shown;
    make_plan(s, o, plan, &shown);
    const lathe_emit_options emit = {.layout = shown, .tactics = o->tactics, .only = o->only};
    const lathe_files files = lathe_emit(plan, &emit, r->hash);
    const char *directory = output_directory(plan, o);
    lathe_emit_write(&files, directory, &s->aside, &s->lock);
#ifdef LATHE_SCAN
    if (!o->no_scan)
        lathe_emit_scan(plan, &emit, &files, s->aside);
#endif
    lathe_emit_publish(s->arena, s->aside, directory);
    s->aside = NULL;
    for (size_t i = 0; i < plan->kernel_count; i++)
        r->kernels += plan->kernels[i].used && !plan->kernels[i].provider->collective &&
                      lathe_emit_wanted(&emit, &plan->kernels[i]);
    r->files = files.count;
    r->why = explain(plan);
    r->choices = plan->list_choices ? list_choices(plan) : NULL;
    if (plan->table) {
        r->entries_used = lathe_tactic_used(plan->table, &r->entries);
        (void)snprintf(r->table, sizeof r->table, "%s", lathe_tactic_file(plan->table));
        if (lathe_tactic_foreign(plan->table))
            (void)snprintf(r->warning, sizeof r->warning, "%s", lathe_tactic_foreign(plan->table));
    }
    (void)snprintf(r->directory, sizeof r->directory, "%s", directory);
}

bool lathe_generate(const lathe_generate_options *options, lathe_generate_result *result) {
    *result = (lathe_generate_result){0};
    session *s = calloc(1, sizeof *s);
    bool done;
    if (s)
        s->lock = -1;
    if (s && (s->arena = lathe_arena_create(&s->diag))) {
        if (LATHE_TRY(&s->diag)) {
            run(s, options, result);
            s->done = true;
        }
        if (!s->done)
            memcpy(result->message, s->diag.message, sizeof result->message);
        if (s->aside)
            lathe_aside_remove(s->aside);
        if (s->lock >= 0)
            close(s->lock);
        lathe_lua_destroy(s->lua);
        lathe_arena_destroy(s->arena);
        done = s->done;
    } else {
        (void)snprintf(result->message, sizeof result->message, "no memory");
        done = false;
    }
    free(s);
    return done;
}
