/* SPDX-License-Identifier: Apache-2.0
 * The step of a candidate as a graph on the engine of the step as it is: its kernels in the place
 * of those that are changed, and memory of its own where they need more. */
#ifndef LATHE_TUNE_GRAPH_H
#define LATHE_TUNE_GRAPH_H

#include "bench_launches.h"
#include "tune_candidate.h"

/* Memory for candidates, shared by them: one of a name, as large as the largest. */
typedef struct {
    lathe_engine *engine;
    lathe_pool *pool;
    int count, room;
    struct lathe_tune_piece {
        const char *buffer;
        void *memory;
        size_t bytes;
    } * pieces;
} lathe_tune_memory;

/* Loads what is changed and records `launches` with it. On failure the candidate has the reason. */
void lathe_tune_graph_make(lathe_tune_candidate *candidate, lathe_tune_memory *memory,
                           const lathe_bench_launches *launches);
void lathe_tune_graph_destroy(lathe_tune_candidate *candidate, lathe_engine *engine);
void lathe_tune_memory_release(lathe_tune_memory *memory);

#endif
