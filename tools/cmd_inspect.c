/* SPDX-License-Identifier: Apache-2.0
 * lathe inspect: what a generated directory will cost, without a GPU. */
#include "commands.h"

#include <stdio.h>

#include "command_line.h"
#include "inspect.h"

const char lathe_cmd_inspect_summary[] = "resources, floors and nodes of a generated directory";

static const char usage[] =
    "usage: lathe inspect DIR [--kernel PATTERN] [--json | --sass | --flatten | --diff OTHER]\n"
    "                         [--html FILE [--sass]] [--record FILE] [--cache DIR] [--nvrtc PATH]\n"
    "\n"
    "Prints per kernel its launch, registers, spills, shared memory (static and dynamic bytes),\n"
    "blocks that fit a multiprocessor, bytes, operations, floor time and tactic; then per layer\n"
    "kind and for the step the nodes, those on the critical path, the exchanges and the sum of "
    "the\n"
    "floors. Needs no GPU; registers come from what `lathe build` left in the cache.\n"
    "\n"
    "  --kernel PATTERN  only the kernels whose names match (*, ?, [...])\n"
    "  --json            the same facts as JSON\n"
    "  --sass            disassemble, by nvdisasm or cuobjdump\n"
    "  --flatten         the source of one kernel with all it includes, in one file\n"
    "  --diff OTHER      what differs between DIR and another generated directory\n"
    "  --html FILE       one page with all of it, sources and timeline; with --sass, that too\n"
    "  --record FILE     what `lathe bench --record` wrote; default: DIR/bench*.json, if any\n"
    "  --cache DIR       default: $LATHE_CACHE, else $XDG_CACHE_HOME/lathe, else ~/.cache/lathe\n"
    "  --nvrtc PATH      libnvrtc or its folder; default: $LATHE_NVRTC, else the usual places\n";

typedef struct {
    const char *directory, *kernel, *diff, *html, *record, *cache, *nvrtc;
    bool json, sass, flatten;
} inspect_options;

static int check_output(const inspect_options *o) {
    const int outputs =
        o->json + (o->sass && !o->html) + o->flatten + (o->diff != NULL) + (o->html != NULL);
    if (outputs > 1)
        return lathe_command_line_refuse("inspect",
                                         "several of --json, --sass, --flatten, --diff, --html",
                                         NULL, "one, or --html with --sass");
    if (o->html && o->kernel)
        return lathe_command_line_refuse("inspect", "--kernel with", "--html",
                                         "a page of all kernels");
    return 0;
}

/* Returns 0 to go on, else the exit status plus one. */
static int parse(int argc, char **argv, inspect_options *o) {
    const lathe_option options[] = {
        {.name = "--kernel", .text = &o->kernel}, {.name = "--json", .flag = &o->json},
        {.name = "--sass", .flag = &o->sass},     {.name = "--flatten", .flag = &o->flatten},
        {.name = "--diff", .text = &o->diff},     {.name = "--html", .text = &o->html},
        {.name = "--record", .text = &o->record}, {.name = "--cache", .text = &o->cache},
        {.name = "--nvrtc", .text = &o->nvrtc},   {0}};
    const lathe_command_line line = {.command = "inspect",
                                     .help = usage,
                                     .options = options,
                                     .target = &o->directory,
                                     .target_is = "a generated directory"};
    const int status = lathe_command_line_parse(&line, argc, argv);
    return status == 0 ? check_output(o) : status;
}

/* Kernels that are shown; the number of the first in *first. */
static int count_shown(const lathe_inspect *in, int *first) {
    int count = 0;
    for (int k = in->table->kernel_count - 1; k >= 0; --k)
        if (lathe_inspect_shows(in, &in->kernels[k])) {
            *first = k;
            count++;
        }
    return count;
}

static lathe_status compare(const lathe_inspect *in, const inspect_options *o,
                            lathe_message_buffer message) {
    lathe_inspect other;
    lathe_status status = lathe_inspect_open(o->diff, o->cache, o->nvrtc, &other, message);
    if (status != LATHE_OK)
        return status;
    other.pattern = in->pattern;
    status = lathe_inspect_read_bench(&other, o->diff, NULL, message);
    if (status == LATHE_OK)
        lathe_inspect_diff(in, &other, stdout);
    lathe_inspect_close(&other);
    return status;
}

static lathe_status show(const lathe_inspect *in, const inspect_options *o,
                         lathe_message_buffer message) {
    int first = 0;
    const int count = count_shown(in, &first);
    if (count == 0)
        return lathe_fail(message, LATHE_INVALID, "--kernel: no kernel matches \"%.200s\"",
                          in->pattern);
    if (o->flatten && count > 1)
        return lathe_fail(message, LATHE_INVALID,
                          "--flatten: found %d kernels, allowed: one, named by --kernel", count);
    if (o->flatten)
        return lathe_inspect_flatten(o->directory, in->kernels[first].tactic->file, stdout,
                                     message);
    if (o->html)
        return lathe_inspect_html(in, o->directory, o->sass, o->html, message);
    if (o->sass)
        return lathe_inspect_sass(in, stdout, message);
    if (o->diff)
        return compare(in, o, message);
    if (!o->json)
        lathe_inspect_print(in, stdout);
    else if (!lathe_inspect_write_json(in, stdout))
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory");
    return LATHE_OK;
}

int lathe_cmd_inspect(int argc, char **argv) {
    inspect_options o = {0};
    char text[4096] = "";
    const lathe_message_buffer message = {text, sizeof text};
    const int parsed = parse(argc, argv, &o);
    if (parsed != 0)
        return parsed - 1;
    lathe_inspect in;
    lathe_status status = lathe_inspect_open(o.directory, o.cache, o.nvrtc, &in, message);
    if (status == LATHE_OK) {
        in.pattern = o.kernel;
        status = lathe_inspect_read_bench(&in, o.directory, o.record, message);
        if (status == LATHE_OK)
            status = show(&in, &o, message);
        lathe_inspect_close(&in);
    }
    if (status != LATHE_OK)
        fprintf(stderr, "lathe inspect: %s\n", text);
    return status == LATHE_OK ? LATHE_EXIT_OK : LATHE_EXIT_USAGE;
}
