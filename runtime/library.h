/* SPDX-License-Identifier: Apache-2.0
 * Owns: libraries taken by dlopen: where they are looked for, their entry points, their files. */
#ifndef LATHE_LIBRARY_H
#define LATHE_LIBRARY_H

#include <stddef.h>

#include "log.h"

/* A pointer to a function, as bytes: C has no common type for them. */
typedef void (*lathe_symbol)(void);

#define LATHE_LIBRARY_NAMES 3
typedef struct {
    const char *what;     /* "NVRTC" */
    const char *variable; /* "LATHE_NVRTC": a library or a folder that holds one */
    const char *names[LATHE_LIBRARY_NAMES]; /* of its file, best first; the rest NULL */
} lathe_library;

/* Opens the library at `where`: its file, or a folder that holds it, also as `lib`, `lib64` or in
 * the nvidia folders of a Python environment. NULL: what the variable says, else the folder
 * `nvidia` beside the running program, else what the loader finds, else in /usr/local/cuda,
 * /usr/local and /usr. A place that was named is the only one tried. LATHE_NO_DEVICE with the
 * places tried. */
LATHE_CHECKED lathe_status lathe_library_open(const lathe_library *library, const char *where,
                                              void **handle, lathe_message_buffer message);

/* An entry point and its place in a table of them. */
typedef struct {
    const char *symbol;
    size_t offset;
} lathe_library_call;

/* Fills the pointers of `table`. The first symbol that the library lacks; NULL: none. */
const char *lathe_library_resolve(void *handle, const lathe_library_call *calls, size_t count,
                                  void *table);

/* The same; LATHE_NO_DEVICE names the library's file where it lacks any: all of them, then it is
 * another library, or some, then it is older than `oldest`. */
LATHE_CHECKED lathe_status lathe_library_take(const lathe_library *library, void *handle,
                                              const lathe_library_call *calls, size_t count,
                                              void *table, const char *oldest,
                                              lathe_message_buffer message);

/* The path of the library that has the symbol, links resolved; "" where it cannot be told. Returns
 * `path`. */
const char *lathe_library_path(lathe_symbol symbol, char *path, size_t size);

#endif
