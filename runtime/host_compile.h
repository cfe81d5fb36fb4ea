/* SPDX-License-Identifier: Apache-2.0
 * Compiles a generated source for the host device, with the system's C++ compiler and no shell. */
#ifndef LATHE_HOST_COMPILE_H
#define LATHE_HOST_COMPILE_H

#include "lathe.h"

typedef struct {
    const char *templates; /* folder that holds prims/host and the providers' folders */
    const char *source;    /* the .cu */
    const char *object;    /* the shared object to write */
    bool sanitize;         /* ASan and UBSan; see lathe_host_sanitized() */
} lathe_host_compile_job;

/* Whether this program runs under ASan, so that kernels must be compiled with it too. */
bool lathe_host_sanitized(void);

/* The compiler's command ($CXX, else c++) and its options without file names, ended by NULL;
 * static. With lathe_host_compiler_version() and the sources they make the key of a cache entry. */
const char *const *lathe_host_compile_options(bool sanitize);

/* First line of what the compiler's --version says. LATHE_NO_DEVICE where there is none. */
LATHE_CHECKED lathe_status lathe_host_compiler_version(char *text, size_t bytes);

/* LATHE_COMPILE with the compiler's output in `log`, LATHE_NO_DEVICE where no compiler is found.
 * `log` is always a string; it ends in "..." where it did not fit. `object` is written only on
 * success. Safe to call from several threads. */
LATHE_CHECKED lathe_status lathe_host_compile(const lathe_host_compile_job *job, char *log,
                                              size_t log_bytes);

#endif
