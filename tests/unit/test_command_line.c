/* SPDX-License-Identifier: Apache-2.0
 * Command lines: what a command takes, and that every command refuses in the same words. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command_line.h"
#include "commands.h"

typedef int command(int argc, char **argv);

static char said[8192];

/* Calls `run` by its name and keeps what it says on standard error, or on `stream`, in `said`. */
static int listen(const char *called, command *run, FILE *stream, const char *const *words) {
    char *argv[16] = {(char *)(uintptr_t)called};
    int argc = 1;
    for (; words[argc - 1]; ++argc)
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    fflush(stream);
    const int old = dup(fileno(stream));
    FILE *kept = tmpfile();
    cr_assert(kept && dup2(fileno(kept), fileno(stream)) >= 0);
    const int status = run(argc, argv);
    fflush(stream);
    dup2(old, fileno(stream));
    close(old);
    rewind(kept);
    said[fread(said, 1, sizeof said - 1, kept)] = 0;
    fclose(kept);
    return status;
}

/* ---- a command of its own ---- */

static bool loud;
static const char *colour, *name, *target;
static int64_t count, length;
static int taken;

static bool take_three(const char *value, void *to) {
    ++*(int *)to;
    return strcmp(value, "three") == 0;
}

static int read_line(int argc, char **argv) {
    const lathe_option options[] = {
        {.name = "--loud", .flag = &loud},
        {.name = "--name", .text = &name, .required = true},
        {.name = "--colour", .text = &colour, .allowed = "red, dark red, blue"},
        {.name = "--count", .number = &count, .least = 1},
        {.name = "--length", .number = &length, .least = 0, .most = 9},
        {.name = "--take", .take = take_three, .to = &taken, .allowed = "three"},
        {0}};
    const lathe_command_line line = {.command = "paint",
                                     .help = "paint, by name\n",
                                     .options = options,
                                     .target = &target,
                                     .target_is = "a wall"};
    loud = false;
    colour = name = target = NULL;
    count = length = -1;
    return lathe_command_line_parse(&line, argc, argv);
}

#define READ(...) listen("paint", read_line, stderr, (const char *const[]){__VA_ARGS__, NULL})
#define REFUSED(what, ...)                                                                         \
    do {                                                                                           \
        cr_assert_eq(READ(__VA_ARGS__), LATHE_EXIT_USAGE + 1);                                     \
        cr_assert_str_eq(said, "lathe paint: " what "\n");                                         \
    } while (0)

Test(command_line, values_land_in_their_places) {
    cr_assert_eq(READ("--loud", "--name", "-x", "wall", "--colour", "dark red", "--count",
                      "9223372036854775807", "--length", "0", "--take", "three"),
                 0, "%s", said);
    cr_assert(loud && count == INT64_MAX && length == 0 && taken == 1);
    cr_assert_str_eq(name, "-x");
    cr_assert_str_eq(colour, "dark red");
    cr_assert_str_eq(target, "wall");
    cr_assert_eq(READ("wall", "--name", "w"), 0, "%s", said);
    cr_assert(!loud && !colour && count == -1);
    cr_assert_str_eq(name, "w");
}

Test(command_line, each_option_comes_once) {
    REFUSED("a second '--loud'; allowed: each option once", "--loud", "--loud");
    REFUSED("a second '--name'; allowed: each option once", "--name", "a", "wall", "--name", "a");
    REFUSED("a second '--length'; allowed: each option once", "--length", "1", "--length", "2");
    REFUSED("a second target 'b'; allowed: one", "a", "b");
    /* A value is no option. */
    cr_assert_eq(READ("wall", "--name", "name", "--colour", "red"), 0, "%s", said);
}

