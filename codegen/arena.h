/* SPDX-License-Identifier: Apache-2.0
 * One arena per call of the generator: everything made on the way is freed at once. */
#ifndef LATHE_ARENA_H
#define LATHE_ARENA_H

#include "diag.h"

#include <stdarg.h>
#include <stddef.h>

typedef struct lathe_arena lathe_arena;

/* NULL without memory. Later failures of allocation go to `diag`. */
lathe_arena *lathe_arena_create(lathe_diag *diag);
void lathe_arena_destroy(lathe_arena *arena);

/* Zeroed memory for `count` elements of `size` bytes, aligned for any type. Never NULL. */
void *lathe_arena_alloc(lathe_arena *arena, size_t count, size_t size);

/* Room for one more element of an array kept in the arena: returns the array, moved if it had to
 * grow. */
void *lathe_arena_grow(lathe_arena *arena, void *array, size_t count, size_t size);

char *lathe_arena_copy(lathe_arena *arena, const char *text, size_t length);
char *lathe_arena_print(lathe_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

lathe_diag *lathe_arena_diag(const lathe_arena *arena);

#endif
