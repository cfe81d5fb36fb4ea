/* SPDX-License-Identifier: Apache-2.0
 * Owns: pools, as a list of blocks that grow with use. */
#include "pool.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16u
#define FIRST_BLOCK 4096u
#define LARGEST_BLOCK (1u << 20)

typedef struct block {
    struct block *next;
    size_t used, size;
    /* bytes follow, aligned */
} block;

struct lathe_pool {
    block *blocks;
    size_t next_size;
};

#define HEADER ((sizeof(block) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)

lathe_pool *lathe_pool_create(void) {
    lathe_pool *pool = calloc(1, sizeof *pool);
    if (pool)
        pool->next_size = FIRST_BLOCK;
    return pool;
}

void lathe_pool_destroy(lathe_pool *pool) {
    if (!pool)
        return;
    for (block *b = pool->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(pool);
}

static block *grow(lathe_pool *pool, size_t bytes) {
    const size_t size = bytes > pool->next_size ? bytes : pool->next_size;
    block *b = calloc(1, HEADER + size);
    if (!b)
        return NULL;
    b->size = size;
    b->next = pool->blocks;
    pool->blocks = b;
    if (pool->next_size < LARGEST_BLOCK)
        pool->next_size *= 2;
    return b;
}

void *lathe_pool_alloc(lathe_pool *pool, size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total) || total > SIZE_MAX / 2)
        return NULL;
    total = (total + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block *b = pool->blocks;
    if (!b || b->size - b->used < total)
        b = grow(pool, total);
    if (!b)
        return NULL;
    void *memory = (char *)b + HEADER + b->used;
    b->used += total;
    return memory;
}

char *lathe_pool_string(lathe_pool *pool, const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copy = lathe_pool_alloc(pool, bytes, 1);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

char *lathe_pool_format(lathe_pool *pool, const char *format, ...) {
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    const int length = vsnprintf(NULL, 0, format, list);
    char *text = length < 0 ? NULL : lathe_pool_alloc(pool, (size_t)length + 1, 1);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(list);
    return text;
}
