/* SPDX-License-Identifier: Apache-2.0
 * Growing text in an arena, and whole files as text. */
#ifndef LATHE_TEXT_H
#define LATHE_TEXT_H

#include "arena.h"

#include <stdint.h>

typedef struct {
    lathe_arena *arena;
    char *data; /* always ends with a zero byte; NULL while empty */
    size_t size, capacity;
} lathe_text;

void lathe_text_append(lathe_text *text, const char *bytes, size_t size);
void lathe_text_print(lathe_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The text as a C string, "" while empty. */
const char *lathe_text_string(const lathe_text *text);

/* `string` in JSON quotes. Bytes that are no UTF-8 are the caller's to refuse. */
void lathe_text_json(lathe_text *text, const char *string);

/* Shortest decimal that reads back as the same double, always with a point or an exponent. */
const char *lathe_text_real(lathe_arena *arena, double value);

/* Reads a whole file into `text`; false with errno set. */
int lathe_text_read(lathe_text *text, const char *path);

#endif
