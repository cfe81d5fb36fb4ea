/* SPDX-License-Identifier: Apache-2.0
 * The launches of a variant as `lathe bench` runs them: what they leave to one another as integers
 * (routes: tiles, tokens, rows) has memory of its own in every layer, and routing selects from
 * logits that are drawn, without a bias. So a launch that is left out leaves the routes of its very
 * layer in place, and no launch reads numbers that were meant for another. */
#ifndef LATHE_BENCH_LAUNCHES_H
#define LATHE_BENCH_LAUNCHES_H

#include "pool.h"
#include "ranks.h"

typedef struct {
    const lathe_ranks *ranks;
    int variant, count;                          /* count: launches of one rank */
    lathe_step_launch *of_rank[LATHE_GROUP_MAX]; /* as lathe_engine_launches gives them */
    void **memory[LATHE_GROUP_MAX];
    int memory_count[LATHE_GROUP_MAX];
    int routings; /* launches of a rank whose logits are drawn */
} lathe_bench_launches;

/* Lists come from `pool`, device memory is taken. On failure there is nothing to destroy. */
LATHE_CHECKED lathe_status lathe_bench_launches_create(const lathe_ranks *ranks, int variant,
                                                       lathe_pool *pool,
                                                       lathe_bench_launches *launches,
                                                       char *message, size_t size);
void lathe_bench_launches_destroy(lathe_bench_launches *launches);

/* Draws the experts of every token of every layer anew, uniformly and alike on all ranks. */
LATHE_CHECKED lathe_status lathe_bench_launches_draw(const lathe_bench_launches *launches,
                                                     uint64_t seed, char *message, size_t size);

/* Whether the launch selects experts from logits that are drawn. */
bool lathe_bench_launches_routes(const lathe_step_launch *launch);

/* Logits of one token: `chosen` of `experts` are drawn and stand above all others. Distinct experts
 * of n tokens: experts (1 - (1 - chosen / experts)^n) in the mean. */
void lathe_bench_draw_logits(uint64_t *state, int64_t experts, int64_t chosen, float *logits);

#endif