Test(command_line, a_bad_value_is_named_with_what_is_allowed) {
    REFUSED("--colour 'dark'; allowed: red, dark red, blue", "--colour", "dark");
    REFUSED("--colour ''; allowed: red, dark red, blue", "--colour", "");
    REFUSED("--colour 'red, dark red'; allowed: red, dark red, blue", "--colour", "red, dark red");
    REFUSED("--count '0'; allowed: a number from 1", "--count", "0");
    REFUSED("--count '+1'; allowed: a number from 1", "--count", "+1");
    REFUSED("--count '1x'; allowed: a number from 1", "--count", "1x");
    REFUSED("--count '9223372036854775808'; allowed: a number from 1", "--count",
            "9223372036854775808");
    REFUSED("--length '10'; allowed: a number from 0 to 9", "--length", "10");
    REFUSED("--take 'four'; allowed: three", "--take", "four");
    REFUSED("--name ''; allowed: a value that is not empty", "--name", "");
}

Test(command_line, what_is_missing_or_unknown_is_named) {
    REFUSED("unknown option '--lout'; allowed: those that lathe paint --help lists", "--lout");
    REFUSED("unknown option '--name=x'; allowed: those that lathe paint --help lists", "--name=x");
    REFUSED("unknown option '-l'; allowed: those that lathe paint --help lists", "-l");
    REFUSED("no value after '--name'; allowed: one", "wall", "--name");
    REFUSED("no value after '--name'; allowed: one", "--name", "--loud");
    REFUSED("no target; allowed: a wall; see lathe paint --help", "--name", "x");
    REFUSED("without '--name'; allowed: it with a value; see lathe paint --help", "wall");
}

Test(command_line, help_is_printed_on_demand) {
    cr_assert_eq(listen("paint", read_line, stdout, (const char *const[]){"wall", "--help", NULL}),
                 LATHE_EXIT_OK + 1);
    cr_assert_str_eq(said, "paint, by name\n");
}

/* ---- every command ---- */

static const struct {
    const char *name;
    command *run;
} commands[] = {
#define LATHE_COMMAND(name) {#name, lathe_cmd_##name},
#include "commands.def"
#undef LATHE_COMMAND
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static void expect(size_t c, const char *what, const char *const *words) {
    char wanted[300];
    cr_expect_eq(listen(commands[c].name, commands[c].run, stderr, words), LATHE_EXIT_USAGE, "%s",
                 commands[c].name);
    snprintf(wanted, sizeof wanted, "lathe %s: %s\n", commands[c].name, what);
    cr_expect_str_eq(said, wanted);
}

Test(command_line, every_command_refuses_in_the_same_words) {
    for (size_t c = 0; c < COMMANDS; ++c) {
        char what[200];
        snprintf(what, sizeof what,
                 "unknown option '--no-such'; allowed: those that lathe %s --help lists",
                 commands[c].name);
        expect(c, what, (const char *const[]){"--no-such", "x", NULL});
    }
}

/* A value that the option takes. */
static const char *value_of(const char *option) {
    return strcmp(option, "--device") == 0    ? "cuda"
           : strcmp(option, "--experts") == 0 ? "ep"
           : strcmp(option, "--inject") == 0  ? "skew:0"
           : strcmp(option, "--noise") == 0   ? "0"
           : strcmp(option, "--rounds") == 0  ? "8"
                                              : "1";
}

/* The options are those that begin a line of the command's help. */
Test(command_line, every_command_takes_each_option_once) {
    for (size_t c = 0; c < COMMANDS; ++c) {
        char help[sizeof said], what[200], option[64];
        cr_assert_eq(listen(commands[c].name, commands[c].run, stdout,
                            (const char *const[]){"--help", NULL}),
                     LATHE_EXIT_OK);
        strcpy(help, said);
        int found = 0;
        for (const char *at = help; (at = strstr(at, "\n  --")); at += strlen(option)) {
            at += 3;
            snprintf(option, sizeof option, "%.*s", (int)strspn(at, "-abcdefghijklmnopqrstuvwxyz"),
                     at);
            const char *const value = value_of(option);
            snprintf(what, sizeof what, "a second '%s'; allowed: each option once", option);
            expect(c, what, (const char *const[]){option, value, option, value, NULL});
            ++found;
        }
        cr_assert_gt(found, 1);
    }
}
