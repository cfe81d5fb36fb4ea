/* SPDX-License-Identifier: Apache-2.0
 * `lathe run` from its arguments to its exit status. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "input_files.h"
#include "npy.h"
#include "run_options.h"

#define TOY LATHE_SOURCE_DIR "/layouts/toy.lua"
#define TINY LATHE_SOURCE_DIR "/generated/muse_spark_tiny-tp2-host"

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

static char said[16384];

/* The run is refused, and says `what` on standard error. */
static void expect_refused(const char *const *arguments, const char *what) {
    fflush(stderr);
    const int old = dup(STDERR_FILENO);
    FILE *kept = tmpfile();
    cr_assert(kept && dup2(fileno(kept), STDERR_FILENO) >= 0);
    const int status = run(arguments);
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    close(old);
    rewind(kept);
    said[fread(said, 1, sizeof said - 1, kept)] = 0;
    fclose(kept);
    cr_assert_eq(status, LATHE_EXIT_USAGE, "%d: %s", status, said);
    cr_assert(strstr(said, what), "%s", said);
}

#define REFUSED(what, ...) expect_refused((const char *const[]){__VA_ARGS__, NULL}, what)

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
    cr_assert_eq(RUN(TOY, "--experts", "half"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN("no/such/folder"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN("no/such/layout.lua"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--weights", "no/such/checkpoint"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--variant", "9x9"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--context", "9999"), LATHE_EXIT_USAGE);
    cr_assert_eq(RUN(TOY, "--tp", "3"), LATHE_EXIT_USAGE);
}

Test(cmd_run, an_option_that_would_be_ignored_is_refused) {
    REFUSED("'--replays'; allowed: it with --check", TOY, "--replays", "2");
    REFUSED("'--noise'; allowed: it with --check", TOY, "--noise", "0.1");
    REFUSED("--against '1'; allowed: a directory", TINY, "--check", "--against", "1");
    REFUSED("--against '2-ep'; allowed: a directory", TINY, "--check", "--against", "2-ep");
    REFUSED("experts by rank: the step slices no experts", TOY, "--experts", "ep");
    REFUSED("a second '--seed'", TOY, "--seed", "1", "--seed", "2");
    REFUSED("a second '--check'", TOY, "--check", "--check");
    REFUSED("allowed: a number from 0", TOY, "--seed", "99999999999999999999");
    REFUSED("allowed: calm:SEED", TOY, "--weights", "calm:99999999999999999999");
    REFUSED("allowed: calm:SEED", TOY, "--weights", "calm");
    REFUSED("--dump " TOY ": it is no folder", TOY, "--dump", TOY);
    REFUSED("--dump no/such/folder: No such file", TOY, "--dump", "no/such/folder");
}

Test(cmd_run, what_a_directory_was_generated_for_cannot_be_changed) {
    REFUSED("--tp '4'", TINY, "--tp", "4");
    REFUSED("was generated with 'host'", TINY, "--arch", "sm_90a");
    REFUSED("--deployment 'ep'", TINY, "--deployment", "ep");
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

/* ---- files of --inputs ---- */

static char folder[64];
static void make_folder(void) {
    strcpy(folder, "test_cmd_run_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -r ./%s", folder);
    cr_assert_eq(system(command), 0);
}

static void write_array(const char *name, int rank, const int64_t *shape) {
    static uint16_t zeros[8 * 224];
    char path[128];
    char message[256];
    lathe_npy a = {.type = LATHE_NPY_U16, .rank = rank, .count = 1, .data = zeros};
    for (int d = 0; d < rank; ++d)
        a.count *= a.shape[d] = shape[d];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    cr_assert_eq(lathe_npy_write(path, &a, message, sizeof message), LATHE_OK, "%s", message);
}

/* A file of two dimensions whose elements are a hole. */
static void write_header(const char *name, int64_t rows, int64_t columns) {
    char path[128], header[118];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    FILE *f = fopen(path, "wb");
    cr_assert(f);
    snprintf(header, sizeof header,
             "{'descr': '<u2', 'fortran_order': False, 'shape': (%lld, %lld)}", (long long)rows,
             (long long)columns);
    memset(header + strlen(header), ' ', sizeof header - strlen(header));
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, f);
    fwrite(header, 1, sizeof header, f);
    cr_assert_eq(fclose(f), 0);
    cr_assert_eq(truncate(path, 128 + rows * columns * 2), 0);
}

static void add_folder(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(mkdir(path, 0777), 0);
}

#define WRITE(name, ...)                                                                           \
    write_array(name, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                   \
                (const int64_t[]){__VA_ARGS__})

TestSuite(inputs, .init = make_folder, .fini = remove_folder);

Test(inputs, a_folder_that_is_none_is_refused) {
    REFUSED("No such file", TOY, "--check", "--inputs", "no/such/folder");
    REFUSED("it is a file", TOY, "--check", "--inputs", TOY);
    REFUSED("holds no .npy file", TOY, "--check", "--variant", "1x8", "--inputs", folder);
}

Test(inputs, a_name_without_a_place_is_refused) {
    WRITE("L01.hh", 8, 224);
    REFUSED("L01.hh.npy: no launch reads a value of this name", TOY, "--check", "--variant", "1x8",
            "--inputs", folder);
    cr_assert(strstr(said, "L01.h"), "%s", said);
}

Test(inputs, a_layer_beyond_the_last_is_refused) {
    WRITE("L99.h", 8, 224);
    REFUSED("the step has 2 layers", TOY, "--check", "--variant", "1x8", "--inputs", folder);
}

Test(inputs, a_value_without_a_check_is_refused) {
    WRITE("L00.h", 8, 224);
    REFUSED("--check only", TOY, "--variant", "1x8", "--inputs", folder);
}

Test(inputs, a_step_input_without_tokens_is_refused) {
    WRITE("s", 8, 96);
    REFUSED("without tokens.npy", TOY, "--check", "--variant", "1x8", "--inputs", folder);
}

Test(inputs, tokens_come_with_all_other_inputs) {
    WRITE("tokens", 3);
    REFUSED("found 3 tokens, allowed: those of the variants 1x1 1x8 4x8", TOY, "--check",
            "--inputs", folder);
    WRITE("tokens", 8);
    REFUSED("found tokens.npy, but no s.npy; allowed: all inputs of a step together", TOY,
            "--check", "--inputs", folder);
}

Test(inputs, a_shape_of_the_same_count_is_refused) {
    WRITE("L00.h", 224, 8);
    REFUSED("found the shape [224, 8]; allowed: [8, 224]", TOY, "--check", "--variant", "1x8",
            "--inputs", folder);
    WRITE("L00.h", 8 * 224);
    REFUSED("found the shape [1792]", TOY, "--check", "--variant", "1x8", "--inputs", folder);
}

/* Only headers are read before the run, and what they say is compared with the files' lengths. */
Test(inputs, a_large_file_is_judged_by_its_header) {
    char path[128];
    WRITE("L00.h", 8, 224);
    snprintf(path, sizeof path, "%s/L00.h.npy", folder);
    cr_assert_eq(truncate(path, 128 + 8 * 224 * 2 - 1), 0);
    REFUSED("the shape asks for 3584 bytes, the file holds 3583", TOY, "--check", "--variant",
            "1x8", "--inputs", folder);
    write_header("L00.h", 8, (int64_t)1 << 36); /* a hole of a TiB */
    REFUSED("found the shape [8, 68719476736]; allowed: [8, 224]", TOY, "--check", "--variant",
            "1x8", "--inputs", folder);
}

Test(inputs, a_folder_of_a_rank_that_the_step_has_not_is_refused) {
    WRITE("L00.h", 8, 224);
    add_folder("r0");
    REFUSED("folders of ranks: found r0; allowed: none, the step has one rank", TOY, "--check",
            "--variant", "1x8", "--inputs", folder);
    add_folder("r1");
    add_folder("r");
    add_folder("runs");
    add_folder("r2");
    REFUSED("folders of ranks: found r2; allowed: r0 to r1, the step has 2 ranks", TINY, "--check",
            "--variant", "1x8", "--inputs", folder);
}

Test(inputs, replaced_values_are_counted) {
    char text[8192];
    cr_redirect_stdout();
    WRITE("L00.h", 1, 8, 7, 32);
    cr_assert_eq(RUN(TOY, "--check", "--variant", "1x8", "--inputs", folder), LATHE_EXIT_OK);
    fflush(stdout);
    FILE *out = cr_get_redirected_stdout();
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    cr_assert(strstr(text, "1 values replaced from files"), "%s", text);
}

Test(inputs, shapes_that_fit) {
    const int64_t wanted[] = {8, 4, 6};
#define FITS(...)                                                                                  \
    lathe_input_files_fit((const int64_t[]){__VA_ARGS__},                                          \
                          (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), wanted, 3)
    cr_assert(FITS(8, 4, 6));
    cr_assert(FITS(1, 1, 8, 4, 6));
    cr_assert(FITS(8, 24));
    cr_assert(FITS(8, 2, 2, 6));
    cr_assert_not(FITS(8, 6, 4));
    cr_assert_not(FITS(4, 8, 6));
    cr_assert_not(FITS(192));
    cr_assert_not(FITS(2, 4, 24));
    cr_assert_not(FITS(32, 6));
    cr_assert_not(FITS(8, 4, 5));
    cr_assert_not(FITS(8, 12, 2));
}

Test(cmd_run, a_context_below_the_tokens_is_said_and_checks_nothing) {
    REFUSED("nothing was run", TOY, "--check", "--variant", "1x8", "--context", "1");
    REFUSED("nothing was run", TOY, "--variant", "1x8", "--context", "1");
}

/* Told by whatever ends the program, as by any command. */
Test(cmd_run, output_that_is_lost_is_no_success) {
    cr_assert_eq(system(LATHE_BINARY " run --help >/dev/full 2>/dev/null; test $? = 2"), 0);
    cr_assert_eq(system(LATHE_BINARY " --help 2>&1 >/dev/full | grep -q 'cannot be written'"), 0);
    cr_assert_eq(system(LATHE_BINARY " run --help >/dev/null"), 0);
}
