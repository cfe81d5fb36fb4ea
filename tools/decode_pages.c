/* SPDX-License-Identifier: Apache-2.0
 * A block table over a stack of free pages. */
#include "decode_pages.h"

#include <stdlib.h>
#include <string.h>

/* Pages that every cache of the group has; as many as the table holds where it has none. */
static int64_t count_pages(lathe_engine *engine, int group, int64_t width) {
    const lathe_step_table *t = lathe_engine_table(engine);
    int64_t least = INT64_MAX;
    for (int i = 0; i < t->buffer_count; ++i) {
        const lathe_step_buffer *b = &t->buffers[i];
        lathe_engine_memory m;
        if (b->lifetime == LATHE_LIFETIME_KV && b->group == group &&
            lathe_engine_find(engine, b->name, b->per_layer ? b->layers[0] : -1, &m) == LATHE_OK &&
            m.shape.dim[0] < least)
            least = m.shape.dim[0];
    }
    return least == INT64_MAX ? width : least;
}

bool lathe_decode_pages_open(lathe_decode_pages *p, lathe_engine *engine, int group) {
    const lathe_step_table *t = lathe_engine_table(engine);
    *p = (lathe_decode_pages){.unit = t->page_tokens, .width = t->groups[group].table_width};
    p->free_count = count_pages(engine, group, p->width);
    p->table = calloc((size_t)p->width + 1, sizeof *p->table);
    p->free = calloc((size_t)p->free_count + 1, sizeof *p->free);
    if (!p->table || !p->free)
        return false;
    /* Those of odd numbers first: neighbours in a sequence are none in the cache. */
    int64_t n = 0;
    for (int64_t i = 0; i < p->free_count; i += 2)
        p->free[n++] = (int32_t)i;
    for (int64_t i = 1; i < p->free_count; i += 2)
        p->free[n++] = (int32_t)i;
    return true;
}

void lathe_decode_pages_close(lathe_decode_pages *p) {
    free(p->table);
    free(p->free);
    p->table = p->free = NULL;
}

static int64_t count_needed(const lathe_decode_pages *p, int64_t tokens) {
    return (tokens + p->unit - 1) / p->unit;
}

bool lathe_decode_pages_reserve(lathe_decode_pages *p, int64_t tokens) {
    const int64_t needed = count_needed(p, tokens);
    if (needed > p->width || needed - p->used > p->free_count)
        return false;
    while (p->used < needed)
        p->table[p->used++] = p->free[--p->free_count];
    return true;
}

void lathe_decode_pages_rewind(lathe_decode_pages *p, int64_t tokens) {
    while (p->used > count_needed(p, tokens))
        p->free[p->free_count++] = p->table[--p->used];
}

int64_t lathe_decode_pages_slot(const lathe_decode_pages *p, int64_t position) {
    return (int64_t)p->table[position / p->unit] * p->unit + position % p->unit;
}
