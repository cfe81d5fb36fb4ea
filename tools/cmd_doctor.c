/* SPDX-License-Identifier: Apache-2.0
 * lathe doctor: what this machine can do, and what stands in the way. */
#include "commands.h"

#include "command_line.h"
#include "doctor.h"

const char lathe_cmd_doctor_summary[] = "say what this machine can do, and what stands in the way";

static const char usage[] =
    "usage: lathe doctor [--cache DIR] [--nvrtc PATH]\n"
    "\n"
    "Looks for NVRTC, the driver, NCCL, GPUs, a C++ compiler and the cache, tries each, and "
    "prints\n"
    "a line for it: ok, absent, or BROKEN with what to do. Exit status: 0, or 1 where something "
    "is\n"
    "broken; what is merely absent is no failure.\n"
    "\n"
    "  --cache DIR   default: $LATHE_CACHE, else $XDG_CACHE_HOME/lathe, else ~/.cache/lathe\n"
    "  --nvrtc PATH  libnvrtc or its folder; default: $LATHE_NVRTC, else the usual places\n";

typedef struct {
    const char *cache, *nvrtc;
} doctor_options;

/* Returns 0 to go on, else the exit status plus one. */
static int parse(int argc, char **argv, doctor_options *o) {
    const lathe_option options[] = {
        {.name = "--cache", .text = &o->cache}, {.name = "--nvrtc", .text = &o->nvrtc}, {0}};
    const lathe_command_line line = {.command = "doctor", .help = usage, .options = options};
    return lathe_command_line_parse(&line, argc, argv);
}

static const char *yes(bool answer) {
    return answer ? "yes" : "no";
}

int lathe_cmd_doctor(int argc, char **argv) {
    doctor_options o = {0};
    const int parsed = parse(argc, argv, &o);
    if (parsed != 0)
        return parsed - 1;
    lathe_doctor d = {.out = stdout};
    lathe_doctor_nvrtc(&d, o.nvrtc);
    lathe_doctor_driver(&d);
    lathe_doctor_gpus(&d, o.nvrtc);
    lathe_doctor_nccl(&d);
    lathe_doctor_host(&d);
    lathe_doctor_cache(&d, o.cache);
    printf("\ngenerate: yes; build cubins: %s; run on the host device: %s; run on a GPU: %s\n",
           yes(d.compiles), yes(d.host), yes(d.gpus > 0));
    return d.broken ? LATHE_EXIT_CHECK : LATHE_EXIT_OK;
}
