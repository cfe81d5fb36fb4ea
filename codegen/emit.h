/* SPDX-License-Identifier: Apache-2.0
 * The generated directory: one .cu per kernel and tactic, step.json, the templates they include.
 * Files are made in memory, written aside, checked, and renamed: a reader never sees half of them.
 */
#ifndef LATHE_EMIT_H
#define LATHE_EMIT_H

#include "plan.h"
#include "text.h"

typedef struct {
    const char *name; /* "norm_1x8.cu", "templates/gemm/skinny.cuh" */
    const char *text;
    size_t size;
} lathe_file;

typedef struct {
    lathe_arena *arena;
    lathe_file *files; /* sorted by name */
    size_t count;
} lathe_files;

/* What the banner and the hash tell beside the plan. */
typedef struct {
    const char *layout;  /* "layouts/toy.lua" */
    const char *tactics; /* NULL: none */
    const char *only;    /* glob over kernel names, NULL: all */
} lathe_emit_options;

/* All files of the directory. `hash` receives 16 hex digits over everything that went in. */
lathe_files lathe_emit(const lathe_plan *plan, const lathe_emit_options *options, char hash[17]);

/* Names of one tactic's file, entry point and config struct. */
const char *lathe_emit_file(lathe_arena *arena, const lathe_kernel *kernel, size_t tactic);
const char *lathe_emit_entry(const lathe_plan *plan, const lathe_kernel *kernel, size_t tactic);
const char *lathe_emit_config(lathe_arena *arena, const lathe_kernel *kernel, size_t tactic);
bool lathe_emit_wanted(const lathe_emit_options *options, const lathe_kernel *kernel);

/* The text of one .cu. */
lathe_text lathe_emit_kernel(const lathe_plan *plan, const lathe_emit_options *options,
                             const lathe_kernel *kernel, size_t tactic);
/* The text of step.json. With `only` it says that kernels are left out, and no reader takes it. */
lathe_text lathe_emit_step(const lathe_plan *plan, const char *only, const char *hash);

/* Writes the files in a folder beside `directory` (emit_aside.h). `*made` is its path as soon as it
 * exists, so that it can be removed whatever fails; `*lock` holds it. Refuses a `directory` that
 * exists and is no generated one. */
void lathe_emit_write(const lathe_files *files, const char *directory, const char **made,
                      int *lock);
/* Renames it to `directory`, whose old files are removed. */
void lathe_emit_publish(lathe_arena *arena, const char *aside, const char *directory);

/* The libclang checks over what was written aside; fails with every finding. */
void lathe_emit_scan(const lathe_plan *plan, const lathe_emit_options *options,
                     const lathe_files *files, const char *aside);

#endif
