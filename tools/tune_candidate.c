/* SPDX-License-Identifier: Apache-2.0
 * By `lathe gen` itself, with an entry of a table that is asked before all others. */
#include "tune_candidate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "files.h"
#include "generate.h"

static void give_up(lathe_tune_candidate *c, const char *what) {
    if (!c->reason[0])
        snprintf(c->reason, sizeof c->reason, "%.500s", what);
}

/* ---- generating ---- */

static bool write_override(lathe_tune_candidate *c, const lathe_tune_kernel *kernel, int choice,
                           char *path, size_t size) {
    char *text = lathe_tune_override(kernel, choice);
    const bool done = text && lathe_path_join(path, size, c->folder, "tactics.lua") &&
                      lathe_file_replace(path, text, strlen(text)) == 0;
    free(text);
    if (!done)
        give_up(c, "its table of tactics cannot be written");
    return done;
}

static bool generate(lathe_tune_candidate *c, const lathe_tune_source *s,
                     const lathe_tune_kernel *kernel, int choice) {
    char table[4200], step[4200], message[512];
    lathe_generate_result *result = calloc(1, sizeof *result);
    bool done = result && write_override(c, kernel, choice, table, sizeof table) &&
                lathe_path_join(step, sizeof step, c->folder, "step");
    const lathe_generate_options o = {.layout = s->layout,
                                      .tp = s->tp,
                                      .deployment = s->deployment,
                                      .arch = s->arch,
                                      .tactics = s->tactics,
                                      .before = table,
                                      .out = step,
                                      .no_scan = true};
    if (done && !lathe_generate(&o, result)) {
        give_up(c, result->message);
        done = false;
    }
    if (done && lathe_step_table_read(step, &c->table, message, sizeof message) != LATHE_OK) {
        give_up(c, message);
        done = false;
    }
    if (result)
        free(result->why);
    free(result);
    return done;
}

/* ---- what is changed ---- */

static bool same_list(const lathe_step_constant *list, int count, const lathe_step_kernel *k,
                      const lathe_step_tactic *t) {
    for (int i = 0; i < count; ++i) {
        const lathe_step_constant *c = lathe_step_constant_find(k, t, list[i].name);
        if (!c || c->is_real != list[i].is_real ||
            (c->is_real ? c->real != list[i].real : c->integer != list[i].integer))
            return false;
    }
    return true;
}

static bool is_same(const lathe_step_launch *l, const lathe_step_kernel *k,
                    const lathe_step_tactic *t) {
    return strcmp(l->kernel->provider, k->provider) == 0 &&
           same_list(k->constants, k->constant_count, l->kernel, l->tactic) &&
           same_list(t->constants, t->constant_count, l->kernel, l->tactic);
}

static const lathe_step_kernel *find_kernel(const lathe_step_table *t, const char *name) {
    for (int k = 0; k < t->kernel_count; ++k)
        if (strcmp(t->kernels[k].name, name) == 0)
            return &t->kernels[k];
    return NULL;
}

static int find_tactic(const lathe_step_kernel *k, const char *name) {
    for (int t = 0; t < k->tactic_count; ++t)
        if (strcmp(k->tactics[t].name, name) == 0)
            return t;
    return -1;
}

static bool is_listed(const lathe_tune_candidate *c, const lathe_step_kernel *k) {
    for (int i = 0; i < c->changed_count; ++i)
        if (c->changed[i].kernel == k)
            return true;
    return false;
}

