/* SPDX-License-Identifier: Apache-2.0 */
#include "deadline.h"

#define SECOND 1000000000u

static struct timespec time_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
}

uint64_t lathe_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

lathe_deadline lathe_deadline_in(uint64_t ns) {
    const uint64_t now = lathe_clock_ns();
    return (lathe_deadline){.end_ns = ns > UINT64_MAX - now ? UINT64_MAX : now + ns};
}

bool lathe_deadline_rest(lathe_deadline *deadline, uint64_t spins, uint64_t rest_ns) {
    if (lathe_clock_ns() >= deadline->end_ns)
        return false;
    if (deadline->polls++ >= spins) {
        const struct timespec rest = time_of(rest_ns);
        nanosleep(&rest, NULL);
    }
    return true;
}

struct timespec lathe_deadline_time(const lathe_deadline *deadline) {
    return time_of(deadline->end_ns);
}
