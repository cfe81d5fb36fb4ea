/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "deadline.h"

TestSuite(deadline, .timeout = 60);

Test(deadline, a_wait_ends_when_its_time_is_up_and_not_before) {
    const uint64_t begin = lathe_clock_ns();
    lathe_deadline d = lathe_deadline_in(20000000);
    uint64_t polls = 0;
    while (lathe_deadline_rest(&d, 3, 1000000))
        ++polls;
    cr_assert_geq(lathe_clock_ns() - begin, 20000000);
    cr_assert_geq(polls, 3);
    cr_assert_leq(polls, 23, "three at once, then at most one a millisecond: %llu",
                  (unsigned long long)polls);
    cr_assert_not(lathe_deadline_rest(&d, 3, 1000000), "it stays up");
}

Test(deadline, the_first_polls_do_not_sleep) {
    lathe_deadline d = lathe_deadline_in(UINT64_MAX);
    const uint64_t begin = lathe_clock_ns();
    for (int i = 0; i < 1000; ++i)
        cr_assert(lathe_deadline_rest(&d, 1000, 1000000000));
    cr_assert_lt(lathe_clock_ns() - begin, 900000000);
    const uint64_t then = lathe_clock_ns();
    cr_assert(lathe_deadline_rest(&d, 1000, 1000000));
    cr_assert_geq(lathe_clock_ns() - then, 1000000);
}

/* Also where the sum would pass the end of the clock. */
Test(deadline, the_time_of_a_deadline_is_that_of_the_monotonic_clock) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const lathe_deadline d = lathe_deadline_in(2000000000);
    const struct timespec t = lathe_deadline_time(&d);
    const double ahead = (double)(t.tv_sec - now.tv_sec) + (double)(t.tv_nsec - now.tv_nsec) * 1e-9;
    cr_assert(ahead >= 2.0 && ahead < 30.0, "%f s", ahead);
    cr_assert(t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
    cr_assert_eq(lathe_deadline_in(UINT64_MAX).end_ns, UINT64_MAX);
}