/* The kernel of launch `l` in the candidate's step, where it is another. */
static void compare_launch(lathe_tune_candidate *c, const lathe_step_launch *l,
                           const lathe_tune_kernel *kernel, const char *choice) {
    const lathe_step_kernel *k = find_kernel(c->table, l->kernel->name);
    if (!k || k->arg_count != l->value_count) {
        give_up(c, "its step has other kernels");
        return;
    }
    const bool own = strcmp(k->name, kernel->name) == 0;
    const int found = find_tactic(k, own ? choice : l->tactic->name);
    const int tactic = found < 0 ? 0 : found;
    if (own && found != 0)
        give_up(c, "the generator did not take it");
    if (is_listed(c, k) || (!own && is_same(l, k, &k->tactics[tactic])))
        return;
    if (c->changed_count == LATHE_TUNE_CHANGED)
        give_up(c, "too many kernels depend on it");
    else
        c->changed[c->changed_count++] =
            (lathe_tune_changed){.kernel = k, .tactic = tactic, .own = own};
}

void lathe_tune_candidate_make(lathe_tune_candidate *c, const lathe_tune_source *s,
                               const lathe_tune_kernel *kernel, int choice,
                               const lathe_step_launch *launches, int count) {
    *c = (lathe_tune_candidate){.changed_count = 0};
    if (lathe_folder_make_private(s->folder, c->folder, sizeof c->folder) != 0) {
        c->folder[0] = '\0';
        give_up(c, "no folder can be made for it");
    } else if (generate(c, s, kernel, choice)) {
        for (int i = 0; i < count; ++i)
            if (launches[i].kind == LATHE_OP_LAUNCH)
                compare_launch(c, &launches[i], kernel, kernel->choices[choice].name);
    }
}

/* ---- compiling ---- */

typedef struct {
    lathe_tune_candidate *candidates;
    int count;
    const lathe_tune_source *source;
    atomic_int next;
} work;

/* A consumer whose tactic does not build with these constants takes the next, as in a build. */
static lathe_status compile_changed(lathe_compiler *compiler, lathe_tune_changed *x,
                                    lathe_message_buffer message) {
    lathe_compiled compiled;
    lathe_status status = lathe_compiler_take(compiler, x->kernel, x->tactic, &compiled, message);
    for (int i = 0; status == LATHE_COMPILE && !x->own && i < x->kernel->tactic_count; ++i) {
        x->tactic = i;
        status = lathe_compiler_take(compiler, x->kernel, i, &compiled, message);
    }
    if (status == LATHE_OK)
        snprintf(x->path, sizeof x->path, "%s", compiled.path);
    return status;
}

static void compile_one(const lathe_tune_source *s, lathe_tune_candidate *c) {
    char step[4200], text[512] = "";
    const lathe_message_buffer message = {text, sizeof text};
    lathe_compiler *compiler = NULL;
    if (!lathe_path_join(step, sizeof step, c->folder, "step"))
        return;
    const lathe_compiler_options o = {.directory = step,
                                      .arch = s->arch,
                                      .host = strcmp(s->arch, "host") == 0,
                                      .cache = s->cache,
                                      .jobs = 1};
    lathe_status status = lathe_compiler_create(&o, &compiler, message);
    for (int i = 0; status == LATHE_OK && i < c->changed_count; ++i)
        status = compile_changed(compiler, &c->changed[i], message);
    if (status != LATHE_OK)
        give_up(c, text);
    lathe_compiler_destroy(compiler);
}

static void *compile_some(void *context) {
    work *w = context;
    for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->count;)
        if (!w->candidates[i].reason[0])
            compile_one(w->source, &w->candidates[i]);
    return NULL;
}

void lathe_tune_candidate_compile(lathe_tune_candidate *candidates, int count,
                                  const lathe_tune_source *source, int jobs) {
    enum { MOST = 64 };
    pthread_t threads[MOST];
    int started = 0;
    work w = {.candidates = candidates, .count = count, .source = source};
    atomic_init(&w.next, 0);
    while (started + 1 < jobs && started < MOST &&
           pthread_create(&threads[started], NULL, compile_some, &w) == 0)
        ++started;
    compile_some(&w);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

void lathe_tune_candidate_destroy(lathe_tune_candidate *c) {
    lathe_step_table_destroy(c->table);
    if (c->folder[0])
        lathe_folder_remove(c->folder);
    *c = (lathe_tune_candidate){.changed_count = 0};
}
