/* SPDX-License-Identifier: Apache-2.0
 * `lathe gen`: reads the options and calls the generator. */
#include "commands.h"
#include "generate.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

const char lathe_cmd_gen_summary[] = "generate the kernels and step.json of a layout";

static void print_usage(FILE *out) {
    fputs("usage: lathe gen LAYOUT --tp N [options]\n\n"
          "  --tp N             tensor-parallel size\n"
          "  --deployment NAME  which deployment of that size (default: the one without a name)\n"
          "  --arch ARCH        sm_90a (default) sm_100a sm_103a sm_120a host\n"
          "  --tactics NAME     measured tactics of layouts/tactics/NAME.lua\n"
          "  --out DIR          default: generated/LAYOUT-tpN[-DEPLOYMENT]-ARCH\n"
          "  --only PATTERN     write only the kernels whose names match, to read them: nothing "
          "builds such a "
          "directory\n"
          "  --why              say for each kernel which tactic was taken, and why\n"
          "  --no-scan          leave out the libclang checks\n"
          "  --root DIR         folder of layouts/ and templates/ (default: above LAYOUT)\n",
          out);
}

static int64_t read_size(const char *text) {
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    return errno || end == text || *end || number < 1 || number > 1024 ? -1 : number;
}

enum { TP, DEPLOYMENT, ARCH, TACTICS, OUT, ONLY, WHY, NO_SCAN, ROOT, HELP };

static const struct option names[] = {
    {"tp", 1, NULL, TP},     {"deployment", 1, NULL, DEPLOYMENT},
    {"arch", 1, NULL, ARCH}, {"tactics", 1, NULL, TACTICS},
    {"out", 1, NULL, OUT},   {"only", 1, NULL, ONLY},
    {"why", 0, NULL, WHY},   {"no-scan", 0, NULL, NO_SCAN},
    {"root", 1, NULL, ROOT}, {"help", 0, NULL, HELP},
    {NULL, 0, NULL, 0},
};

/* 1: go on, 0: the usage was asked for, -1: refused with a message. */
static int read_options(int argc, char **argv, lathe_generate_options *o, int *why) {
    bool given[HELP + 1] = {false};
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        const char **texts[] = {[DEPLOYMENT] = &o->deployment,
                                [ARCH] = &o->arch,
                                [TACTICS] = &o->tactics,
                                [OUT] = &o->out,
                                [ONLY] = &o->only,
                                [ROOT] = &o->root};
        if (c == HELP)
            return 0;
        if (c == TP && !given[TP] && (o->tp = read_size(optarg)) < 0) {
            fprintf(stderr, "lathe gen: --tp: found \"%s\", allowed: 1 to 1024\n", optarg);
            return -1;
        }
        if (c == '?')
            return -1;
        if (given[c]) {
            fprintf(stderr, "lathe gen: a second --%s; allowed: each option once\n", names[c].name);
            return -1;
        }
        given[c] = true;
        if (c == WHY)
            *why = 1;
        else if (c == NO_SCAN)
            o->no_scan = true;
        else if (c != TP)
            *texts[c] = optarg;
    }
    if (optind + 1 != argc || !o->tp) {
        fputs(o->tp ? "lathe gen: one LAYOUT is needed; see lathe gen --help\n"
                    : "lathe gen: --tp N is needed; see lathe gen --help\n",
              stderr);
        return -1;
    }
    o->layout = argv[optind];
    return 1;
}

int lathe_cmd_gen(int argc, char **argv) {
    lathe_generate_options options = {0};
    int why = 0;
    const int go = read_options(argc, argv, &options, &why);
    if (go <= 0) {
        if (!go)
            print_usage(stdout);
        return go ? LATHE_EXIT_USAGE : LATHE_EXIT_OK;
    }
    lathe_generate_result *result = malloc(sizeof *result);
    if (!result) {
        fputs("lathe gen: no memory\n", stderr);
        return LATHE_EXIT_USAGE;
    }
    const bool done = lathe_generate(&options, result);
    if (!done)
        fprintf(stderr, "lathe gen: %s\n", result->message);
    else if (why && result->why)
        fputs(result->why, stdout);
    if (done)
        printf("%s: %zu kernels, %zu files, hash %s\n", result->directory, result->kernels,
               result->files, result->hash);
    if (done && result->entries_used < result->entries)
        fprintf(stderr, "lathe gen: %s: %zu of %zu entries used%s\n", result->table,
                result->entries_used, result->entries, why ? "" : "; --why lists the others");
    free(result->why);
    free(result);
    return done ? LATHE_EXIT_OK : LATHE_EXIT_USAGE;
}
