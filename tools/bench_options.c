/* SPDX-License-Identifier: Apache-2.0
 * Parses the arguments of `lathe bench`. */
#include "bench_options.h"

#include <string.h>

#include "command_line.h"
#include "commands.h"

static const char help[] =
    "usage: lathe bench DIR|LAYOUT [options]\n"
    "\n"
    "Times the real step under graph replay on a GPU: the whole step, a layer of each kind, and "
    "what "
    "each kernel adds.\n"
    "\n"
    "  --rank-slice       one rank of several on one GPU, its mailboxes led back to itself: a "
    "lower "
    "bound\n"
    "  --variant NAME,... batch variants  [all]\n"
    "  --context N        tokens of every request  [8192, or the maximum where that is less]\n"
    "  --layers N         the first N layers; 0: all  [12]\n"
    "  --replays N        of the whole step  [1000]\n"
    "  --sets N           of inputs (other tokens, other routes) that share the replays  [5]\n"
    "  --samples N        replays of each step with a kernel left out  [200]\n"
    "  --kernel TEXT      leave out only kernels whose name holds TEXT\n"
    "  --step             leave no kernel out: whole step and layers only\n"
    "  --versus DIR       time the step in turn with that of another directory, and nothing else\n"
    "  --pairs N          of --replays of each, with --versus  [20]\n"
    "  --record FILE      write a record\n"
    "  --against FILE     ratios to an earlier record\n"
    "  --json             the record on standard output instead of tables\n"
    "  --seed S           of the inputs  [1]\n"
    "  --timeout MS       bound on a wait for another rank  [10000]\n"
    "  --cache DIR        of compiled kernels\n"
    "  --device cuda      the only one: the host device emulates, its time says nothing\n"
    "  --tp N  --arch A  --deployment NAME     for a layout: what to generate\n";

static int refuse(const char *what, const char *found, const char *allowed) {
    return lathe_command_line_refuse("bench", what, found, allowed);
}

bool lathe_bench_options_variants(lathe_bench_options *o, const char *text) {
    char *save = NULL;
    if (strlen(text) >= sizeof o->variant_text)
        return false;
    strcpy(o->variant_text, text);
    for (char *word = strtok_r(o->variant_text, ",", &save); word;
         word = strtok_r(NULL, ",", &save)) {
        if (o->variant_count == LATHE_BENCH_VARIANTS)
            return false;
        o->variants[o->variant_count++] = word;
    }
    return o->variant_count > 0;
}

static bool take_variants(const char *text, void *to) {
    return lathe_bench_options_variants(to, text);
}

static bool take_device(const char *text, void *to) {
    (void)to; /* there is but one */
    return strcmp(text, "cuda") == 0;
}

static int parse(int argc, char **argv, lathe_bench_options *o) {
    int64_t seed = 1;
    const lathe_option options[] = {
        {.name = "--rank-slice", .flag = &o->rank_slice},
        {.name = "--json", .flag = &o->json},
        {.name = "--step", .flag = &o->step_only},
        {.name = "--tp", .text = &o->tp},
        {.name = "--arch", .text = &o->arch},
        {.name = "--deployment", .text = &o->deployment, .may_be_empty = true},
        {.name = "--cache", .text = &o->cache},
        {.name = "--kernel", .text = &o->kernel},
        {.name = "--versus", .text = &o->versus},
        {.name = "--pairs", .number = &o->pairs, .least = 1, .most = 100000},
        {.name = "--record", .text = &o->record},
        {.name = "--against", .text = &o->against},
        {.name = "--device",
         .take = take_device,
         .allowed = "cuda (the host device emulates a GPU: its time says nothing)"},
        {.name = "--context", .number = &o->context, .least = 1, .most = INT32_MAX},
        {.name = "--layers", .number = &o->layers, .most = 100000},
        {.name = "--replays", .number = &o->replays, .least = 1, .most = 1000000},
        {.name = "--sets", .number = &o->sets, .least = 1, .most = LATHE_BENCH_SETS},
        {.name = "--samples", .number = &o->samples, .least = 1, .most = 100000},
        {.name = "--timeout", .number = &o->timeout_ms, .least = 1, .most = 3600000},
        {.name = "--seed", .number = &seed},
        {.name = "--variant",
         .take = take_variants,
         .to = o,
         .allowed = "at most 16 names with commas between"},
        {0}};
    const lathe_command_line line = {.command = "bench",
                                     .help = help,
                                     .options = options,
                                     .target = &o->target,
                                     .target_is = "a generated directory or a layout"};
    const int status = lathe_command_line_parse(&line, argc, argv);
    o->seed = (uint64_t)seed;
    return status;
}

int lathe_bench_options_parse(int argc, char **argv, lathe_bench_options *o) {
    *o = (lathe_bench_options){
        .layers = 12, .replays = 1000, .sets = 5, .samples = 200, .pairs = 20, .timeout_ms = 10000};
    const int status = parse(argc, argv, o);
    if (status != 0)
        return status;
    if (o->sets > o->replays)
        return refuse("--sets", "more than --replays", "at most a set a replay");
    if (o->versus && (o->json || o->record || o->against || o->kernel))
        return refuse("--versus with", "another report",
                      "neither --json, --record, --against nor --kernel");
    if (o->step_only && o->kernel)
        return refuse("--kernel with", "--step", "one of them");
    return 0;
}
