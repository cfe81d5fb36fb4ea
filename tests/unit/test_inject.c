/* SPDX-License-Identifier: Apache-2.0
 * What --inject takes and what it refuses, and runs that go on after a fault. */
#include "inject.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static char said[16384];

/* The exit status; what was said is in `said`. */
static int run_command(const char *command) {
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    said[fread(said, 1, sizeof said - 1, f)] = '\0';
    const int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Steps of two ranks with a fault; the exit status of the program. */
static int run_with(const char *options) {
    char command[1024];
    snprintf(command, sizeof command,
             LATHE_BINARY " run " LATHE_SOURCE_DIR "/layouts/attention_block.lua --tp 2 --steps 4 "
                          "--variant 1x1 --timeout 1 %s 2>&1",
             options);
    return run_command(command);
}

/* All four steps were taken, and those after the fault have the bits of the first. */
static void goes_on(const char *fault, const char *message) {
    char options[128];
    snprintf(options, sizeof options, "--inject %s --rejoin", fault);
    cr_assert_eq(run_with(options), 0, "%s: %s", fault, said);
    cr_assert(strstr(said, message) && strstr(said, "layer ") && strstr(said, ", sum_"), "%s: %s",
              fault, said);
    cr_assert(strstr(said, "the ranks rejoin\n") && strstr(said, "4 steps") &&
                  strstr(said, "outputs identical, 3 of 3 alike"),
              "%s: %s", fault, said);
}

Test(inject, steps_go_on_after_ranks_rejoin, .timeout = 120) {
    goes_on("lost:1@2", "rank 0: layer 0, sum_attention_1x1 (sum + residual + norm): rank 1 "
                        "did not come in time");
    goes_on("late:1@1:3", "rank 1 did not come in time");
    goes_on("skew:1", "are not at the same exchange");
}

Test(inject, a_fault_ends_the_run_otherwise, .timeout = 120) {
    cr_assert_eq(run_with("--inject lost:0@1"), 3, "%s", said);
    cr_assert(strstr(said, "rank 0 did not come in time") && strstr(said, "(step 1, after "), "%s",
              said);
    cr_assert_eq(run_with("--rejoin"), 2);
    cr_assert(strstr(said, "--rejoin without '--inject'"), "%s", said);
}

/* Nobody waits for the hour: who waited for the late rank gave up at the bound. */
Test(inject, an_hour_late_is_soon_over, .timeout = 120) {
    cr_assert_eq(run_with("--inject late:1@1:3600000"), 3, "%s", said);
    cr_assert(strstr(said, "this rank, 1 did not come in time, says rank 0"), "%s", said);
    cr_assert_eq(run_with("--inject late:1@1:3600001"), 2, "%s", said);
    cr_assert(strstr(said, "MS at most 3600000"), "%s", said);
    cr_assert_eq(run_with("--inject lost:1@4"), 2, "%s", said);
    cr_assert(strstr(said, "--inject: step '4'; allowed: 0 to 3, the last of --steps"), "%s", said);
}

/* Two ranks whose exchanges are the library's: the bound is the waits', not the group's. */
static int run_library(const char *options) {
    char command[1024];
    snprintf(command, sizeof command,
             LATHE_BINARY " run " LATHE_SOURCE_DIR
                          "/layouts/muse_spark_tiny.lua --tp 2 --deployment nccl --steps 2 "
                          "--variant 1x1 --timeout 1000 %s 2>&1",
             options);
    return run_command(command);
}

Test(inject, a_collective_is_bounded_and_says_why, .timeout = 120) {
    cr_assert_eq(run_library("--inject lost:1@1"), 3, "%s", said);
    cr_assert(strstr(said, "rank 0: all_reduce: no sign in time of rank 1"), "%s", said);
    cr_assert_eq(run_library("--inject late:1@1:500"), 0, "%s", said);
    cr_assert_eq(run_library("--inject late:1@1:3600000"), 3, "%s", said);
    cr_assert(strstr(said, "no sign in time of rank 1"), "%s", said);
    cr_assert_eq(run_library("--inject lost:1@1 --rejoin"), 2, "%s", said);
    cr_assert(strstr(said, "no sign in time of rank 1") && strstr(said, "build anew"), "%s", said);
}

static void reads(const char *text, lathe_inject_kind kind, int rank, int64_t step, uint64_t ns) {
    lathe_inject f;
    cr_assert(lathe_inject_parse(text, &f), "%s", text);
    cr_assert_eq(f.kind, kind, "%s", text);
    cr_assert_eq(f.rank, rank, "%s", text);
    cr_assert_eq(f.step, step, "%s", text);
    cr_assert_eq(f.delay_ns, ns, "%s", text);
}

Test(inject, reads_the_four_kinds) {
    reads("lost:1@20", LATHE_INJECT_LOST, 1, 20, 0);
    reads("late:15@0:250", LATHE_INJECT_LATE, 15, 0, 250000000u);
    reads("skew:3", LATHE_INJECT_SKEW, 3, 0, 0);
    reads("nan:0@7", LATHE_INJECT_NAN, 0, 7, 0);
}

Test(inject, refuses_all_else) {
    static const char *const wrong[] = {"",
                                        "lost",
                                        "lost:",
                                        "lost:1",
                                        "lost:1@",
                                        "lost:@1",
                                        "lost:-1@0",
                                        "lost:1@0:5",
                                        "late:1@2",
                                        "late:1@2:",
                                        "late:1@2:3x",
                                        "skew:1@0",
                                        "skew:",
                                        "nan:1",
                                        "gone:1@0",
                                        "lost:1 @0",
                                        "NAN:1@0",
                                        "nan:1@ 0",
                                        "nan:9999999999@0",
                                        "late:1@0:3600001"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
        lathe_inject f;
        cr_assert_not(lathe_inject_parse(wrong[i], &f), "%s", wrong[i]);
        cr_assert_eq(f.kind, LATHE_INJECT_NOTHING);
    }
}
