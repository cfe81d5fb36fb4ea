/* SPDX-License-Identifier: Apache-2.0
 * Owns: shared objects for the host device, made by the system's C++ compiler. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile_backend.h"
#include "files.h"
#include "host_compile.h"

#define LOG_BYTES 65536

/* The log's first error: what went wrong stands there, the rest is in the log. */
static const char *first_error(const char *log) {
    const char *error = strstr(log, "error");
    while (error && error > log && error[-1] != '\n')
        --error;
    return error ? error : log;
}

static lathe_status compile(const lathe_backend *base, const lathe_backend_job *job,
                            const char *path, char **log, lathe_message_buffer message) {
    (void)base;
    char templates[4096], source[4096];
    if (!lathe_path_join(templates, sizeof templates, job->directory, "templates") ||
        !lathe_path_join(source, sizeof source, job->directory, job->source->file))
        return lathe_fail(message, LATHE_IO, "the path of the generated directory is too long");
    *log = calloc(1, LOG_BYTES);
    if (!*log)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for a compiler's log");
    const lathe_host_compile_job host = {.templates = templates,
                                         .source = source,
                                         .object = path,
                                         .sanitize = lathe_host_sanitized()};
    const lathe_status status = lathe_host_compile(&host, *log, LOG_BYTES);
    if (status != LATHE_OK)
        lathe_fail(message, status, "%s does not compile: %s", job->source->file,
                   first_error(*log));
    return status;
}

static void destroy(lathe_backend *base) {
    free(base);
}

lathe_status lathe_backend_host_create(const lathe_compiler_options *options,
                                       lathe_backend **backend, lathe_message_buffer message) {
    char version[256];
    *backend = NULL;
    (void)options;
    lathe_status status = lathe_host_compiler_version(version, sizeof version);
    if (status != LATHE_OK)
        return lathe_fail(message, status, "no C++ compiler: %s", version);
    lathe_backend *b = calloc(1, sizeof *b);
    if (!b)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for the compiler");
    b->side = "host";
    b->artefact = "kernel.so";
    b->compile = compile;
    b->destroy = destroy;
    char *text = b->signatures[b->signature_count++];
    const size_t size = sizeof b->signatures[0];
    int used = snprintf(text, size, "%s\n", version);
    for (const char *const *o = lathe_host_compile_options(lathe_host_sanitized());
         *o && used < (int)size; ++o)
        used += snprintf(text + used, size - (size_t)used, "option %s\n", *o);
    *backend = b;
    return LATHE_OK;
}
