/* SPDX-License-Identifier: Apache-2.0 */
#include "tune_race.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_plan.h"
#include "bench_routes.h"
#include "bench_stats.h"
#include "bench_time.h"
#include "step_inputs.h"
#include "tune_graph.h"

#define REPLAYS 4          /* of a candidate in a round, beside those that warm up */
#define ROUNDS_OF_INPUTS 4 /* rounds with the same tokens and routes */
#define ENOUGH_SHARE 0.005 /* of the kernel's time: a smaller difference does not matter */

/* The step without the kernel: its time is what candidates are measured from. Where the kernel
 * publishes, it is left out with its receivers, so that their own time is needed too. */
enum { WITHOUT, WITHOUT_RECEIVERS, REFERENCES };

typedef struct {
    const lathe_tune_run *run;
    const lathe_tune_kernel *kernel;
    lathe_pool *pool;
    lathe_engine *engine;
    lathe_bench_launches own;
    lathe_bench_plan *plan;
    lathe_bench_timer timer;
    lathe_tune_memory memory;
    lathe_tune_candidate *candidates;
    lathe_bench_graph references[REFERENCES];
    bool made[REFERENCES];
    lathe_bench_routes routes;
    lathe_tune_race race;
    int *rounds_of; /* per choice: rounds it was timed in */
    double *times, *references_times;
    bool *racing;
    int *simple;
    int launches; /* of the kernel in the step */
    bool *left_out;
} racer;

static lathe_status fail_memory(const racer *r) {
    snprintf(r->run->engine->message, sizeof r->run->engine->message, "no memory");
    return LATHE_NO_MEMORY;
}

/* ---- what takes part ---- */

static int find_row(const racer *r) {
    for (int i = 0; i < r->plan->row_count; ++i)
        if (r->plan->rows[i].kernel && strcmp(r->plan->rows[i].name, r->kernel->name) == 0)
            return i;
    return -1;
}

static lathe_status make_references(racer *r) {
    const int row = find_row(r);
    if (row < 0) {
        snprintf(r->run->engine->message, sizeof r->run->engine->message,
                 "%s: the step has no such launch", r->kernel->name);
        return LATHE_INVALID;
    }
    r->launches = r->plan->rows[row].launches;
    lathe_bench_plan_without(r->plan, row, false, r->left_out);
    lathe_status status = lathe_bench_graph_create(&r->timer, r->left_out, &r->references[WITHOUT]);
    r->made[WITHOUT] = status == LATHE_OK;
    if (status != LATHE_OK || !r->plan->rows[row].publishes)
        return status;
    for (int i = 0; i < r->plan->count; ++i)
        r->left_out[i] = r->left_out[i] && r->plan->row_of[i] != row;
    status = lathe_bench_graph_create(&r->timer, r->left_out, &r->references[WITHOUT_RECEIVERS]);
    r->made[WITHOUT_RECEIVERS] = status == LATHE_OK;
    return status;
}

static int make_candidates(racer *r) {
    int ready = 0;
    for (int c = 0; c < r->kernel->count; ++c) {
        lathe_tune_candidate_make(&r->candidates[c], r->run->source, r->kernel, c,
                                  r->own.of_rank[0], r->own.count);
        r->run->progress(r->run->context, "generating", 0.1 * c / r->kernel->count);
    }
    r->run->progress(r->run->context, "compiling", 0.1);
    lathe_tune_candidate_compile(r->candidates, r->kernel->count, r->run->source, r->run->jobs);
    for (int c = 0; c < r->kernel->count; ++c) {
        if (!r->candidates[c].reason[0])
            lathe_tune_graph_make(&r->candidates[c], &r->memory, &r->own);
        r->racing[c] = !r->candidates[c].reason[0];
        ready += r->racing[c];
    }
    return ready;
}

/* ---- rounds ---- */

static lathe_status draw(racer *r, int round) {
    lathe_bench_engine *e = r->run->engine;
    const uint64_t seed = e->o.seed + (uint64_t)(round / ROUNDS_OF_INPUTS);
    const lathe_step_inputs inputs = {
        .seed = seed, .context = e->o.context, .timing = true, .own_tokens = e->o.rank_slice};
    lathe_status status =
        lathe_step_inputs_write(r->engine, r->run->variant, &inputs, e->message, sizeof e->message);
    if (status == LATHE_OK)
        status = lathe_bench_launches_draw(&r->own, seed, e->message, sizeof e->message);
    return status == LATHE_OK
               ? lathe_bench_routes_count(&r->own, &r->routes, e->message, sizeof e->message)
               : status;
}

