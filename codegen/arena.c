/* SPDX-License-Identifier: Apache-2.0
 * The arena: blocks in a list, a bump pointer in the newest. */
#include "arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16 };

typedef struct block {
    struct block *next;
    size_t used, size;
    max_align_t bytes[];
} block;

struct lathe_arena {
    lathe_diag *diag;
    block *blocks;
};

lathe_arena *lathe_arena_create(lathe_diag *diag) {
    lathe_arena *arena = calloc(1, sizeof *arena);
    if (arena)
        arena->diag = diag;
    return arena;
}

void lathe_arena_destroy(lathe_arena *arena) {
    if (!arena)
        return;
    for (block *b = arena->blocks; b;) {
        block *next = b->next;
        free(b);
        b = next;
    }
    free(arena);
}

lathe_diag *lathe_arena_diag(const lathe_arena *arena) {
    return arena->diag;
}

static block *add_block(lathe_arena *arena, size_t bytes) {
    const size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    block *b = size < SIZE_MAX / 2 ? calloc(1, sizeof *b + size) : NULL;
    if (!b)
        lathe_diag_fail(arena->diag, (lathe_where){0}, "no memory for %zu bytes", bytes);
    b->size = size;
    b->next = arena->blocks;
    arena->blocks = b;
    return b;
}

void *lathe_arena_alloc(lathe_arena *arena, size_t count, size_t size) {
    const size_t align = _Alignof(max_align_t);
    if (size && count > (SIZE_MAX / 4) / size)
        lathe_diag_fail(arena->diag, (lathe_where){0}, "no memory for %zu elements", count);
    const size_t bytes = (count * size + align - 1) / align * align;
    block *b = arena->blocks;
    if (!b || b->size - b->used < bytes)
        b = add_block(arena, bytes);
    void *memory = (char *)b->bytes + b->used;
    b->used += bytes;
    return memory;
}

void *lathe_arena_grow(lathe_arena *arena, void *array, size_t count, size_t size) {
    /* Capacities are powers of two from 4 on, so the count alone says when one is full. */
    if (array && (count < 4 || (count & (count - 1)) != 0))
        return array;
    void *larger = lathe_arena_alloc(arena, count < 4 ? 4 : 2 * count, size);
    if (count)
        memcpy(larger, array, count * size);
    return larger;
}

char *lathe_arena_copy(lathe_arena *arena, const char *text, size_t length) {
    char *copy = lathe_arena_alloc(arena, length + 1, 1);
    memcpy(copy, text, length);
    return copy;
}

char *lathe_arena_print(lathe_arena *arena, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = lathe_arena_alloc(arena, (size_t)(length < 0 ? 0 : length) + 1, 1);
    (void)vsnprintf(text, (size_t)(length < 0 ? 0 : length) + 1, format, again);
    va_end(again);
    return text;
}
