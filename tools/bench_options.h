/* SPDX-License-Identifier: Apache-2.0
 * The command line of `lathe bench`. */
#ifndef LATHE_BENCH_OPTIONS_H
#define LATHE_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "lathe.h"

#define LATHE_BENCH_VARIANTS 16
#define LATHE_BENCH_SETS 64

typedef struct {
    const char *target; /* a generated directory, or a layout file */
    const char *tp;     /* as written; NULL: 1 */
    const char *arch;
    const char *deployment;
    bool rank_slice; /* one rank of several on one GPU, its mailboxes lead back to itself */
    bool json;       /* the record on standard output in place of the tables */
    bool step_only;  /* no kernel is left out */
    const char *variants[LATHE_BENCH_VARIANTS];
    int variant_count;   /* 0: all */
    const char *kernel;  /* part of the names of the kernels to be left out; NULL: all */
    const char *record;  /* file to write, or NULL */
    const char *against; /* file of an earlier record, or NULL */
    const char *versus;  /* another generated directory of the same step; NULL: none */
    int64_t pairs;       /* of replays of both */
    const char *cache;
    int64_t context; /* tokens of every request */
    int64_t layers;  /* the first so many; 0: all */
    int64_t replays; /* of the whole step */
    int64_t sets;    /* of inputs, that share the replays */
    int64_t samples; /* replays of each altered step */
    int64_t timeout_ms;
    uint64_t seed;
    char variant_text[256]; /* what `variants` points into */
} lathe_bench_options;

/* Reads the arguments after the command's name. Returns 0 to go on, else prints why (or the help)
 * and returns the exit status plus one. */
int lathe_bench_options_parse(int argc, char **argv, lathe_bench_options *options);

/* Reads "1x1,1x8". False where there are more than can be held, or none. */
bool lathe_bench_options_variants(lathe_bench_options *options, const char *text);

#endif
