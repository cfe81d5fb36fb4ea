/* SPDX-License-Identifier: Apache-2.0
 * Hands the plan and the files written aside to the libclang checks. */
#include "emit.h"

#ifdef LATHE_SCAN

#include "scan.h"

#include <string.h>

typedef struct {
    lathe_arena *arena;
    lathe_text text;
    size_t count;
} findings;

static void report(void *context, const char *file, int line, const char *message) {
    findings *f = context;
    lathe_text_print(&f->text, "%s", f->count++ ? "\n" : "");
    if (line > 0)
        lathe_text_print(&f->text, "%s:%d: %s", file, line, message);
    else
        lathe_text_print(&f->text, "%s%s%s", file ? file : "", file ? ": " : "", message);
}

static lathe_scan_arg *scan_args(lathe_arena *arena, const lathe_provider *p) {
    lathe_scan_arg *args = lathe_arena_alloc(arena, p->arg_count + 1, sizeof *args);
    for (size_t i = 0; i < p->arg_count; i++) {
        const lathe_arg *arg = &p->args[i];
        const bool mailbox = arg->dir == LATHE_DIR_MAILBOX;
        args[i] = (lathe_scan_arg){arg->name, mailbox ? "Mailbox" : lathe_dtype_element(arg->dtype),
                                   arg->dir == LATHE_DIR_IN, arg->where.line};
    }
    return args;
}

static lathe_scan_provider scan_provider(lathe_arena *arena, const lathe_provider *p) {
    lathe_scan_constant *constants =
        lathe_arena_alloc(arena, p->constant_count + 1, sizeof *constants);
    for (size_t i = 0; i < p->constant_count; i++)
        constants[i] = (lathe_scan_constant){
            p->constants[i].name, p->constants[i].real ? LATHE_SCAN_FLOAT : LATHE_SCAN_INT,
            p->constants[i].where.line};
    return (lathe_scan_provider){.name = p->name,
                                 .spec = p->spec,
                                 .line = p->where.line,
                                 .file = lathe_arena_print(arena, "%s.cuh", p->name),
                                 .entry = p->entry,
                                 .args = scan_args(arena, p),
                                 .arg_count = p->arg_count,
                                 .constants = constants,
                                 .constant_count = p->constant_count,
                                 .early = p->early,
                                 .triggers = p->triggers};
}

/* Among those that have a kernel. */
static size_t provider_index(const lathe_plan *plan, const lathe_provider *p) {
    size_t index = 0;
    for (size_t i = 0; i < plan->provider_count && plan->providers[i] != p; i++)
        index += !plan->providers[i]->collective;
    return index;
}

static lathe_scan_kernel *scan_kernel(const lathe_plan *plan, const lathe_kernel *k, size_t t,
                                      const lathe_scan_provider *provider) {
    const lathe_tactic *tactic = &k->tactics[t];
    lathe_scan_kernel *kernel = lathe_arena_alloc(plan->arena, 1, sizeof *kernel);
    lathe_scan_value *values =
        lathe_arena_alloc(plan->arena, provider->constant_count + 1, sizeof *values);
    for (size_t i = 0; i < provider->constant_count; i++)
        values[i] = (lathe_scan_value){provider->constants[i].name, provider->constants[i].type,
                                       tactic->constants[i].integer, tactic->constants[i].real};
    *kernel = (lathe_scan_kernel){.entry = lathe_emit_entry(plan, k, t),
                                  .config = lathe_emit_config(plan->arena, k, t),
                                  .provider = provider_index(plan, k->provider),
                                  .values = values,
                                  .value_count = provider->constant_count,
                                  .args = provider->args,
                                  .arg_count = provider->arg_count,
                                  .threads = (uint32_t)tactic->block,
                                  .min_blocks = (uint32_t)tactic->min_blocks,
                                  .cluster = (uint32_t)tactic->cluster};
    return kernel;
}

static const char *find_text(const lathe_files *files, const char *name) {
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->files[i].name, name) == 0)
            return files->files[i].text;
    return "";
}

static lathe_scan_file *scan_files(const lathe_plan *plan, const lathe_emit_options *options,
                                   const lathe_files *files, const lathe_scan_provider *providers,
                                   size_t *count) {
    lathe_scan_file *list = NULL;
    *count = 0;
    for (size_t i = 0; i < plan->kernel_count; i++) {
        const lathe_kernel *k = &plan->kernels[i];
        for (size_t t = 0; lathe_emit_wanted(options, k) && t < k->tactic_count; t++) {
            const char *name = lathe_emit_file(plan->arena, k, t);
            const lathe_scan_provider *p = &providers[provider_index(plan, k->provider)];
            list = lathe_arena_grow(plan->arena, list, *count, sizeof *list);
            list[(*count)++] =
                (lathe_scan_file){name, find_text(files, name), scan_kernel(plan, k, t, p), 1};
        }
    }
    return list;
}

static lathe_scan_early *scan_early(const lathe_plan *plan) {
    lathe_scan_early *early = lathe_arena_alloc(plan->arena, plan->early_count + 1, sizeof *early);
    for (size_t i = 0; i < plan->early_count; i++) {
        const lathe_early_pair *pair = &plan->early[i];
        early[i] =
            (lathe_scan_early){provider_index(plan, plan->kernels[pair->kernel].provider),
                               provider_index(plan, plan->kernels[pair->predecessor].provider),
                               pair->where.file, pair->where.line};
    }
    return early;
}

void lathe_emit_scan(const lathe_plan *plan, const lathe_emit_options *options,
                     const lathe_files *files, const char *aside) {
    lathe_scan_provider *providers =
        lathe_arena_alloc(plan->arena, plan->provider_count + 1, sizeof *providers);
    size_t count = 0;
    for (size_t i = 0; i < plan->provider_count; i++)
        if (!plan->providers[i]->collective)
            providers[count++] = scan_provider(plan->arena, plan->providers[i]);
    lathe_scan_input input = {.templates = lathe_arena_print(plan->arena, "%s/templates", aside),
                              .shown = "templates",
                              .providers = providers,
                              .provider_count = count,
                              .early = scan_early(plan),
                              .early_count = plan->early_count};
    input.files = scan_files(plan, options, files, providers, &input.file_count);
    findings found = {.arena = plan->arena, .text = {.arena = plan->arena}};
    if (lathe_scan(&input, report, &found) != 0)
        lathe_diag_raise(lathe_arena_diag(plan->arena), lathe_text_string(&found.text));
}

#else

typedef int lathe_emit_scan_is_left_out; /* no translation unit is empty */

#endif
