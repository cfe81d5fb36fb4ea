/* SPDX-License-Identifier: Apache-2.0
 * Owns: the seam between compile.c and what it compiles with. Private to compile*.c. */
#ifndef LATHE_COMPILE_BACKEND_H
#define LATHE_COMPILE_BACKEND_H

#include "compile.h"
#include "sources.h"

#define LATHE_BACKEND_SIGNATURES 50

typedef struct lathe_backend lathe_backend;

typedef struct {
    const lathe_source *source;
    const char *directory;
    const char *kernel;
    const char *tactic;
    bool may_spill; /* its spec says why */
} lathe_backend_job;

struct lathe_backend {
    const char *side;     /* folder of templates/prims */
    const char *artefact; /* file name within an entry */
    int cuda_major;
    /* All that an artefact follows from beside the texts: compiler, version, options, one a line.
     * There is one where there is a compiler; without one, whatever compiler may have filled the
     * cache has one of several. */
    int signature_count;
    char signatures[LATHE_BACKEND_SIGNATURES][1024];
    char missing[1024]; /* why there is no compiler; "" where there is one */
    bool allow_spills;
    /* Writes the artefact to `path`, its log to *log (the caller frees). */
    lathe_status (*compile)(const lathe_backend *backend, const lathe_backend_job *job,
                            const char *path, char **log, lathe_message_buffer message);
    void (*destroy)(lathe_backend *backend);
};

LATHE_CHECKED lathe_status lathe_backend_nvrtc_create(const lathe_compiler_options *options,
                                                      lathe_backend **backend,
                                                      lathe_message_buffer message);
LATHE_CHECKED lathe_status lathe_backend_host_create(const lathe_compiler_options *options,
                                                     lathe_backend **backend,
                                                     lathe_message_buffer message);

#endif
