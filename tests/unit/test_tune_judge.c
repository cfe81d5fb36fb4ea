/* SPDX-License-Identifier: Apache-2.0
 * Which tactic is taken, from times that are made up. */
#include <criterion/criterion.h>
#include <string.h>

#include "tune_judge.h"

#define ROOM 40
#define COUNT 4

static double times[COUNT * ROOM];
static bool racing[COUNT];
static const int simple[COUNT] = {3, 0, 2, 1};

/* Noise of one microsecond that is the same every time, and drift that all share. */
static double noise(int c, int round) {
    return ((c * 7 + round * 5) % 11 - 5) / 5.0;
}

static lathe_tune_race make(const double *means, double noisy, int rounds, double enough) {
    for (int c = 0; c < COUNT; ++c) {
        racing[c] = true;
        for (int r = 0; r < rounds; ++r)
            times[c * ROOM + r] = means[c] + noisy * noise(c, r) + 30.0 * (r % 3);
    }
    return (lathe_tune_race){times, simple, racing, COUNT, ROOM, rounds, enough};
}

Test(tune_judge, the_fastest_is_told_from_the_others_by_the_noise) {
    lathe_tune_race race = make((const double[]){100, 103, 110, 101.5}, 0.5, 40, 0.1);
    const lathe_tune_verdict v = lathe_tune_judge(&race);
    cr_expect(v.best == 0 && v.taken == 0 && v.settled && v.racing == 1);
    cr_expect(racing[0] && !racing[1] && !racing[2] && !racing[3]);
}

Test(tune_judge, of_equals_the_simplest_is_taken) {
    lathe_tune_race race = make((const double[]){100, 100.05, 100.1, 130}, 0.01, 20, 0.5);
    const lathe_tune_verdict v = lathe_tune_judge(&race);
    cr_expect_eq(v.best, 0);
    cr_expect_eq(v.taken, 1);
    cr_expect(v.settled && v.racing == 3);
}

Test(tune_judge, what_noise_hides_goes_on) {
    lathe_tune_race race = make((const double[]){100, 100.2, 150, 150}, 2, 10, 0.1);
    const lathe_tune_verdict v = lathe_tune_judge(&race);
    cr_expect(!v.settled && v.racing == 2 && v.noise > 0.2);
    cr_expect(!racing[2] && !racing[3]);
}

/* Noise hides both, and the simpler one is ten times `enough` behind by its median. */
Test(tune_judge, what_is_far_behind_is_not_taken_for_being_simple) {
    lathe_tune_race race = make((const double[]){100, 108, 150, 150}, 8, 10, 0.1);
    const lathe_tune_verdict v = lathe_tune_judge(&race);
    cr_expect(v.racing == 2 && racing[1] && v.taken == v.best, "%d %d", v.racing, v.taken);
    race.enough = 10;
    cr_expect_eq(lathe_tune_judge(&race).taken, 1);
}

Test(tune_judge, nothing_is_said_of_few_rounds) {
    lathe_tune_race race = make((const double[]){100, 200, 300, 400}, 0.1, 3, 0.1);
    const lathe_tune_verdict v = lathe_tune_judge(&race);
    cr_expect(!v.settled && v.racing == COUNT && v.best == 0);
}

Test(tune_judge, who_is_out_stays_out_and_the_same_times_give_the_same) {
    lathe_tune_race race = make((const double[]){100, 99, 110, 120}, 0.3, 30, 0.1);
    racing[1] = false;
    const lathe_tune_verdict v = lathe_tune_judge(&race), again = lathe_tune_judge(&race);
    cr_expect(v.best == 0 && v.taken == 0 && !racing[1]);
    cr_expect(again.best == v.best && again.taken == v.taken && again.noise == v.noise);
}

/* Drift of tens of microseconds is in the times, not in their differences. */
Test(tune_judge, drift_is_no_noise) {
    double spread;
    lathe_tune_race race = make((const double[]){100, 101, 102, 103}, 0.1, 30, 0.1);
    cr_expect(lathe_tune_median(&race, 0, &spread) > 100 && spread > 20);
    cr_expect(lathe_tune_judge(&race).settled);
}

Test(tune_judge, progress_says_what_is_left) {
    char line[128];
    lathe_tune_progress(line, sizeof line, "k", 1, 4, 25);
    cr_expect_str_eq(line, "[######..................] k, 1:15 to go");
    lathe_tune_progress(line, sizeof line, "k", 0, 4, 0);
    cr_expect_str_eq(line, "[........................] k");
    lathe_tune_progress(line, sizeof line, "k", 5, 4, 10);
    cr_expect_str_eq(line, "[########################] k, 0:00 to go");
}
