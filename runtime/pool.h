/* SPDX-License-Identifier: Apache-2.0
 * Owns: memory that is given back all at once. A pool hands out zeroed, aligned pieces until it is
 * destroyed. */
#ifndef LATHE_POOL_H
#define LATHE_POOL_H

#include <stddef.h>

typedef struct lathe_pool lathe_pool;

/* NULL where there is no memory. */
lathe_pool *lathe_pool_create(void);
void lathe_pool_destroy(lathe_pool *pool);

/* `count` zeroed elements of `bytes` each, or NULL. A count of 0 gives a valid pointer to nothing.
 */
void *lathe_pool_alloc(lathe_pool *pool, size_t count, size_t bytes);

/* A copy, or NULL. */
char *lathe_pool_string(lathe_pool *pool, const char *text);

/* Formats, or NULL. */
char *lathe_pool_format(lathe_pool *pool, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
