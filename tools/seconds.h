/* SPDX-License-Identifier: Apache-2.0
 * The clock of the tools: how long something took. */
#ifndef LATHE_SECONDS_H
#define LATHE_SECONDS_H

#include "deadline.h"

/* Seconds since some moment in the past; never goes back. */
static inline double lathe_seconds(void) {
    return (double)lathe_clock_ns() * 1e-9;
}

#endif
