/* SPDX-License-Identifier: Apache-2.0
 * Located messages. One lathe_diag belongs to one call of the generator; the first failure is
 * written into it and control returns to the call's LATHE_TRY. Everything a call makes lives in its
 * arena or is closed by its owner, so nothing leaks on that way. */
#ifndef LATHE_DIAG_H
#define LATHE_DIAG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

typedef struct {
    const char *file; /* relative to the root; NULL: no place in a file */
    int line;         /* 0: the whole file */
} lathe_where;

typedef struct {
    jmp_buf jump;
    char message[8192];
} lathe_diag;

/* True on the first pass, false once something below has failed. */
#define LATHE_TRY(diag) (setjmp((diag)->jump) == 0)

/* Writes "file:line: message" and jumps to the LATHE_TRY of `diag`. */
_Noreturn void lathe_diag_fail(lathe_diag *diag, lathe_where where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Takes over a message that already names its place. */
_Noreturn void lathe_diag_raise(lathe_diag *diag, const char *message);

#endif
