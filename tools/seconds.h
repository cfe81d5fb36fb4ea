/* SPDX-License-Identifier: Apache-2.0
 * The clock of the tools: how long something took. */
#ifndef LATHE_SECONDS_H
#define LATHE_SECONDS_H

#include <time.h>

/* Seconds since some moment in the past; never goes back. */
static inline double lathe_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
