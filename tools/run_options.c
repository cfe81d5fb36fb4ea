/* SPDX-License-Identifier: Apache-2.0
 * Parses the arguments of `lathe run`. */
#include "run_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "against.h"
#include "command_line.h"
#include "commands.h"
#include "generated.h"

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
    "  --experts full|ep  expert-TP slices cut from full weights, or made by all ranks together "
    "from "
    "whole\n"
    "                     experts, of which each holds its share  [full]\n"
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
    "  --rejoin           with --inject: after the fault the ranks rejoin and the steps go on\n"
    "  --pages N          pages of every KV cache  [enough for the largest batch]\n"
    "  --cache DIR        of compiled kernels\n"
    "  --processes        of several ranks: a process each instead of a thread; steps only\n"
    "  --tp N  --arch A  --deployment NAME     for a layout: what to generate\n";

static int refuse(const char *what, const char *found, const char *allowed) {
    return lathe_command_line_refuse("run", what, found, allowed);
}

static bool take_contexts(const char *text, void *to) {
    lathe_run_options *o = to;
    for (char *end;; text = end + 1) {
        errno = 0;
        const long long n = strtoll(text, &end, 10);
        if (errno != 0 || *text < '0' || *text > '9' || n < 1 || (*end && *end != ',') ||
            o->context_count == LATHE_RUN_CONTEXTS)
            return false;
        o->contexts[o->context_count++] = n;
        if (!*end)
            return true;
    }
}

static bool take_noise(const char *text, void *to) {
    char *end;
    const double value = strtod(text, &end);
    *(double *)to = value;
    return end != text && *end == 0 && value >= 0 && value < 1;
}

static bool take_device(const char *text, void *to) {
    const bool cuda = strcmp(text, "cuda") == 0;
    *(lathe_device_kind *)to = cuda ? LATHE_DEVICE_CUDA : LATHE_DEVICE_HOST;
    return cuda || strcmp(text, "host") == 0;
}

static bool take_inject(const char *text, void *to) {
    return lathe_inject_parse(text, to);
}

static int parse(int argc, char **argv, lathe_run_options *o) {
    int64_t seed = 1, schedule = 1;
    const lathe_option options[] = {
        {.name = "--check", .flag = &o->check},
        {.name = "--failures", .flag = &o->failures_only},
        {.name = "--timing", .flag = &o->timing},
        {.name = "--processes", .flag = &o->processes},
        {.name = "--rejoin", .flag = &o->rejoin},
        {.name = "--tp", .text = &o->tp},
        {.name = "--arch", .text = &o->arch},
        {.name = "--deployment", .text = &o->deployment, .may_be_empty = true},
        {.name = "--weights", .text = &o->weights},
        {.name = "--inputs", .text = &o->inputs},
        {.name = "--dump", .text = &o->dump},
        {.name = "--cache", .text = &o->cache},
        {.name = "--variant", .text = &o->variant},
        {.name = "--against", .text = &o->against},
        {.name = "--meet", .text = &o->meet},
        {.name = "--steps", .number = &o->steps, .least = 1},
        {.name = "--rank", .number = &o->rank},
        {.name = "--replays", .number = &o->replays, .least = 1},
        {.name = "--pages", .number = &o->pages, .least = 1},
        {.name = "--seed", .number = &seed},
        {.name = "--schedule", .number = &schedule},
        {.name = "--timeout", .number = &o->timeout_ms, .least = 1, .most = 3600000},
        {.name = "--device", .take = take_device, .to = &o->device, .allowed = "cuda, host"},
        {.name = "--noise", .take = take_noise, .to = &o->noise, .allowed = "a number from 0 to 1"},
        {.name = "--experts",
         .take = lathe_take_experts,
         .to = &o->experts_by_rank,
         .allowed = "full, ep"},
        {.name = "--inject",
         .take = take_inject,
         .to = &o->inject,
         .allowed = LATHE_INJECT_ALLOWED "; MS at most 3600000"},
        {.name = "--context",
         .take = take_contexts,
         .to = o,
         .allowed = "at most 16 numbers from 1 with commas between"},
        {0}};
    const lathe_command_line line = {.command = "run",
                                     .help = help,
                                     .options = options,
                                     .target = &o->target,
                                     .target_is = "a generated directory or a layout"};
    const int status = lathe_command_line_parse(&line, argc, argv);
    o->seed = (uint64_t)seed;
    o->schedule = (uint64_t)schedule;
    return status;
}

/* Options that say something about a check only. */
static int parse_for_check(const lathe_run_options *o) {
    const char *name = o->replays > 0     ? "--replays"
                       : o->against       ? "--against"
                       : o->failures_only ? "--failures"
                       : o->noise > 0     ? "--noise"
                                          : NULL;
    if (name && !o->check)
        return refuse("without --check", name, "it with --check");
    if (o->against && lathe_against_is_deployment(o->against) &&
        !lathe_generated_is_layout(o->target))
        return refuse("--against", o->against,
                      "a directory, where one is checked; TP or TP-NAME of a layout");
    return 0;
}

static int refuse_step(const lathe_run_options *o) {
    char found[32], allowed[64];
    snprintf(found, sizeof found, "%lld", (long long)o->inject.step);
    snprintf(allowed, sizeof allowed, "0 to %lld, the last of --steps", (long long)o->steps - 1);
    return refuse("--inject: step", found, allowed);
}

int lathe_run_options_parse(int argc, char **argv, lathe_run_options *options) {
    *options = (lathe_run_options){.weights = "calm:1", .steps = 1, .timeout_ms = 2000, .rank = -1};
    const int status = parse(argc, argv, options);
    if (status != 0)
        return status;
    if (parse_for_check(options) != 0)
        return LATHE_EXIT_USAGE + 1;
    if (options->inject.kind != LATHE_INJECT_NOTHING && options->check)
        return refuse("--inject with", "--check", "--inject or --check");
    if (options->rejoin && options->inject.kind == LATHE_INJECT_NOTHING)
        return refuse("--rejoin without", "--inject", "it with --inject");
    if (options->processes && (options->check || options->inject.kind != LATHE_INJECT_NOTHING))
        return refuse("--processes with", options->check ? "--check" : "--inject",
                      "steps; a check and a fault want the ranks as threads");
    if ((options->rank >= 0) != (options->meet != NULL))
        return refuse(options->meet ? "--meet without" : "--rank without",
                      options->meet ? "--rank" : "--meet", "both; --processes sets them");
    return options->inject.step < options->steps ? 0 : refuse_step(options);
}
