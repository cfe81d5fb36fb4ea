/* SPDX-License-Identifier: Apache-2.0
 * A generated directory, cut to what is timed, built on a GPU with synthetic weights: what `lathe
 * bench` and `lathe tune` time. */
#ifndef LATHE_BENCH_ENGINE_H
#define LATHE_BENCH_ENGINE_H

#include "bench_options.h"
#include "bench_weights.h"
#include "generated.h"
#include "ranks.h"

typedef struct {
    lathe_bench_options o;
    lathe_generated generated;
    int layers_of_all; /* before they were cut */
    char cut[4096];    /* folder of the directory with fewer layers, "" where there is none */
    lathe_ranks ranks;
    lathe_bench_weights *weights;
    const lathe_step_table *table;
    char message[4096]; /* why a call failed */
} lathe_bench_engine;

/* Generates (a layout) and cuts. Returns an exit status; `command` names who says what is wrong. */
int lathe_bench_engine_open(lathe_bench_engine *engine, const char *command);
/* Builds all ranks on their GPUs and fills the caches with numbers; a context of 0 becomes 8192, or
 * the maximum where that is less. */
LATHE_CHECKED lathe_status lathe_bench_engine_build(lathe_bench_engine *engine);
/* The version of NVRTC that made the kernels, as the cache says: "13.0"; "" where it does not. */
void lathe_bench_engine_toolkit(const lathe_bench_engine *engine, char *text, size_t size);
void lathe_bench_engine_close(lathe_bench_engine *engine);

#endif
