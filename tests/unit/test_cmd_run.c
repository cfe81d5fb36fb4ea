/* SPDX-License-Identifier: Apache-2.0
 * `lathe run` from its arguments to its exit status. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "run_options.h"

#define TOY LATHE_SOURCE_DIR "/layouts/toy.lua"

static int run(const char *const *arguments) {
    char *argv[32] = {(char *)(uintptr_t) "run"};
    int argc = 1;
    while (arguments[argc - 1]) {
        argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
        ++argc;
    }
    return lathe_cmd_run(argc, argv);
}

#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})

Test(cmd_run, a_layout_is_generated_built_and_checked, .init = cr_redirect_stdout) {
    cr_assert_eq(RUN(TOY, "--check", "--variant", "1x8"), LATHE_EXIT_OK);
}

Test(cmd_run, steps_run_without_a_check, .init = cr_redirect_stdout) {
    cr_assert_eq(RUN(TOY, "--steps", "3", "--weights", "unkind:2"), LATHE_EXIT_OK);
}

Test(cmd_run, bad_usage_is_refused, .init = cr_redirect_stderr) {
    cr_assert_eq(RUN("--check"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--cheek"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, TOY), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--steps", "0"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--steps"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--seed", "-1"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--context", "16,x"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--device", "tpu"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--noise", "2"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN("no/such/folder"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN("no/such/layout.lua"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--weights", "no/such/checkpoint"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--variant", "9x9"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--context", "9999"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--tp", "3"), LATHE_EXIT_USAGE);
}

Test(cmd_run, help_is_no_failure, .init = cr_redirect_stdout) {
    cr_assert_eq(RUN("--help"), LATHE_EXIT_OK);
}

Test(cmd_run, options_are_read) {
    lathe_run_options o;
    const char *const words[] = {"run",     "d",         "--check",  "--context",
                                 "16,2047", "--weights", "unkind:7", "--seed",
                                 "5",       "--device",  "cuda"};
    char *argv[11];
    for (int i = 0; i < 11; ++i)
        argv[i] = (char *)(uintptr_t)words[i];
    cr_assert_eq(lathe_run_options_parse(11, argv, &o), 0);
    cr_assert(o.check && o.device == LATHE_DEVICE_CUDA && o.seed == 5);
    cr_assert_eq(o.context_count, 2);
    cr_assert_eq(o.contexts[1], 2047);
    cr_assert_str_eq(o.weights, "unkind:7");
}
