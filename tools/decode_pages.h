/* SPDX-License-Identifier: Apache-2.0
 * The pages of one sequence in one group of layers: taken as it grows, given back as it is rewound.
 */
#ifndef LATHE_DECODE_PAGES_H
#define LATHE_DECODE_PAGES_H

#include "step.h"

typedef struct {
    int64_t unit;   /* tokens of a page */
    int64_t width;  /* of the block table */
    int64_t used;   /* entries of the table that hold a page */
    int32_t *table; /* [width] */
    int32_t *free;  /* a stack of the pages that are in no table */
    int64_t free_count;
} lathe_decode_pages;

/* All pages of the group's caches are free. False where there is no memory. */
bool lathe_decode_pages_open(lathe_decode_pages *pages, lathe_engine *engine, int group);
void lathe_decode_pages_close(lathe_decode_pages *pages);
/* Pages for the first `tokens` tokens. False where they do not suffice. */
bool lathe_decode_pages_reserve(lathe_decode_pages *pages, int64_t tokens);
/* Gives back what lies wholly behind the first `tokens` tokens. */
void lathe_decode_pages_rewind(lathe_decode_pages *pages, int64_t tokens);
int64_t lathe_decode_pages_slot(const lathe_decode_pages *pages, int64_t position);

#endif
