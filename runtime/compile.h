/* SPDX-License-Identifier: Apache-2.0
 * Owns: from the kernels of a step to artefacts in the cache: keys, tactics in order of preference,
 * several compilers at once. NVRTC makes cubins, the system's C++ compiler shared objects for the
 * host device. */
#ifndef LATHE_COMPILE_H
#define LATHE_COMPILE_H

#include "log.h"
#include "step_table.h"

typedef struct {
    const char *directory;
    const char *arch; /* of the cubins; not read for the host */
    bool host;
    const char *cache; /* as in lathe_options */
    const char *nvrtc;
    bool allow_spills;
    int jobs;
    lathe_logger *log;
} lathe_compiler_options;

typedef struct lathe_compiler lathe_compiler;

/* Finds NVRTC or the C++ compiler, whichever is needed: its version is part of every key, and
 * learning it costs less than 10 ms even where nothing will be compiled. */
LATHE_CHECKED lathe_status lathe_compiler_create(const lathe_compiler_options *options,
                                                 lathe_compiler **compiler,
                                                 lathe_message_buffer message);
void lathe_compiler_destroy(lathe_compiler *compiler);

/* CUDA's major version of the cubins, which the driver must know; 0 for the host and where it is
 * not known. */
int lathe_compiler_cuda_major(const lathe_compiler *compiler);

/* LATHE_NO_DEVICE where there is no compiler and the cache lacks a kernel; the message names both.
 * Compiles nothing. */
LATHE_CHECKED lathe_status lathe_compiler_check(lathe_compiler *compiler,
                                                const lathe_step_table *table,
                                                lathe_message_buffer message);

typedef struct {
    int tactic;       /* the first that compiled */
    const char *path; /* of the artefact; lives as long as the compiler */
    bool made;        /* not found in the cache */
} lathe_compiled;

/* Fills one entry per kernel of the table. On failure the message names the kernel. Call once. */
LATHE_CHECKED lathe_status lathe_compiler_run(lathe_compiler *compiler,
                                              const lathe_step_table *table,
                                              lathe_compiled *compiled,
                                              lathe_message_buffer message);

/* Compiles one tactic of a kernel, whatever was taken before. */
LATHE_CHECKED lathe_status lathe_compiler_take(lathe_compiler *compiler,
                                               const lathe_step_kernel *kernel, int tactic,
                                               lathe_compiled *compiled,
                                               lathe_message_buffer message);

/* Finds that tactic's artefact in the cache; compiles nothing. LATHE_NO_DEVICE where it is not
 * there. */
LATHE_CHECKED lathe_status lathe_compiler_find(lathe_compiler *compiler,
                                               const lathe_step_kernel *kernel, int tactic,
                                               lathe_compiled *compiled,
                                               lathe_message_buffer message);

#endif