static lathe_status time_one(const racer *r, const lathe_bench_graph *g, double *to) {
    double few[REPLAYS];
    const lathe_status status = lathe_bench_time(&r->timer, g, REPLAYS, few);
    *to = lathe_bench_stats_of(few, status == LATHE_OK ? REPLAYS : 0).median;
    return status;
}

static lathe_status time_round(racer *r) {
    const int round = r->race.rounds;
    lathe_status status = round % ROUNDS_OF_INPUTS == 0 ? draw(r, round) : LATHE_OK;
    for (int c = 0; status == LATHE_OK && c < r->kernel->count; ++c) {
        const lathe_bench_graph g = {.graphs = {r->candidates[c].graph}, .whole = true};
        if (!r->racing[c])
            continue;
        status = time_one(r, &g, &r->times[c * r->race.room + round]);
        r->rounds_of[c] = round + 1;
    }
    for (int i = 0; status == LATHE_OK && i < REFERENCES; ++i)
        if (r->made[i])
            status = time_one(r, &r->references[i], &r->references_times[i * r->race.room + round]);
    ++r->race.rounds;
    return status;
}

/* Median of a - b over the first `rounds`; b NULL: of a. */
static double median(const double *a, const double *b, int rounds, double *spread) {
    double *d = calloc((size_t)rounds + 1, sizeof *d);
    for (int i = 0; d && i < rounds; ++i)
        d[i] = a[i] - (b ? b[i] : 0);
    const lathe_bench_stats s = lathe_bench_stats_of(d, d ? rounds : 0);
    free(d);
    if (spread)
        *spread = s.p75 - s.p25;
    return s.median;
}

static const double *times_of(const racer *r, int c) {
    return r->times + (ptrdiff_t)c * r->race.room;
}

/* The choice that stands for the step as it is: what the table takes, or else the first in the
 * race.
 */
static int find_present(const racer *r) {
    int present = -1;
    for (int c = 0; c < r->kernel->count; ++c)
        if (r->rounds_of[c] > 0 && (present < 0 || r->kernel->choices[c].taken))
            present = c;
    return present;
}

/* What a launch adds to the step, of the tactic that `times` are of. */
static double time_of(const racer *r, int c, double *spread) {
    const int rounds = r->rounds_of[c], present = find_present(r);
    const double *without = r->references_times;
    double time = median(times_of(r, c), without, rounds, spread);
    if (r->made[WITHOUT_RECEIVERS]) {
        const int shared = rounds < r->rounds_of[present] ? rounds : r->rounds_of[present];
        time -= median(times_of(r, present), without + r->race.room, shared, NULL);
    }
    if (spread)
        *spread /= r->launches;
    return time / r->launches;
}

static lathe_status race(racer *r, lathe_tune_outcome *out) {
    lathe_tune_verdict v = {.settled = false};
    lathe_status status = LATHE_OK;
    while (status == LATHE_OK && !v.settled && r->race.rounds < r->run->rounds) {
        status = time_round(r);
        if (status != LATHE_OK)
            return status;
        const int best = lathe_tune_judge(&r->race).best;
        r->race.enough = ENOUGH_SHARE * fabs(time_of(r, best, NULL)) * r->launches;
        v = lathe_tune_judge(&r->race);
        char what[64];
        snprintf(what, sizeof what, "%d left of %d", v.racing, r->kernel->count);
        r->run->progress(r->run->context, what, 0.2 + 0.8 * r->race.rounds / r->run->rounds);
    }
    out->taken = v.taken;
    out->racing = v.racing;
    out->settled = v.settled;
    out->rounds = r->race.rounds;
    return status;
}

/* ---- the whole ---- */

