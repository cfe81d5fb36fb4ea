/* SPDX-License-Identifier: Apache-2.0
 * The command line of every command: options that begin with `--`, each at most once, their values
 * behind them, and at most one argument beside them. A refusal reads the same everywhere:
 *     lathe run: --steps '0'; allowed: a number from 1
 *
 *     const char *cache = NULL;
 *     int64_t jobs = 0;
 *     const lathe_option options[] = {
 *         {.name = "--cache", .text = &cache},
 *         {.name = "--jobs", .number = &jobs, .least = 1, .most = 1024},
 *         {0}};
 *     const lathe_command_line line = {.command = "build", .help = usage, .options = options,
 *                                      .target = &directory, .target_is = "a generated directory"};
 *     const int status = lathe_command_line_parse(&line, argc, argv);
 *     if (status != 0)
 *         return status - 1; */
#ifndef LATHE_COMMAND_LINE_H
#define LATHE_COMMAND_LINE_H

#include <stdbool.h>
#include <stdint.h>

/* One of flag, text, number and take is set. */
typedef struct {
    const char *name;  /* with its dashes */
    bool *flag;        /* becomes true; there is no value */
    const char **text; /* becomes the value; `allowed`, if set, lists the words it may be */
    int64_t *number;   /* becomes the value, of least..most (most 0: no bound) */
    int64_t least, most;
    bool (*take)(const char *value, void *to); /* false where the value is not of `allowed` */
    void *to;
    const char *allowed; /* for text "cuda, host", for take any wording */
    bool may_be_empty;   /* text: "" is a value */
    bool required;
} lathe_option;

typedef struct {
    const char *command;         /* "run" */
    const char *help;            /* what --help prints */
    const lathe_option *options; /* at most 64; ends with one without a name */
    const char **target;         /* becomes the argument beside the options; NULL: there is none */
    const char *target_is;       /* for messages; where there is a target, it must be given */
} lathe_command_line;

/* Returns 0 to go on, else prints why (or the help) and returns the exit status plus one. */
int lathe_command_line_parse(const lathe_command_line *line, int argc, char **argv);

/* For `take`: "ep" (true) or "full" (false) to a bool. */
bool lathe_take_experts(const char *value, void *to);

/* Prints "lathe COMMAND: WHAT 'FOUND'; allowed: ALLOWED" (FOUND may be NULL) and returns
 * LATHE_EXIT_USAGE plus one. */
int lathe_command_line_refuse(const char *command, const char *what, const char *found,
                              const char *allowed);

#endif
