/* SPDX-License-Identifier: Apache-2.0
 * lathe doctor: what this machine can do, and what stands in the way. */
#include "commands.h"

#include <getopt.h>

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

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, doctor_options *o) {
    static const struct option names[] = {{"cache", required_argument, NULL, 'c'},
                                          {"nvrtc", required_argument, NULL, 'n'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        const char **place = option == 'c' ? &o->cache : &o->nvrtc;
        if (option == 'h') {
            fputs(usage, stdout);
            return LATHE_EXIT_OK;
        }
        if (option == '?')
            return LATHE_EXIT_USAGE;
        if (*place) {
            fprintf(stderr, "lathe doctor: --%s is given twice\n",
                    option == 'c' ? "cache" : "nvrtc");
            return LATHE_EXIT_USAGE;
        }
        *place = optarg;
    }
    if (optind == argc)
        return -1;
    fprintf(stderr, "lathe doctor: found %s, allowed: options only\n", argv[optind]);
    return LATHE_EXIT_USAGE;
}

static const char *yes(bool answer) {
    return answer ? "yes" : "no";
}

int lathe_cmd_doctor(int argc, char **argv) {
    doctor_options o = {0};
    const int parsed = parse(argc, argv, &o);
    if (parsed >= 0)
        return parsed;
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
