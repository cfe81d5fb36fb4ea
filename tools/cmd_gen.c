/* SPDX-License-Identifier: Apache-2.0
 * `lathe gen`: reads the options and calls the generator. Other commands call it by their own name
 * (generated.c), which then stands in its messages. */
#include "command_line.h"
#include "commands.h"
#include "generate.h"

#include <stdio.h>
#include <stdlib.h>

const char lathe_cmd_gen_summary[] = "generate the kernels and step.json of a layout";

static const char usage[] =
    "usage: lathe gen LAYOUT --tp N [options]\n\n"
    "  --tp N             tensor-parallel size\n"
    "  --deployment NAME  which deployment of that size (default: the one without a name)\n"
    "  --arch ARCH        sm_90a (default) sm_100a sm_103a sm_120a host\n"
    "  --tactics NAME     measured tactics of layouts/tactics/NAME.lua\n"
    "  --out DIR          default: generated/LAYOUT-tpN[-DEPLOYMENT]-ARCH\n"
    "  --only PATTERN     write only the kernels whose names match, to read them: nothing "
    "builds such a "
    "directory\n"
    "  --why              say for each kernel which tactic was taken, and why\n"
    "  --quiet            no line about what was written\n"
    "  --no-scan          leave out the libclang checks\n"
    "  --root DIR         folder of layouts/ and templates/ (default: above LAYOUT)\n";

/* Returns 0 to go on, else the exit status plus one. */
static int parse(int argc, char **argv, lathe_generate_options *o, bool *why, bool *quiet) {
    const lathe_option options[] = {
        {.name = "--tp", .number = &o->tp, .least = 1, .most = 1024, .required = true},
        {.name = "--deployment", .text = &o->deployment, .may_be_empty = true},
        {.name = "--arch", .text = &o->arch},
        {.name = "--tactics", .text = &o->tactics},
        {.name = "--out", .text = &o->out},
        {.name = "--only", .text = &o->only},
        {.name = "--why", .flag = why},
        {.name = "--quiet", .flag = quiet},
        {.name = "--no-scan", .flag = &o->no_scan},
        {.name = "--root", .text = &o->root},
        {0}};
    const lathe_command_line line = {.command = argv[0],
                                     .help = usage,
                                     .options = options,
                                     .target = &o->layout,
                                     .target_is = "a layout"};
    return lathe_command_line_parse(&line, argc, argv);
}

int lathe_cmd_gen(int argc, char **argv) {
    lathe_generate_options options = {0};
    bool why = false, quiet = false;
    const int parsed = parse(argc, argv, &options, &why, &quiet);
    if (parsed != 0)
        return parsed - 1;
    lathe_generate_result *result = malloc(sizeof *result);
    if (!result) {
        fprintf(stderr, "lathe %s: no memory\n", argv[0]);
        return LATHE_EXIT_USAGE;
    }
    const bool done = lathe_generate(&options, result);
    if (!done)
        fprintf(stderr, "lathe %s: %s\n", argv[0], result->message);
    else if (why && result->why)
        fputs(result->why, stdout);
    if (done && !quiet)
        printf("%s: %zu kernels, %zu files, hash %s\n", result->directory, result->kernels,
               result->files, result->hash);
    if (done && *result->warning)
        fprintf(stderr, "lathe %s: warning: %s\n", argv[0], result->warning);
    else if (done && result->entries_used < result->entries)
        fprintf(stderr, "lathe %s: %s: %zu of %zu entries used%s\n", argv[0], result->table,
                result->entries_used, result->entries, why ? "" : "; --why lists the others");
    free(result->why);
    free(result);
    return done ? LATHE_EXIT_OK : LATHE_EXIT_USAGE;
}
