/* SPDX-License-Identifier: Apache-2.0
 * Located messages: formats the first failure and leaves the call. */
#include "diag.h"

#include <stdio.h>

static size_t write_place(lathe_diag *diag, lathe_where where) {
    int used = 0;
    if (where.file && where.line > 0)
        used = snprintf(diag->message, sizeof diag->message, "%s:%d: ", where.file, where.line);
    else if (where.file)
        used = snprintf(diag->message, sizeof diag->message, "%s: ", where.file);
    if (used < 0)
        return 0;
    return (size_t)used < sizeof diag->message ? (size_t)used : sizeof diag->message - 1;
}

_Noreturn void lathe_diag_fail(lathe_diag *diag, lathe_where where, const char *format, ...) {
    const size_t used = write_place(diag, where);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(diag->message + used, sizeof diag->message - used, format, args);
    va_end(args);
    longjmp(diag->jump, 1);
}

_Noreturn void lathe_diag_raise(lathe_diag *diag, const char *message) {
    (void)snprintf(diag->message, sizeof diag->message, "%s", message);
    longjmp(diag->jump, 1);
}
