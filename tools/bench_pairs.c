/* SPDX-License-Identifier: Apache-2.0
 * Each side keeps its graph; the sides take turns in going first. */
#include "bench_pairs.h"

#include <stdlib.h>
#include <string.h>

#include "bench_launches.h"
#include "bench_stats.h"
#include "bench_time.h"
#include "exit_status.h"
#include "pool.h"
#include "step_inputs.h"

typedef struct {
    const lathe_bench_options *o;
    lathe_ranks *ranks;
    int variant;
    lathe_bench_launches launches;
    lathe_bench_plan *plan;
    lathe_bench_timer timer;
    lathe_bench_graph graph;
    bool launched, recorded;
} side;

/* Medians of the pairs, in microseconds; `difference` is the first side less the second. */
typedef struct {
    lathe_bench_stats side[2], difference;
} outcome;

static lathe_status write_inputs(const side *s, char *message, size_t size) {
    lathe_status status = LATHE_OK;
    for (int rank = 0; status == LATHE_OK && rank < s->ranks->count; ++rank) {
        const lathe_step_inputs inputs = {.seed = s->o->seed,
                                          .context = s->o->context,
                                          .rank = rank,
                                          .timing = true,
                                          .own_tokens = s->o->rank_slice};
        status =
            lathe_step_inputs_write(s->ranks->engines[rank], s->variant, &inputs, message, size);
    }
    return status == LATHE_OK ? lathe_bench_launches_draw(&s->launches, s->o->seed, message, size)
                              : status;
}

static lathe_status open_side(side *s, lathe_pool *pool, char *message, size_t size) {
    lathe_status status =
        lathe_bench_launches_create(s->ranks, s->variant, pool, &s->launches, message, size);
    if (status != LATHE_OK)
        return status;
    s->launched = true;
    s->plan = lathe_bench_plan_create(lathe_engine_table(s->ranks->engines[0]),
                                      s->launches.of_rank[0], s->launches.count);
    if (!s->plan) {
        snprintf(message, size, "no memory");
        return LATHE_NO_MEMORY;
    }
    s->timer = (lathe_bench_timer){.ranks = s->ranks,
                                   .launches = &s->launches,
                                   .plan = s->plan,
                                   .message = message,
                                   .size = size};
    status = write_inputs(s, message, size);
    if (status == LATHE_OK)
        status = lathe_bench_graph_create(&s->timer, NULL, &s->graph);
    s->recorded = status == LATHE_OK;
    return status;
}

static void close_side(side *s) {
    if (s->recorded)
        lathe_bench_graph_destroy(&s->timer, &s->graph);
    lathe_bench_plan_destroy(s->plan);
    if (s->launched)
        lathe_bench_launches_destroy(&s->launches);
}

/* Median of the side's replays in one pair. */
static lathe_status time_side(const side *s, double *replays, double *median) {
    const int count = (int)s->o->replays;
    const lathe_status status = lathe_bench_time(&s->timer, &s->graph, count, replays);
    if (status == LATHE_OK)
        *median = lathe_bench_stats_of(replays, count).median;
    return status;
}

static lathe_status time_pairs(const side sides[2], double *replays, double *medians[3]) {
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i < sides[0].o->pairs; ++i) {
        for (int turn = 0; status == LATHE_OK && turn < 2; ++turn) {
            const int which = (i + turn) % 2;
            status = time_side(&sides[which], replays, &medians[which][i]);
        }
        medians[2][i] = medians[0][i] - medians[1][i];
    }
    return status;
}

