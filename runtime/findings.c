/* SPDX-License-Identifier: Apache-2.0
 * Lines, as long as there is room for them and for the one that counts the rest. */
#include "findings.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LAST_LINE 40 /* bytes of "(and N more)" */
#define LINE_BYTES 2048

void lathe_findings_open(lathe_findings *f, char *message, size_t size) {
    *f = (lathe_findings){.message = message, .size = size};
    if (size > 0)
        message[0] = 0;
}

/* `must`: cut to the room that there is. */
static bool append(lathe_findings *f, const char *line, bool must) {
    const size_t room = f->size > f->length ? f->size - f->length : 0;
    const size_t wanted = strlen(line) + 1 + LAST_LINE;
    if (room == 0 || (wanted >= room && !must))
        return false;
    snprintf(f->message + f->length, room, "%s%s", f->length ? "\n" : "", line);
    f->length += strlen(f->message + f->length);
    return true;
}

/* A line is one, whatever names a file gave it. */
static void tame(char *line) {
    for (char *p = line; *p; ++p)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
}

void lathe_findings_head(lathe_findings *f, const char *format, ...) {
    char line[LINE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    tame(line);
    append(f, line, true);
}

void lathe_findings_add(lathe_findings *f, const char *format, ...) {
    char line[LINE_BYTES];
    va_list list;
    f->count++;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    tame(line);
    if (f->shown + 1 == f->count && append(f, line, f->shown == 0 && f->length == 0))
        f->shown++;
}

void lathe_findings_close(lathe_findings *f) {
    char line[LAST_LINE];
    if (f->count == f->shown)
        return;
    snprintf(line, sizeof line, "(and %lld more)", (long long)(f->count - f->shown));
    append(f, line, true);
}
