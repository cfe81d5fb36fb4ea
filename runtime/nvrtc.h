/* SPDX-License-Identifier: Apache-2.0
 * Owns: NVIDIA's run-time compiler, taken by dlopen; nvrtc.c is the only file that names it.
 * Declares by hand what it needs, so that nothing of the toolkit is needed to build. */
#ifndef LATHE_NVRTC_H
#define LATHE_NVRTC_H

#include "log.h"
#include "sources.h"

typedef struct lathe_nvrtc lathe_nvrtc;

/* `where`: the library or a folder that holds it; NULL: LATHE_NVRTC, else the usual places
 * (library.h). LATHE_NO_DEVICE with the places tried, or where it is too old. */
LATHE_CHECKED lathe_status lathe_nvrtc_create(const char *where, lathe_nvrtc **nvrtc,
                                              lathe_message_buffer message);
void lathe_nvrtc_destroy(lathe_nvrtc *nvrtc);

int lathe_nvrtc_major(const lathe_nvrtc *nvrtc);
int lathe_nvrtc_minor(const lathe_nvrtc *nvrtc);

/* The library's file. Returns `path`. */
const char *lathe_nvrtc_path(const lathe_nvrtc *nvrtc, char *path, size_t size);

/* LATHE_NO_DEVICE where it is too old for the architecture, with the first version that is not. */
LATHE_CHECKED lathe_status lathe_nvrtc_check_arch(const lathe_nvrtc *nvrtc, const char *arch,
                                                  lathe_message_buffer message);

/* Options for an architecture, ended by NULL; all that is given to the compiler beside the texts.
 */
#define LATHE_NVRTC_OPTIONS 8
typedef struct {
    char arch[48];
    const char *list[LATHE_NVRTC_OPTIONS + 1];
    int count;
} lathe_nvrtc_options;
void lathe_nvrtc_options_get(int major, int minor, const char *arch, lathe_nvrtc_options *options);

typedef struct {
    void *cubin; /* the caller frees */
    size_t bytes;
    char *log;       /* the caller frees; may be NULL */
    int registers;   /* of the entry that uses most; -1 where the log does not say */
    int spill_bytes; /* stores and loads */
} lathe_nvrtc_result;

/* Compiles in memory: no include path, no file is read. LATHE_COMPILE: the first errors of the log
 * are the message; the log is in the result. Safe from several threads. */
LATHE_CHECKED lathe_status lathe_nvrtc_compile(const lathe_nvrtc *nvrtc, const lathe_source *source,
                                               const lathe_nvrtc_options *options,
                                               lathe_nvrtc_result *result,
                                               lathe_message_buffer message);

/* Reads registers and spills from a log of --ptxas-options=-v. */
void lathe_nvrtc_parse_log(const char *log, int *registers, int *spill_bytes);

#endif
