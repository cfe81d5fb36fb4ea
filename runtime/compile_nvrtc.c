/* SPDX-License-Identifier: Apache-2.0
 * Owns: cubins. A kernel that spills registers is refused unless that is allowed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile_backend.h"
#include "files.h"
#include "nvrtc.h"

typedef struct {
    lathe_backend base; /* first */
    lathe_nvrtc *nvrtc;
    lathe_nvrtc_options options;
} nvrtc_backend;

static lathe_status check_spills(const lathe_backend *base, const lathe_backend_job *job,
                                 const lathe_nvrtc_result *result, lathe_message_buffer message) {
    if (result->spill_bytes == 0 || base->allow_spills)
        return LATHE_OK;
    return lathe_fail(
        message, LATHE_COMPILE,
        "%s (%s): spills %d bytes of registers at %d registers a thread, allowed: none",
        job->kernel, job->tactic, result->spill_bytes, result->registers);
}

static lathe_status compile(const lathe_backend *base, const lathe_backend_job *job,
                            const char *path, char **log, lathe_message_buffer message) {
    const nvrtc_backend *b = (const nvrtc_backend *)base;
    lathe_nvrtc_result result;
    lathe_status status = lathe_nvrtc_compile(b->nvrtc, job->source, &b->options, &result, message);
    if (status == LATHE_OK)
        status = check_spills(base, job, &result, message);
    if (status == LATHE_OK) {
        const int error = lathe_file_write(path, result.cubin, result.bytes);
        if (error)
            status = lathe_fail(message, LATHE_IO, "%s: %s", path, strerror(error));
    }
    free(result.cubin);
    *log = result.log;
    return status;
}

static void destroy(lathe_backend *base) {
    nvrtc_backend *b = (nvrtc_backend *)base;
    lathe_nvrtc_destroy(b->nvrtc);
    free(b);
}

static void sign(nvrtc_backend *b) {
    int used = snprintf(b->base.signature, sizeof b->base.signature, "nvrtc %d.%d\n",
                        lathe_nvrtc_major(b->nvrtc), lathe_nvrtc_minor(b->nvrtc));
    for (int i = 0; i < b->options.count; ++i)
        used += snprintf(b->base.signature + used, sizeof b->base.signature - (size_t)used,
                         "option %s\n", b->options.list[i]);
    /* what is refused depends on it, so it belongs to what an entry promises */
    snprintf(b->base.signature + used, sizeof b->base.signature - (size_t)used, "spills %s\n",
             b->base.allow_spills ? "allowed" : "refused");
}

lathe_status lathe_backend_nvrtc_create(const lathe_compiler_options *options,
                                        lathe_backend **backend, lathe_message_buffer message) {
    *backend = NULL;
    nvrtc_backend *b = calloc(1, sizeof *b);
    if (!b)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for the compiler");
    lathe_status status = lathe_nvrtc_create(options->nvrtc, &b->nvrtc, message);
    if (status == LATHE_OK)
        status = lathe_nvrtc_check_arch(b->nvrtc, options->arch, message);
    if (status != LATHE_OK) {
        destroy(&b->base);
        return status;
    }
    lathe_nvrtc_options_get(b->nvrtc, options->arch, &b->options);
    b->base.side = "cuda";
    b->base.artefact = "kernel.cubin";
    b->base.cuda_major = lathe_nvrtc_major(b->nvrtc);
    b->base.allow_spills = options->allow_spills;
    b->base.compile = compile;
    b->base.destroy = destroy;
    sign(b);
    *backend = &b->base;
    return LATHE_OK;
}
