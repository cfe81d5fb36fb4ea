/* SPDX-License-Identifier: Apache-2.0
 * Owns: the runtime's clock, and when a wait on the processor ends. */
#ifndef LATHE_DEADLINE_H
#define LATHE_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds since some moment in the past; never goes back. Not the host device's virtual time.
 */
uint64_t lathe_clock_ns(void);

typedef struct {
    uint64_t end_ns; /* of lathe_clock_ns */
    uint64_t polls;
} lathe_deadline;

/* `ns` from now; one that lies beyond the clock never comes. */
lathe_deadline lathe_deadline_in(uint64_t ns);

/* Between two polls: false once the time is up, else true, after `rest_ns` of sleep where there
 * have been `spins` polls before. */
bool lathe_deadline_rest(lathe_deadline *deadline, uint64_t spins, uint64_t rest_ns);

/* For a wait on a condition variable with CLOCK_MONOTONIC. */
struct timespec lathe_deadline_time(const lathe_deadline *deadline);

#endif
