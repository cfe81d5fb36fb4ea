/* SPDX-License-Identifier: Apache-2.0
 * Owns: a message of many lines, one for everything that is wrong, so that a reader mends all of it
 * at once. What no longer fits is counted in the last line. */
#ifndef LATHE_FINDINGS_H
#define LATHE_FINDINGS_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *message;
    size_t size, length;
    int64_t count, shown;
} lathe_findings;

/* Empties `message`. */
void lathe_findings_open(lathe_findings *findings, char *message, size_t size);
/* One line more, bytes of control as '?'; the first is cut where it does not fit, others are left out. */
void lathe_findings_add(lathe_findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A line above the others, before the first of them. */
void lathe_findings_head(lathe_findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Says how many were left out. */
void lathe_findings_close(lathe_findings *findings);

#endif
