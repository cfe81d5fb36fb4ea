/* SPDX-License-Identifier: Apache-2.0
 * The command line of `lathe run`. */
#ifndef LATHE_RUN_OPTIONS_H
#define LATHE_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "inject.h"
#include "lathe.h"

#define LATHE_RUN_CONTEXTS 16

typedef struct {
    const char *target; /* a generated directory, or a layout file */
    const char *tp;     /* as written, for the generator; NULL: 1 */
    const char *arch;
    const char *deployment;
    lathe_device_kind device;
    bool check;
    bool failures_only;
    const char *weights;  /* "calm:1" */
    bool experts_by_rank; /* whole experts, from which slices are made */
    const char *inputs;
    const char *dump;
    const char *against; /* another deployment, or NULL */
    const char *cache;
    const char *variant; /* NULL: all */
    bool timing;
    int64_t replays; /* 0: 1 */
    int64_t steps;
    int64_t pages; /* of every cache; 0: enough */
    uint64_t seed;
    uint64_t schedule; /* of the host device */
    int64_t contexts[LATHE_RUN_CONTEXTS];
    int context_count;
    int64_t timeout_ms; /* of a wait for a peer */
    lathe_inject inject;
    bool rejoin; /* after its fault */
    double noise;
    bool processes;   /* a process per rank */
    int64_t rank;     /* of this process where it was started as one of several; else -1 */
    const char *meet; /* folder in which those meet */
} lathe_run_options;

/* Reads the arguments after the command's name. Returns 0 to go on, else prints why (or the help)
 * and returns the exit status plus one. */
int lathe_run_options_parse(int argc, char **argv, lathe_run_options *options);

#endif
