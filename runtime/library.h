/* SPDX-License-Identifier: Apache-2.0
 * Owns: which file a symbol of a loaded library comes from. */
#ifndef LATHE_LIBRARY_H
#define LATHE_LIBRARY_H

#include <stddef.h>

/* A pointer to a function, as bytes: C has no common type for them. */
typedef void (*lathe_symbol)(void);

/* The path of the library, links resolved; "" where it cannot be told. Returns `path`. */
const char *lathe_library_path(lathe_symbol symbol, char *path, size_t size);

#endif
