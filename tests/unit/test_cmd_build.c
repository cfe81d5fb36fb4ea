/* SPDX-License-Identifier: Apache-2.0
 * lathe build as a user meets it: exit statuses, what is said where, quiet in a pipe. */
#include "fakes.h"

#include <criterion/redirect.h>

#include "commands.h"

static toy t;

static void set_up(void) {
    toy_create(&t);
    cr_redirect_stdout();
    cr_redirect_stderr();
}
static void tear_down(void) {
    toy_remove(&t);
}

TestSuite(cmd_build, .init = set_up, .fini = tear_down, .timeout = 60);

/* Runs the command; `nvrtc` NULL leaves that option out, as `extra` and `value` do. */
static int build(const char *directory, const char *nvrtc, const char *extra, const char *value) {
    char *argv[12] = {(char *)"build"};
    int argc = 1;
    const char *const words[] = {directory, "--cache", t.cache, nvrtc ? "--nvrtc" : NULL,
                                 nvrtc,     extra,     value};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i)
        if (words[i])
            argv[argc++] = (char *)(uintptr_t)words[i];
    return lathe_cmd_build(argc, argv);
}

/* All that the command wrote to the stream. */
static void expect_text(FILE *stream, const char *wanted) {
    char text[8192];
    fflush(stdout);
    fflush(stderr);
    const size_t n = fread(text, 1, sizeof text - 1, stream);
    text[n] = '\0';
    cr_assert(strstr(text, wanted), "wanted %s, got %s", wanted, text);
}

/* The redirected stream ends when this process's end of it closes. */
static void expect_stderr(const char *wanted) {
    fclose(stderr);
    expect_text(cr_get_redirected_stderr(), wanted);
}
static void expect_stdout(const char *wanted) {
    fclose(stdout);
    expect_text(cr_get_redirected_stdout(), wanted);
}

Test(cmd_build, compiles_and_counts) {
    cr_assert_eq(build(t.directory, FAKE_NVRTC, "--jobs", "2"), LATHE_EXIT_OK);
    cr_assert_eq(build(t.directory, FAKE_NVRTC, NULL, NULL), LATHE_EXIT_OK);
    expect_stdout("13 kernels of toy (sm_90a): 0 compiled, 13 from the cache");
}

Test(cmd_build, is_quiet_in_a_pipe) {
    cr_assert_eq(build(t.directory, FAKE_NVRTC, NULL, NULL), LATHE_EXIT_OK);
    fclose(stderr);
    cr_assert_eq(fgetc(cr_get_redirected_stderr()), EOF);
}

Test(cmd_build, lists_artefacts) {
    cr_assert_eq(build(t.directory, FAKE_NVRTC, "--list", NULL), LATHE_EXIT_OK);
    expect_stdout("/kernel.cubin\n");
}

Test(cmd_build, a_missing_directory_is_bad_input) {
    cr_assert_eq(build("/nonexistent", FAKE_NVRTC, NULL, NULL), LATHE_EXIT_USAGE);
    expect_stderr("lathe build: /nonexistent/step.json: No such file or directory");
}

Test(cmd_build, a_truncated_step_is_bad_input) {
    char path[400];
    snprintf(path, sizeof path, "%s/step.json", t.directory);
    cr_assert_eq(truncate(path, 1000), 0);
    cr_assert_eq(build(t.directory, FAKE_NVRTC, NULL, NULL), LATHE_EXIT_USAGE);
    expect_stderr("not JSON (truncated or damaged)");
}

Test(cmd_build, a_newer_step_is_bad_input) {
    json_t *root = toy_json();
    json_object_set_new(root, "format", json_integer(2));
    toy_write_json(&t, root);
    cr_assert_eq(build(t.directory, FAKE_NVRTC, NULL, NULL), LATHE_EXIT_USAGE);
    expect_stderr("format: found 2, allowed: 1; a newer lathe wrote this directory");
}

Test(cmd_build, an_unknown_architecture_is_bad_input) {
    json_t *root = toy_json();
    json_object_set_new(root, "arch", json_string("sm_42"));
    toy_write_json(&t, root);
    cr_assert_eq(build(t.directory, FAKE_NVRTC, NULL, NULL), LATHE_EXIT_USAGE);
    expect_stderr("found sm_42, allowed: sm_90a, sm_100a, sm_103a, sm_120a");
}

Test(cmd_build, a_template_that_does_not_compile_is_bad_input) {
    char path[400];
    snprintf(path, sizeof path, "%s/add_1.cu", t.directory);
    cr_assert_eq(lathe_file_write(path, "\n#error\n", 8), 0);
    cr_assert_eq(build(t.directory, FAKE_NVRTC, NULL, NULL), LATHE_EXIT_USAGE);
    expect_stderr("kernel add_1: add_1.cu does not compile: add_1.cu(2): error");
}

Test(cmd_build, a_missing_nvrtc_is_bad_input) {
    cr_assert_eq(build(t.directory, "/nonexistent", NULL, NULL), LATHE_EXIT_USAGE);
    expect_stderr("NVRTC is missing: found none at /nonexistent");
}

Test(cmd_build, an_old_nvrtc_is_bad_input) {
    setenv("FAKE_NVRTC_VERSION", "11.8", 1);
    cr_assert_eq(build(t.directory, FAKE_NVRTC, NULL, NULL), LATHE_EXIT_USAGE);
    expect_stderr("NVRTC is too old: found 11.8, allowed: 12.0 or newer");
}

/* Whichever version filled it. */
Test(cmd_build, a_full_cache_serves_without_nvrtc) {
    setenv("FAKE_NVRTC_VERSION", "13.5", 1);
    cr_assert_eq(build(t.directory, FAKE_NVRTC, NULL, NULL), LATHE_EXIT_OK);
    cr_assert_eq(build(t.directory, "/nonexistent", NULL, NULL), LATHE_EXIT_OK);
    expect_stdout("0 compiled, 13 from the cache");
}

Test(cmd_build, wrong_usage) {
    cr_assert_eq(build(t.directory, NULL, "--jobs", "0"), LATHE_EXIT_USAGE);
    cr_assert_eq(build(t.directory, NULL, "--jobs", "two"), LATHE_EXIT_USAGE);
    cr_assert_eq(build(t.directory, NULL, "--device", "tpu"), LATHE_EXIT_USAGE);
    cr_assert_eq(build(t.directory, NULL, "another", NULL), LATHE_EXIT_USAGE);
    cr_assert_eq(build(NULL, NULL, NULL, NULL), LATHE_EXIT_USAGE);
    cr_assert_eq(build(t.directory, NULL, "--help", NULL), LATHE_EXIT_OK);
    expect_stderr("--device 'tpu'; allowed: cuda, host");
}
