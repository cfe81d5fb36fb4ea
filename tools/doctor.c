/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor.h"

#include <stdarg.h>

void lathe_doctor_say(lathe_doctor *d, lathe_verdict verdict, const char *subject,
                      const char *advice, const char *format, ...) {
    static const char *const words[] = {"ok", "absent", "BROKEN"};
    va_list arguments;
    fprintf(d->out, "%-14s %-7s ", subject, words[verdict]);
    va_start(arguments, format);
    vfprintf(d->out, format, arguments);
    va_end(arguments);
    fputc('\n', d->out);
    if (advice)
        fprintf(d->out, "%-22s -> %s\n", "", advice);
    if (verdict == LATHE_DOCTOR_BROKEN)
        d->broken++;
}
