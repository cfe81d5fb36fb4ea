/* SPDX-License-Identifier: Apache-2.0
 * Growing text: append, print, JSON strings, decimals that read back exactly, whole files. */
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(lathe_text *text, size_t more) {
    if (text->data && text->capacity - text->size > more)
        return;
    size_t capacity = text->capacity ? text->capacity : 256;
    while (capacity - text->size <= more)
        capacity *= 2;
    char *data = lathe_arena_alloc(text->arena, capacity, 1);
    if (text->size)
        memcpy(data, text->data, text->size);
    text->data = data;
    text->capacity = capacity;
}

void lathe_text_append(lathe_text *text, const char *bytes, size_t size) {
    reserve(text, size);
    memcpy(text->data + text->size, bytes, size);
    text->size += size;
    text->data[text->size] = '\0';
}

void lathe_text_print(lathe_text *text, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length > 0) {
        reserve(text, (size_t)length);
        (void)vsnprintf(text->data + text->size, (size_t)length + 1, format, again);
        text->size += (size_t)length;
    }
    va_end(again);
}

const char *lathe_text_string(const lathe_text *text) {
    return text->data ? text->data : "";
}

void lathe_text_json(lathe_text *text, const char *string) {
    lathe_text_append(text, "\"", 1);
    for (const unsigned char *s = (const unsigned char *)string; *s; s++) {
        if (*s == '"' || *s == '\\')
            lathe_text_print(text, "\\%c", *s);
        else if (*s < 0x20)
            lathe_text_print(text, "\\u%04x", *s);
        else
            lathe_text_append(text, (const char *)s, 1);
    }
    lathe_text_append(text, "\"", 1);
}

const char *lathe_text_real(lathe_arena *arena, double value) {
    char digits[64] = "";
    if (value != value)
        return "nan"; /* its sign differs from machine to machine */
    for (int precision = 1; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    const int whole = strpbrk(digits, ".en") == NULL;
    return lathe_arena_print(arena, "%s%s", digits, whole ? ".0" : "");
}

int lathe_text_read(lathe_text *text, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    char chunk[16384];
    size_t got;
    while ((got = fread(chunk, 1, sizeof chunk, file)) > 0)
        lathe_text_append(text, chunk, got);
    const int failed = ferror(file) ? (errno ? errno : EIO) : 0;
    fclose(file);
    errno = failed;
    return failed == 0;
}