static lathe_status conclude(racer *r, lathe_tune_outcome *out) {
    const int n = r->kernel->count;
    out->medians = lathe_pool_alloc(r->pool, (size_t)n, sizeof *out->medians);
    out->reasons = lathe_pool_alloc(r->pool, (size_t)n, sizeof *out->reasons);
    if (!out->medians || !out->reasons)
        return fail_memory(r);
    (void)time_of(r, out->taken, &out->spread);
    const double best = time_of(r, out->taken, NULL);
    for (int c = 0; c < n; ++c) {
        const int rounds = r->rounds_of[c];
        out->medians[c] =
            rounds > 0
                ? best + median(times_of(r, c), times_of(r, out->taken), rounds, NULL) / r->launches
                : NAN;
        if (r->candidates[c].reason[0])
            out->reasons[c] = lathe_pool_string(r->pool, r->candidates[c].reason);
    }
    return LATHE_OK;
}

static bool set_up(racer *r) {
    const size_t n = (size_t)r->kernel->count, room = (size_t)r->run->rounds;
    r->plan = lathe_bench_plan_create(r->run->engine->table, r->own.of_rank[0], r->own.count);
    r->candidates = lathe_pool_alloc(r->pool, n, sizeof *r->candidates);
    r->times = lathe_pool_alloc(r->pool, n * room, sizeof *r->times);
    r->references_times = lathe_pool_alloc(r->pool, REFERENCES * room, sizeof(double));
    r->racing = lathe_pool_alloc(r->pool, n, sizeof *r->racing);
    r->simple = lathe_pool_alloc(r->pool, n, sizeof *r->simple);
    r->rounds_of = lathe_pool_alloc(r->pool, n, sizeof *r->rounds_of);
    r->left_out = lathe_pool_alloc(r->pool, (size_t)r->own.count + 1, sizeof *r->left_out);
    r->routes.of_layer = lathe_pool_alloc(r->pool, (size_t)r->run->engine->table->layer_count,
                                          sizeof *r->routes.of_layer);
    if (!r->plan || !r->candidates || !r->times || !r->references_times || !r->racing ||
        !r->simple || !r->rounds_of || !r->left_out || !r->routes.of_layer)
        return false;
    for (size_t c = 0; c < n; ++c)
        r->simple[c] = r->kernel->choices[c].simple;
    r->timer.plan = r->plan;
    r->race = (lathe_tune_race){.times = r->times,
                                .simple = r->simple,
                                .racing = r->racing,
                                .count = (int)n,
                                .room = (int)room};
    return true;
}

static lathe_status run_all(racer *r, lathe_tune_outcome *out) {
    lathe_bench_engine *e = r->run->engine;
    lathe_status status = lathe_bench_launches_create(&e->ranks, r->run->variant, r->pool, &r->own,
                                                      e->message, sizeof e->message);
    if (status != LATHE_OK)
        return status;
    if (!set_up(r))
        return fail_memory(r);
    status = make_references(r);
    if (status == LATHE_OK && make_candidates(r) == 0) {
        snprintf(e->message, sizeof e->message, "%s: no tactic can be timed; the first: %.500s",
                 r->kernel->name, r->kernel->count ? r->candidates[0].reason : "there is none");
        status = LATHE_UNSUPPORTED;
    }
    if (status == LATHE_OK)
        status = race(r, out);
    return status == LATHE_OK ? conclude(r, out) : status;
}

lathe_status lathe_tune_race_run(const lathe_tune_run *run, const lathe_tune_kernel *kernel,
                                 lathe_pool *pool, lathe_tune_outcome *out) {
    lathe_bench_engine *e = run->engine;
    racer r = {.run = run,
               .kernel = kernel,
               .pool = pool,
               .engine = e->ranks.engines[0],
               .memory = {.engine = e->ranks.engines[0], .pool = pool}};
    r.timer = (lathe_bench_timer){
        .ranks = &e->ranks, .launches = &r.own, .message = e->message, .size = sizeof e->message};
    *out = (lathe_tune_outcome){.taken = -1};
    const lathe_status status = run_all(&r, out);
    for (int i = 0; i < REFERENCES; ++i)
        if (r.made[i])
            lathe_bench_graph_destroy(&r.timer, &r.references[i]);
    for (int c = 0; r.candidates && c < kernel->count; ++c) {
        lathe_tune_graph_destroy(&r.candidates[c], r.engine);
        lathe_tune_candidate_destroy(&r.candidates[c]);
    }
    lathe_tune_memory_release(&r.memory);
    lathe_bench_plan_destroy(r.plan);
    lathe_bench_launches_destroy(&r.own);
    return status;
}