static lathe_status run(side sides[2], lathe_pool *pool, outcome *result, char *message,
                        size_t size) {
    const int pairs = (int)sides[0].o->pairs;
    double *medians[3];
    double *replays = lathe_pool_alloc(pool, (size_t)sides[0].o->replays, sizeof *replays);
    for (int i = 0; i < 3; ++i)
        medians[i] = lathe_pool_alloc(pool, (size_t)pairs, sizeof *medians[i]);
    if (!replays || !medians[0] || !medians[1] || !medians[2]) {
        snprintf(message, size, "no memory");
        return LATHE_NO_MEMORY;
    }
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i < 2; ++i)
        status = open_side(&sides[i], pool, message, size);
    if (status == LATHE_OK)
        status = time_pairs(sides, replays, medians);
    if (status == LATHE_OK)
        *result = (outcome){.side = {lathe_bench_stats_of(medians[0], pairs),
                                     lathe_bench_stats_of(medians[1], pairs)},
                            .difference = lathe_bench_stats_of(medians[2], pairs)};
    return status;
}

static lathe_status run_variant(lathe_bench_engine *first, lathe_bench_engine *second, int variant,
                                outcome *result) {
    side sides[2] = {{.o = &first->o, .ranks = &first->ranks, .variant = variant},
                     {.o = &first->o, .ranks = &second->ranks, .variant = variant}};
    lathe_pool *pool = lathe_pool_create();
    lathe_status status = LATHE_NO_MEMORY;
    snprintf(first->message, sizeof first->message, "no memory");
    if (pool)
        status = run(sides, pool, result, first->message, sizeof first->message);
    close_side(&sides[0]);
    close_side(&sides[1]);
    lathe_pool_destroy(pool);
    return status;
}

static void report(const char *variant, const outcome *r, FILE *out) {
    const lathe_bench_stats *d = &r->difference;
    const double spread = d->p75 - d->p25;
    fprintf(out,
            "%d pairs, variant %s: %.3f us and %.3f us; the first less the second %+.3f us "
            "(%+.2f %%), spread of the pairs %.3f us: %s\n",
            d->count, variant, r->side[0].median, r->side[1].median, d->median,
            r->side[1].median > 0 ? 100 * d->median / r->side[1].median : 0, spread,
            d->median > spread || -d->median > spread ? "they differ" : "no difference is seen");
    fflush(out);
}

static lathe_status same_steps(lathe_bench_engine *a, const lathe_bench_engine *b) {
    bool same = a->table->tp == b->table->tp && a->o.context == b->o.context &&
                a->table->variant_count == b->table->variant_count;
    for (int v = 0; same && v < a->table->variant_count; ++v)
        same = strcmp(a->table->variants[v].name, b->table->variants[v].name) == 0;
    if (same)
        return LATHE_OK;
    snprintf(a->message, sizeof a->message,
             "%s and %s have not the same ranks, variants and context", a->o.target, b->o.target);
    return LATHE_INVALID;
}

static int fail(lathe_status status, const char *message) {
    fprintf(stderr, "lathe bench: %s\n", message);
    return lathe_exit_status(status);
}

static int open_engine(lathe_bench_engine *e) {
    const int opened = lathe_bench_engine_open(e, "bench");
    if (opened != LATHE_EXIT_OK)
        return opened;
    const lathe_status status = lathe_bench_engine_build(e);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, e->message);
}

static int run_all(lathe_bench_engine *first, lathe_bench_engine *second, FILE *out) {
    int exit = open_engine(first);
    if (exit == LATHE_EXIT_OK)
        exit = open_engine(second);
    if (exit != LATHE_EXIT_OK)
        return exit;
    lathe_status status = same_steps(first, second);
    for (int v = 0; status == LATHE_OK && v < first->table->variant_count; ++v) {
        outcome result;
        status = run_variant(first, second, v, &result);
        if (status == LATHE_OK)
            report(first->table->variants[v].name, &result, out);
    }
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, first->message);
}

int lathe_bench_versus(lathe_bench_engine *first, FILE *out) {
    lathe_bench_engine *second = calloc(1, sizeof *second);
    if (!second)
        return fail(LATHE_NO_MEMORY, "no memory");
    second->o = first->o;
    second->o.target = first->o.versus;
    const int exit = run_all(first, second, out);
    lathe_bench_engine_close(second);
    free(second);
    return exit;
}
