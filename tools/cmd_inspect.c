/* SPDX-License-Identifier: Apache-2.0
 * lathe inspect: what a generated directory will cost, without a GPU. */
#include "commands.h"

#include <fnmatch.h>
#include <getopt.h>
#include <stdio.h>

#include "inspect.h"

const char lathe_cmd_inspect_summary[] = "resources, floors and nodes of a generated directory";

static const char usage[] =
    "usage: lathe inspect DIR [--kernel PATTERN] [--json | --sass | --flatten | --diff OTHER]\n"
    "                         [--html FILE [--sass]] [--cache DIR] [--nvrtc PATH]\n"
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
    "  --cache DIR       default: $LATHE_CACHE, else $XDG_CACHE_HOME/lathe, else ~/.cache/lathe\n"
    "  --nvrtc PATH      libnvrtc or its folder; default: $LATHE_NVRTC, else the usual places\n";

enum { KERNEL, JSON, SASS, FLATTEN, DIFF, HTML, CACHE, NVRTC, HELP };

typedef struct {
    const char *directory, *text[HELP];
    bool given[HELP + 1];
} inspect_options;

static const struct option names[] = {{"kernel", 1, NULL, KERNEL}, {"json", 0, NULL, JSON},
                                      {"sass", 0, NULL, SASS},     {"flatten", 0, NULL, FLATTEN},
                                      {"diff", 1, NULL, DIFF},     {"html", 1, NULL, HTML},
                                      {"cache", 1, NULL, CACHE},   {"nvrtc", 1, NULL, NVRTC},
                                      {"help", 0, NULL, HELP},     {NULL, 0, NULL, 0}};

static bool one_output(const inspect_options *o) {
    const int outputs = o->given[JSON] + (o->given[SASS] && !o->given[HTML]) + o->given[FLATTEN] +
                        o->given[DIFF] + o->given[HTML];
    if (outputs > 1)
        fputs("lathe inspect: found several of --json, --sass, --flatten, --diff, --html, allowed: "
              "one, or --html with --sass\n",
              stderr);
    if (o->given[HTML] && o->given[KERNEL])
        fputs("lathe inspect: found --kernel with --html, allowed: a page of all kernels\n",
              stderr);
    return outputs <= 1 && !(o->given[HTML] && o->given[KERNEL]);
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, inspect_options *o) {
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (c == '?')
            return LATHE_EXIT_USAGE;
        if (c == HELP) {
            fputs(usage, stdout);
            return LATHE_EXIT_OK;
        }
        if (o->given[c]) {
            fprintf(stderr, "lathe inspect: a second --%s; allowed: each option once\n",
                    names[c].name);
            return LATHE_EXIT_USAGE;
        }
        o->given[c] = true;
        o->text[c] = optarg;
    }
    if (argc - optind != 1) {
        fputs("lathe inspect: one generated directory is needed; see lathe inspect --help\n",
              stderr);
        return LATHE_EXIT_USAGE;
    }
    if (!one_output(o))
        return LATHE_EXIT_USAGE;
    o->directory = argv[optind];
    return -1;
}

/* Kernels that match; the number of the first in *first. */
static int matching(const lathe_inspect *in, const char *pattern, int *first) {
    int count = 0;
    for (int k = in->table->kernel_count - 1; k >= 0; --k)
        if (!pattern || fnmatch(pattern, in->table->kernels[k].name, 0) == 0) {
            *first = k;
            count++;
        }
    return count;
}

static lathe_status compare(const lathe_inspect *in, const inspect_options *o,
                            lathe_message_buffer message) {
    lathe_inspect other;
    const lathe_status status =
        lathe_inspect_open(o->text[DIFF], o->text[CACHE], o->text[NVRTC], &other, message);
    if (status != LATHE_OK)
        return status;
    lathe_inspect_diff(in, &other, stdout);
    lathe_inspect_close(&other);
    return LATHE_OK;
}

static lathe_status show(const lathe_inspect *in, const inspect_options *o,
                         lathe_message_buffer message) {
    const char *pattern = o->text[KERNEL];
    int first = 0;
    const int count = matching(in, pattern, &first);
    if (count == 0)
        return lathe_fail(message, LATHE_INVALID, "--kernel: no kernel matches \"%.200s\"",
                          pattern);
    if (o->given[FLATTEN] && count > 1)
        return lathe_fail(message, LATHE_INVALID,
                          "--flatten: found %d kernels, allowed: one, named by --kernel", count);
    if (o->given[FLATTEN])
        return lathe_inspect_flatten(o->directory, in->kernels[first].tactic->file, stdout,
                                     message);
    if (o->given[HTML])
        return lathe_inspect_html(in, o->directory, o->given[SASS], o->text[HTML], message);
    if (o->given[SASS])
        return lathe_inspect_sass(in, pattern, stdout, message);
    if (o->given[DIFF])
        return compare(in, o, message);
    if (!o->given[JSON])
        lathe_inspect_print(in, pattern, stdout);
    else if (!lathe_inspect_write_json(in, pattern, stdout))
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory");
    return LATHE_OK;
}

int lathe_cmd_inspect(int argc, char **argv) {
    inspect_options o = {0};
    char text[4096] = "";
    const lathe_message_buffer message = {text, sizeof text};
    const int parsed = parse(argc, argv, &o);
    if (parsed >= 0)
        return parsed;
    lathe_inspect in;
    lathe_status status =
        lathe_inspect_open(o.directory, o.text[CACHE], o.text[NVRTC], &in, message);
    if (status == LATHE_OK) {
        status = show(&in, &o, message);
        lathe_inspect_close(&in);
    }
    if (status != LATHE_OK)
        fprintf(stderr, "lathe inspect: %s\n", text);
    return status == LATHE_OK ? LATHE_EXIT_OK : LATHE_EXIT_USAGE;
}
