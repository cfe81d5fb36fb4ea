/* SPDX-License-Identifier: Apache-2.0
 * Owns: cubins. A kernel that spills registers is refused unless that is allowed: of all, or of
 * this one by step.json. Its source says so too, so an entry of the cache keeps its promise. */
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
    if (result->spill_bytes == 0 || base->allow_spills || job->may_spill)
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

/* The signature of a version of NVRTC. */
static void sign(nvrtc_backend *b, int major, int minor, const char *arch) {
    lathe_nvrtc_options options;
    lathe_nvrtc_options_get(major, minor, arch, &options);
    char *text = b->base.signatures[b->base.signature_count++];
    const size_t size = sizeof b->base.signatures[0];
    int used = snprintf(text, size, "nvrtc %d.%d\n", major, minor);
    for (int i = 0; i < options.count; ++i)
        used += snprintf(text + used, size - (size_t)used, "option %s\n", options.list[i]);
    /* what is refused depends on it, so it belongs to what an entry promises */
    snprintf(text + used, size - (size_t)used, "spills %s\n",
             b->base.allow_spills ? "allowed" : "refused");
}

/* Cubins that were compiled elsewhere serve without NVRTC, whichever version made them: those in
 * use, newest first, then those that may follow. */
static void sign_all(nvrtc_backend *b, const char *arch) {
    static const int majors[] = {13, 12, 14, 15, 16};
    for (size_t i = 0; i < sizeof majors / sizeof majors[0]; ++i)
        for (int minor = 9; minor >= 0; --minor)
            sign(b, majors[i], minor, arch);
}

static lathe_status open_nvrtc(nvrtc_backend *b, const lathe_compiler_options *options) {
    const lathe_message_buffer missing = {b->base.missing, sizeof b->base.missing};
    const lathe_status status = lathe_nvrtc_create(options->nvrtc, &b->nvrtc, missing);
    return status == LATHE_OK ? lathe_nvrtc_check_arch(b->nvrtc, options->arch, missing) : status;
}

lathe_status lathe_backend_nvrtc_create(const lathe_compiler_options *options,
                                        lathe_backend **backend, lathe_message_buffer message) {
    *backend = NULL;
    nvrtc_backend *b = calloc(1, sizeof *b);
    if (!b)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for the compiler");
    b->base.side = "cuda";
    b->base.artefact = "kernel.cubin";
    b->base.allow_spills = options->allow_spills;
    b->base.compile = compile;
    b->base.destroy = destroy;
    const lathe_status status = open_nvrtc(b, options);
    if (status != LATHE_OK && status != LATHE_NO_DEVICE) {
        lathe_fail(message, status, "%s", b->base.missing);
        destroy(&b->base);
        return status;
    }
    if (status == LATHE_OK) {
        b->base.cuda_major = lathe_nvrtc_major(b->nvrtc);
        sign(b, b->base.cuda_major, lathe_nvrtc_minor(b->nvrtc), options->arch);
        lathe_nvrtc_options_get(b->base.cuda_major, lathe_nvrtc_minor(b->nvrtc), options->arch,
                                &b->options);
    } else {
        sign_all(b, options->arch);
    }
    *backend = &b->base;
    return LATHE_OK;
}
