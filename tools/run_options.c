/* SPDX-License-Identifier: Apache-2.0
 * Parses the arguments of `lathe run`. */
#include "run_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"

static const char help[] =
    "usage: lathe run DIR|LAYOUT [options]\n"
    "\n"
    "Builds a generated directory (a layout is generated first) and runs its decode step.\n"
    "\n"
    "  --check            compare every launch with its reference, on calm weights the whole step "
    "too\n"
    "  --failures         with --check, print only what fails\n"
    "  --timing           say on standard error how long the phases of building and checking took\n"
    "  --weights WHAT     a checkpoint (folder, index or file), calm:SEED or unkind:SEED  "
    "[calm:1]\n"
    "  --inputs DIR       step inputs, and in check mode any value, from DIR/NAME.npy\n"
    "  --dump DIR         write what every launch wrote (with --check), else the outputs\n"
    "  --against WHAT     with --check: the outputs against those of another deployment: TP or "
    "TP-NAME of\n"
    "                     the same layout, or a directory\n"
    "  --replays N        with --check: replays of the captured graph whose bits are compared  "
    "[1]\n"
    "  --steps N          steps to run  [1]\n"
    "  --seed S           of the step's inputs  [1]\n"
    "  --context N,...    tokens of the longest request; several are run in turn  [the maximum]\n"
    "  --variant NAME     one batch variant instead of all\n"
    "  --noise X          with --check: relative noise that a golden case records for its whole "
    "step\n"
    "  --device cuda|host [host]\n"
    "  --schedule S       seed of the host device's schedule  [1]\n"
    "  --timeout MS       bound on a wait for another rank; virtual time on the host device  "
    "[2000]\n"
    "  --inject FAULT     make a rank fail: " LATHE_INJECT_ALLOWED "\n"
    "                     (ranks and steps count from 0)\n"
    "  --pages N          pages of every KV cache  [enough for the largest batch]\n"
    "  --cache DIR        of compiled kernels\n"
    "  --processes        of several ranks: a process each instead of a thread; steps only\n"
    "  --tp N  --arch A  --deployment NAME     for a layout: what to generate\n";

static int refuse(const char *what, const char *found, const char *allowed) {
    fprintf(stderr, "lathe run: %s '%s'; allowed: %s\n", what, found, allowed);
    return LATHE_EXIT_USAGE + 1;
}

static bool parse_count(const char *text, int64_t *value) {
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && *text >= '0' && *text <= '9' && *end == 0;
}

static int parse_contexts(const char *text, lathe_run_options *o) {
    char copy[512];
    char *save = NULL;
    if (strlen(text) >= sizeof copy)
        return refuse("--context", text, "numbers with commas between");
    strcpy(copy, text);
    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        int64_t n;
        if (o->context_count == LATHE_RUN_CONTEXTS || !parse_count(word, &n) || n < 1)
            return refuse("--context", text, "at most 16 numbers from 1 with commas between");
        o->contexts[o->context_count++] = n;
    }
    return 0;
}

static int parse_number(const char *name, const char *text, int64_t least, int64_t *value) {
    if (parse_count(text, value) && *value >= least)
        return 0;
    return refuse(name, text, least ? "a number from 1" : "a number from 0");
}

static int parse_seed(const char *name, const char *text, uint64_t *value) {
    int64_t n = 0;
    const int status = parse_number(name, text, 0, &n);
    *value = (uint64_t)n;
    return status;
}

static int parse_noise(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    if (end != text && *end == 0 && *value >= 0 && *value < 1)
        return 0;
    return refuse("--noise", text, "a number from 0 to 1");
}

static int parse_device(const char *text, lathe_run_options *o) {
    o->device = strcmp(text, "cuda") == 0 ? LATHE_DEVICE_CUDA : LATHE_DEVICE_HOST;
    if (o->device == LATHE_DEVICE_HOST && strcmp(text, "host") != 0)
        return refuse("--device", text, "cuda, host");
    return 0;
}

