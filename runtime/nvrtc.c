/* SPDX-License-Identifier: Apache-2.0
 * Owns: loading and calling NVRTC. */
#include "nvrtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "library.h"

/* From the documented interface; `program` is NVRTC's opaque handle. */
typedef struct nvrtc_program *program;
enum { SUCCESS = 0, OUT_OF_MEMORY = 1, COMPILATION = 6 };

typedef struct {
    int (*version)(int *major, int *minor);
    const char *(*error_string)(int result);
    int (*create)(program *p, const char *text, const char *name, int headers,
                  const char *const *texts, const char *const *names);
    int (*destroy)(program *p);
    int (*compile)(program p, int count, const char *const *options);
    int (*cubin_size)(program p, size_t *bytes);
    int (*cubin)(program p, char *to);
    int (*log_size)(program p, size_t *bytes);
    int (*log)(program p, char *to);
} entry_points;

struct lathe_nvrtc {
    void *library;
    entry_points call;
    int major, minor;
};

static const lathe_library library = {
    "NVRTC", "LATHE_NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}};

static const lathe_library_call calls[] = {
    {"nvrtcVersion", offsetof(entry_points, version)},
    {"nvrtcGetErrorString", offsetof(entry_points, error_string)},
    {"nvrtcCreateProgram", offsetof(entry_points, create)},
    {"nvrtcDestroyProgram", offsetof(entry_points, destroy)},
    {"nvrtcCompileProgram", offsetof(entry_points, compile)},
    {"nvrtcGetCUBINSize", offsetof(entry_points, cubin_size)},
    {"nvrtcGetCUBIN", offsetof(entry_points, cubin)},
    {"nvrtcGetProgramLogSize", offsetof(entry_points, log_size)},
    {"nvrtcGetProgramLog", offsetof(entry_points, log)},
};

static lathe_status open_checked(const char *where, lathe_nvrtc *n, lathe_message_buffer message) {
    lathe_status status = lathe_library_open(&library, where, &n->library, message);
    if (status == LATHE_OK)
        status = lathe_library_take(&library, n->library, calls, sizeof calls / sizeof calls[0],
                                    &n->call, "12.0", message);
    if (status != LATHE_OK)
        return status;
    if (n->call.version(&n->major, &n->minor) != SUCCESS)
        return lathe_fail(message, LATHE_NO_DEVICE, "NVRTC does not tell its version");
    if (n->major < 12)
        return lathe_fail(message, LATHE_NO_DEVICE,
                          "NVRTC is too old: found %d.%d, allowed: 12.0 or newer", n->major,
                          n->minor);
    return LATHE_OK;
}

lathe_status lathe_nvrtc_create(const char *where, lathe_nvrtc **nvrtc,
                                lathe_message_buffer message) {
    *nvrtc = NULL;
    lathe_nvrtc *n = calloc(1, sizeof *n);
    if (!n)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for NVRTC");
    const lathe_status status = open_checked(where, n, message);
    if (status == LATHE_OK)
        *nvrtc = n;
    else
        lathe_nvrtc_destroy(n);
    return status;
}

void lathe_nvrtc_destroy(lathe_nvrtc *n) {
    if (!n)
        return;
    if (n->library)
        dlclose(n->library);
    free(n);
}

int lathe_nvrtc_major(const lathe_nvrtc *n) {
    return n->major;
}

int lathe_nvrtc_minor(const lathe_nvrtc *n) {
    return n->minor;
}

const char *lathe_nvrtc_path(const lathe_nvrtc *n, char *path, size_t size) {
    return lathe_library_path((lathe_symbol)n->call.version, path, size);
}

/* Whether version a.b is c.d or newer. */
static bool at_least(int a, int b, int c, int d) {
    return a > c || (a == c && b >= d);
}

lathe_status lathe_nvrtc_check_arch(const lathe_nvrtc *n, const char *arch,
                                    lathe_message_buffer message) {
    const lathe_gpu *a = lathe_gpu_find(arch);
    if (!a)
        return lathe_fail(message, LATHE_UNSUPPORTED,
                          "unknown architecture: found %s, allowed: " LATHE_GPU_NAMES, arch);
    if (!at_least(n->major, n->minor, a->nvrtc_major, a->nvrtc_minor))
        return lathe_fail(message, LATHE_NO_DEVICE,
                          "NVRTC is too old for %s: found %d.%d, allowed: %d.%d or newer", arch,
                          n->major, n->minor, a->nvrtc_major, a->nvrtc_minor);
    return LATHE_OK;
}

void lathe_nvrtc_options_get(int major, int minor, const char *arch, lathe_nvrtc_options *o) {
    *o = (lathe_nvrtc_options){0};
    snprintf(o->arch, sizeof o->arch, "--gpu-architecture=%s", arch);
    o->list[o->count++] = o->arch;
    o->list[o->count++] = "--std=c++17";
    o->list[o->count++] = "--generate-line-info";
    o->list[o->count++] = "--ptxas-options=-v";
    /* NVRTC's own cache knows nothing of ours: a hit there would hide what the log says */
    if (at_least(major, minor, 12, 9))
        o->list[o->count++] = "--no-cache";
}

/* Adds up the numbers in front of `what` in the log. -1 where it does not occur. */
static int sum_before(const char *log, const char *what, bool largest) {
    int total = -1;
    for (const char *at = log; (at = strstr(at, what)); at += strlen(what)) {
        const char *digit = at;
        while (digit > log && digit[-1] >= '0' && digit[-1] <= '9')
            --digit;
        const int value = (int)strtol(digit, NULL, 10);
        if (total < 0)
            total = 0;
        total = !largest ? total + value : value > total ? value : total;
    }
    return total;
}

void lathe_nvrtc_parse_log(const char *log, int *registers, int *spill_bytes) {
    const int stores = sum_before(log, " bytes spill stores", false);
    const int loads = sum_before(log, " bytes spill loads", false);
    *registers = sum_before(log, " registers", true);
    *spill_bytes = (stores > 0 ? stores : 0) + (loads > 0 ? loads : 0);
}

/* The message of a failed compilation: the log's first error and what follows, as much as fits. */
static lathe_status fail_compile(const lathe_source *source, const char *log,
                                 lathe_message_buffer message) {
    const char *error = log ? strstr(log, "error") : NULL;
    while (error && error > log && error[-1] != '\n')
        --error;
    return lathe_fail(message, LATHE_COMPILE, "%s does not compile: %s", source->file,
                      error ? error
                      : log ? log
                            : "no log");
}

static char *read_log(const lathe_nvrtc *n, program p) {
    size_t bytes = 0;
    if (n->call.log_size(p, &bytes) != SUCCESS || bytes == 0)
        return NULL;
    char *log = calloc(1, bytes + 1);
    if (log && n->call.log(p, log) != SUCCESS)
        log[0] = '\0';
    return log;
}

static lathe_status fail_call(const lathe_nvrtc *n, const char *what, int code,
                              lathe_message_buffer message) {
    return lathe_fail(message, code == OUT_OF_MEMORY ? LATHE_NO_MEMORY : LATHE_COMPILE, "%s: %s",
                      what, n->call.error_string(code));
}

static lathe_status read_cubin(const lathe_nvrtc *n, program p, lathe_nvrtc_result *result,
                               lathe_message_buffer message) {
    int code = n->call.cubin_size(p, &result->bytes);
    if (code != SUCCESS || result->bytes == 0)
        return fail_call(n, "nvrtcGetCUBINSize", code, message);
    result->cubin = malloc(result->bytes);
    if (!result->cubin)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for a cubin");
    code = n->call.cubin(p, result->cubin);
    return code == SUCCESS ? LATHE_OK : fail_call(n, "nvrtcGetCUBIN", code, message);
}

static lathe_status compile_program(const lathe_nvrtc *n, program p, const lathe_source *source,
                                    const lathe_nvrtc_options *options, lathe_nvrtc_result *result,
                                    lathe_message_buffer message) {
    const int code = n->call.compile(p, options->count, options->list);
    result->log = read_log(n, p);
    if (code == COMPILATION)
        return fail_compile(source, result->log, message);
    if (code != SUCCESS)
        return fail_call(n, source->file, code, message);
    if (result->log)
        lathe_nvrtc_parse_log(result->log, &result->registers, &result->spill_bytes);
    return read_cubin(n, p, result, message);
}

lathe_status lathe_nvrtc_compile(const lathe_nvrtc *n, const lathe_source *source,
                                 const lathe_nvrtc_options *options, lathe_nvrtc_result *result,
                                 lathe_message_buffer message) {
    const size_t count = (size_t)source->header_count;
    *result = (lathe_nvrtc_result){.registers = -1};
    const char **texts = calloc(count + 1, sizeof *texts);
    const char **includes = calloc(count + 1, sizeof *includes);
    lathe_status status = LATHE_NO_MEMORY;
    if (texts && includes) {
        for (size_t i = 0; i < count; ++i) {
            texts[i] = source->headers[i].text;
            includes[i] = source->headers[i].name;
        }
        program p = NULL;
        const int code =
            n->call.create(&p, source->text, source->file, source->header_count, texts, includes);
        status = code != SUCCESS ? fail_call(n, "nvrtcCreateProgram", code, message)
                                 : compile_program(n, p, source, options, result, message);
        if (p)
            n->call.destroy(&p);
    } else {
        lathe_fail(message, status, "no memory to compile %s", source->file);
    }
    free(texts);
    free(includes);
    if (status != LATHE_OK) {
        free(result->cubin);
        result->cubin = NULL;
    }
    return status;
}