/* Options that take a value. Returns -1 for a name that is none. */
static int parse_pair(const char *name, const char *value, lathe_run_options *o) {
    const struct {
        const char *name;
        const char **to;
    } texts[] = {
        {"--tp", &o->tp},           {"--arch", &o->arch},       {"--deployment", &o->deployment},
        {"--weights", &o->weights}, {"--inputs", &o->inputs},   {"--dump", &o->dump},
        {"--cache", &o->cache},     {"--variant", &o->variant}, {"--against", &o->against},
        {"--meet", &o->meet}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i)
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].to = value;
            return 0;
        }
    if (strcmp(name, "--device") == 0)
        return parse_device(value, o);
    if (strcmp(name, "--steps") == 0)
        return parse_number(name, value, 1, &o->steps);
    if (strcmp(name, "--rank") == 0)
        return parse_number(name, value, 0, &o->rank);
    if (strcmp(name, "--replays") == 0)
        return parse_number(name, value, 1, &o->replays);
    if (strcmp(name, "--pages") == 0)
        return parse_number(name, value, 1, &o->pages);
    if (strcmp(name, "--seed") == 0)
        return parse_seed(name, value, &o->seed);
    if (strcmp(name, "--schedule") == 0)
        return parse_seed(name, value, &o->schedule);
    if (strcmp(name, "--context") == 0)
        return parse_contexts(value, o);
    if (strcmp(name, "--timeout") == 0)
        return parse_number(name, value, 1, &o->timeout_ms);
    if (strcmp(name, "--inject") == 0)
        return lathe_inject_parse(value, &o->inject) ? 0
                                                     : refuse(name, value, LATHE_INJECT_ALLOWED);
    if (strcmp(name, "--noise") == 0)
        return parse_noise(value, &o->noise);
    return -1;
}

static bool parse_flag(const char *name, lathe_run_options *o) {
    if (strcmp(name, "--check") == 0)
        o->check = true;
    else if (strcmp(name, "--failures") == 0)
        o->failures_only = true;
    else if (strcmp(name, "--timing") == 0)
        o->timing = true;
    else if (strcmp(name, "--processes") == 0)
        o->processes = true;
    else
        return false;
    return true;
}

static int parse_argument(int argc, char **argv, int *i, lathe_run_options *o) {
    const char *name = argv[*i];
    if (strcmp(name, "--help") == 0) {
        fputs(help, stdout);
        return LATHE_EXIT_OK + 1;
    }
    for (int before = 1; name[0] == '-' && before < *i; ++before)
        if (strcmp(argv[before], name) == 0)
            return refuse("a second", name, "each option once");
    if (name[0] != '-') {
        if (o->target)
            return refuse("a second target", name, "one");
        o->target = name;
        return 0;
    }
    if (parse_flag(name, o))
        return 0;
    const int status = parse_pair(name, *i + 1 < argc ? argv[*i + 1] : "", o);
    if (status < 0)
        return refuse("unknown option", name, "those that lathe run --help lists");
    if (*i + 1 >= argc)
        return refuse("no value after", name, "one");
    ++*i;
    return status;
}

/* Options that say something about a check only. */
static int parse_for_check(const lathe_run_options *o) {
    const char *name = o->replays > 0     ? "--replays"
                       : o->against       ? "--against"
                       : o->failures_only ? "--failures"
                       : o->noise > 0     ? "--noise"
                                          : NULL;
    return name && !o->check ? refuse("without --check", name, "it with --check") : 0;
}

int lathe_run_options_parse(int argc, char **argv, lathe_run_options *options) {
    *options = (lathe_run_options){
        .weights = "calm:1", .steps = 1, .seed = 1, .schedule = 1, .timeout_ms = 2000, .rank = -1};
    for (int i = 1; i < argc; ++i) {
        const int status = parse_argument(argc, argv, &i, options);
        if (status != 0)
            return status;
    }
    if (!options->target)
        return refuse("no target", "", "a generated directory or a layout; lathe run --help");
    if (parse_for_check(options) != 0)
        return LATHE_EXIT_USAGE + 1;
    if (options->inject.kind != LATHE_INJECT_NOTHING && options->check)
        return refuse("--inject with", "--check", "--inject or --check");
    if (options->processes && (options->check || options->inject.kind != LATHE_INJECT_NOTHING))
        return refuse("--processes with", options->check ? "--check" : "--inject",
                      "steps; a check and a fault want the ranks as threads");
    if ((options->rank >= 0) != (options->meet != NULL))
        return refuse("--rank without", "--meet", "both; --processes sets them");
    if (options->inject.step >= options->steps)
        return refuse("--inject", "a step beyond --steps", "steps from 0 to --steps - 1");
    if (options->timeout_ms > 3600000)
        return refuse("--timeout", "more than an hour", "at most 3600000");
    return 0;
}
