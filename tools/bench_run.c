/* SPDX-License-Identifier: Apache-2.0
 * Times the whole step and, in turn so that drift falls on all alike, steps with something left
 * out, once for each set of inputs. Differences of medians, averaged over the sets, are what the
 * part adds. */
#include "bench_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_bytes.h"
#include "bench_routes.h"
#include "bench_time.h"
#include "pool.h"
#include "step_inputs.h"

#define BLOCK 10 /* replays of one step before the next has its turn */

/* A step with something left out, and its times: sums over the times it was timed. */
typedef struct {
    lathe_bench_graph graph;
    int gone; /* layers left out */
    bool made;
    int timed;
    double medians, spreads;
} cut_step;

typedef struct {
    const lathe_bench_run *o;
    lathe_pool *pool;
    const lathe_step_table *table;
    lathe_bench_launches own;
    const lathe_step_launch *launches; /* rank 0's of `own` */
    int count;
    lathe_bench_plan *plan;
    lathe_bench_timer timer;
    lathe_bench_routes routes;
    lathe_bench_variant *v;
    bool *left_out;
    bool *wanted; /* rows to leave out */
    cut_step base, nothing;
    cut_step *kinds, *rows, *orders;
    double *samples; /* of the whole step */
    double *few;     /* of one cut step and set */
    char *message;
    size_t size;
} runner;

static lathe_status fail_memory(const runner *r) {
    snprintf(r->message, r->size, "no memory");
    return LATHE_NO_MEMORY;
}

static lathe_status write_inputs(const runner *r, int set) {
    lathe_status status = LATHE_OK;
    for (int rank = 0; status == LATHE_OK && rank < r->o->ranks->count; ++rank) {
        const lathe_step_inputs inputs = {.seed = r->o->seed + (uint64_t)set,
                                          .context = r->o->context,
                                          .rank = rank,
                                          .timing = true,
                                          .own_tokens = r->o->rank_slice};
        status = lathe_step_inputs_write(r->o->ranks->engines[rank], r->o->variant, &inputs,
                                         r->message, r->size);
    }
    return status;
}

/* New tokens and routes, and one step with them, which counts the experts and leaves every layer's
 * routes where the altered steps find them. */
static lathe_status prepare_set(runner *r, int set) {
    lathe_status status = write_inputs(r, set);
    if (status == LATHE_OK)
        status =
            lathe_bench_launches_draw(&r->own, r->o->seed + (uint64_t)set, r->message, r->size);
    if (status == LATHE_OK)
        status = lathe_bench_routes_count(&r->own, &r->routes, r->message, r->size);
    return status;
}

/* ---- steps with something left out ---- */

static lathe_status make(const runner *r, cut_step *c, const bool *left_out) {
    const lathe_status status = lathe_bench_graph_create(&r->timer, left_out, &c->graph);
    c->made = status == LATHE_OK;
    return status;
}

static lathe_status make_kinds(runner *r) {
    lathe_status status = LATHE_OK;
    for (int k = 0; status == LATHE_OK && k < r->table->kind_count; ++k) {
        r->kinds[k].gone = lathe_bench_plan_without_layers(r->plan, k, r->left_out);
        if (r->kinds[k].gone > 0)
            status = make(r, &r->kinds[k], r->left_out);
    }
    return status;
}

/* The rows that the options ask for; a publisher is told from its receivers by leaving out those
 * too. */
static void choose_rows(runner *r) {
    for (int i = 0; i < r->plan->row_count && !r->o->step_only; ++i)
        r->wanted[i] = !r->o->kernel || strstr(r->plan->rows[i].name, r->o->kernel);
    for (int i = 0; i < r->plan->count; ++i) {
        const int from = r->plan->published_by[i];
        if (from >= 0 && r->wanted[r->plan->row_of[from]])
            r->wanted[r->plan->row_of[i]] = true;
    }
}

/* Several real ranks push and receive together or not at all. */
static bool by_pairs(const runner *r) {
    return r->o->ranks->count > 1;
}

static bool is_timed(const runner *r, int row) {
    return r->wanted[row] && !(by_pairs(r) && r->plan->rows[row].receives);
}

static lathe_status make_rows(runner *r) {
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i < r->plan->row_count; ++i) {
        if (!is_timed(r, i))
            continue;
        lathe_bench_plan_without(r->plan, i, by_pairs(r), r->left_out);
        status = make(r, &r->rows[i], r->left_out);
    }
    /* The last one is the whole step. */
    for (int i = 0;
         status == LATHE_OK && !r->o->step_only && !r->o->kernel && i + 1 < r->plan->row_count;
         ++i) {
        lathe_bench_plan_up_to(r->plan, i, by_pairs(r), r->left_out);
        status = make(r, &r->orders[i], r->left_out);
    }
    return status;
}

static lathe_status make_nothing(runner *r) {
    for (int i = 0; i < r->plan->count; ++i)
        r->left_out[i] = r->plan->row_of[i] >= 0;
    return make(r, &r->nothing, r->left_out);
}

static lathe_status make_all(runner *r) {
    lathe_status status = make(r, &r->base, NULL);
    if (status == LATHE_OK)
        status = make_kinds(r);
    if (status == LATHE_OK)
        status = make_rows(r);
    return status == LATHE_OK ? make_nothing(r) : status;
}

static lathe_status time_one(const runner *r, cut_step *c, int samples) {
    if (!c->made)
        return LATHE_OK;
    const lathe_status status = lathe_bench_time(&r->timer, &c->graph, samples, r->few);
    if (status != LATHE_OK)
        return status;
    const lathe_bench_stats s = lathe_bench_stats_of(r->few, samples);
    c->medians += s.median;
    c->spreads += s.p75 - s.p25;
    ++c->timed;
    return LATHE_OK;
}

/* The whole step stands between the others, too. */
static lathe_status time_parts(runner *r, int samples) {
    lathe_status status = time_one(r, &r->base, samples);
    for (int k = 0; status == LATHE_OK && k < r->table->kind_count; ++k)
        status = time_one(r, &r->kinds[k], samples);
    for (int i = 0; status == LATHE_OK && i < r->plan->row_count; ++i)
        status = time_one(r, &r->rows[i], samples);
    if (status == LATHE_OK)
        status = time_one(r, &r->base, samples);
    for (int i = 0; status == LATHE_OK && i < r->plan->row_count; ++i)
        status = time_one(r, &r->orders[i], samples);
    if (status == LATHE_OK)
        status = time_one(r, &r->nothing, samples);
    return status == LATHE_OK ? time_one(r, &r->base, samples) : status;
}

static lathe_status time_set(runner *r, int set) {
    const int begin = (int)((int64_t)r->o->replays * set / r->o->sets);
    const int end = (int)((int64_t)r->o->replays * (set + 1) / r->o->sets);
    lathe_status status = prepare_set(r, set);
    if (status == LATHE_OK)
        status = lathe_bench_time(&r->timer, &r->base.graph, end - begin, r->samples + begin);
    const int samples = (r->o->samples + r->o->sets - 1) / r->o->sets;
    for (int done = 0; status == LATHE_OK && done < samples; done += BLOCK)
        status = time_parts(r, samples - done < BLOCK ? samples - done : BLOCK);
    return status;
}

static lathe_status time_sets(runner *r) {
    lathe_status status = make_all(r);
    for (int set = 0; status == LATHE_OK && set < r->o->sets; ++set)
        status = time_set(r, set);
    if (status == LATHE_OK)
        r->v->step = lathe_bench_stats_of(r->samples, r->o->replays);
    r->v->replays = r->o->replays;
    r->v->sets = r->o->sets;
    return status;
}

static double median_of(const cut_step *c) {
    return c->timed ? c->medians / c->timed : 0;
}

static double spread_of(const cut_step *c) {
    return c->timed ? c->spreads / c->timed : 0;
}

/* ---- what it says ---- */

static double experts_of(const runner *r, int layer) {
    return layer >= 0 && r->routes.runs ? r->routes.of_layer[layer] / r->routes.runs : 0;
}

static double bytes_of(const runner *r, int i) {
    const lathe_bench_load load = {.requests = r->v->requests,
                                   .q = r->v->q,
                                   .context = r->o->context,
                                   .experts = experts_of(r, r->launches[i].layer),
                                   .table = r->table};
    return lathe_bench_bytes(&r->launches[i], &load);
}

static void describe_routes(runner *r) {
    lathe_bench_variant *v = r->v;
    for (int l = 0; l < r->table->layer_count; ++l) {
        const double n = experts_of(r, l);
        if (n == 0)
            continue;
        v->experts += n;
        if (v->expert_layers == 0 || n < v->experts_least)
            v->experts_least = n;
        if (n > v->experts_most)
            v->experts_most = n;
        ++v->expert_layers;
    }
    if (v->expert_layers > 0)
        v->experts /= v->expert_layers;
}

/* What the launches that receive from row `row` add by themselves, as far as they go with it. */
static double time_of_receivers(const runner *r, int row) {
    double time = 0;
    for (int i = 0; i < r->plan->count && !by_pairs(r); ++i) {
        const int from = r->plan->published_by[i];
        if (from >= 0 && r->plan->row_of[from] == row)
            time += (median_of(&r->base) - median_of(&r->rows[r->plan->row_of[i]])) /
                    r->plan->rows[r->plan->row_of[i]].launches;
    }
    return time;
}

static void describe_row(runner *r, int i) {
    const lathe_bench_row *row = &r->plan->rows[i];
    lathe_bench_kernel *k = &r->v->kernels[i];
    const bool last = i + 1 == r->plan->row_count;
    *k = (lathe_bench_kernel){.name = row->name,
                              .provider = row->kernel ? row->kernel->provider : "",
                              .tactic = row->tactic ? row->tactic->name : "",
                              .launches = row->launches,
                              .exchange = row->exchange,
                              .with_publisher = by_pairs(r) && row->receives,
                              .measured = r->rows[i].made};
    for (int l = 0; l < r->count; ++l)
        if (r->plan->row_of[l] == i)
            k->bytes += bytes_of(r, l) / row->launches;
    if (k->measured) {
        k->left_out = (median_of(&r->base) - median_of(&r->rows[i]) - time_of_receivers(r, i)) /
                      row->launches;
        k->spread = spread_of(&r->rows[i]) / row->launches;
    }
    if (r->orders[i].made || (last && i > 0 && r->orders[i - 1].made))
        k->in_order = (median_of(last ? &r->base : &r->orders[i]) -
                       median_of(i ? &r->orders[i - 1] : &r->nothing)) /
                      row->launches;
    r->v->left_out += k->left_out * row->launches;
    r->v->in_order += k->in_order * row->launches;
}

static double constant_of(const lathe_step_launch *l, const char *name, double otherwise) {
    const lathe_step_constant *c = lathe_step_constant_find(l->kernel, l->tactic, name);
    return c ? (double)c->integer : otherwise;
}

/* Distinct experts of this rank that a layer's routes touch in the mean where they are even. */
static double by_chance(const runner *r, const lathe_step_launch *l) {
    const double experts = constant_of(l, "kExperts", 0), chosen = constant_of(l, "kTopK", 0);
    const double held = constant_of(l, "kLocal", experts);
    if (experts == 0 || chosen == 0 || !lathe_bench_launches_routes(l))
        return 0;
    return held * (1 - pow(1 - chosen / experts, (double)(r->v->requests * r->v->q)));
}

static void describe_kind_routes(const runner *r, int kind, lathe_bench_kind *k) {
    for (int l = 0; l < r->table->layer_count; ++l)
        if (r->table->layer_kinds[l] == kind)
            k->experts += experts_of(r, l) / k->layers;
    for (int i = 0; i < r->count; ++i) {
        const lathe_step_launch *l = &r->launches[i];
        if (l->section == LATHE_SECTION_LAYER && l->kind == LATHE_OP_LAUNCH &&
            r->table->layer_kinds[l->layer] == kind && k->by_chance == 0)
            k->by_chance = by_chance(r, l);
    }
}

static void describe_kind(runner *r, int kind) {
    lathe_bench_kind *k = &r->v->kinds[kind];
    int first = -1;
    *k = (lathe_bench_kind){.name = r->table->kind_names[kind],
                            .nodes = lathe_bench_plan_nodes(r->plan, kind),
                            .measured = r->kinds[kind].made};
    for (int l = r->table->layer_count; l-- > 0;)
        if (r->table->layer_kinds[l] == kind) {
            first = l;
            ++k->layers;
        }
    describe_kind_routes(r, kind, k);
    if (k->measured)
        k->time = (median_of(&r->base) - median_of(&r->kinds[kind])) / r->kinds[kind].gone;
    for (int i = 0; i < r->count; ++i) {
        if (r->launches[i].section != LATHE_SECTION_LAYER || r->launches[i].layer != first)
            continue;
        k->bytes += bytes_of(r, i);
        if (r->plan->row_of[i] >= 0)
            k->in_kernels += r->v->kernels[r->plan->row_of[i]].left_out;
    }
}

/* Only of a whole table: the costs are medians over kernels. */
static lathe_status describe_costs(runner *r) {
    lathe_bench_variant *v = r->v;
    lathe_bench_sample *samples =
        lathe_pool_alloc(r->pool, (size_t)v->kernel_count, sizeof *samples);
    int count = 0;
    if (!samples)
        return fail_memory(r);
    for (int i = 0; i < v->kernel_count; ++i) {
        const lathe_bench_kernel *k = &v->kernels[i];
        if (!k->measured && !k->with_publisher)
            return LATHE_OK;
        if (k->measured)
            samples[count++] = (lathe_bench_sample){
                k->in_order, r->o->ceiling > 0 ? k->bytes * 1e6 / r->o->ceiling : 0, k->exchange};
    }
    v->costs = lathe_bench_costs_of(samples, count);
    return LATHE_OK;
}

static lathe_status describe(runner *r) {
    lathe_bench_variant *v = r->v;
    v->kernel_count = r->plan->row_count;
    v->kind_count = r->table->kind_count;
    v->kernels = lathe_pool_alloc(r->pool, (size_t)v->kernel_count, sizeof *v->kernels);
    v->kinds = lathe_pool_alloc(r->pool, (size_t)v->kind_count, sizeof *v->kinds);
    if (!v->kernels || !v->kinds)
        return fail_memory(r);
    describe_routes(r);
    for (int i = 0; i < r->count; ++i)
        v->bytes += bytes_of(r, i);
    for (int i = 0; i < v->kernel_count; ++i)
        describe_row(r, i);
    for (int k = 0; k < v->kind_count; ++k)
        describe_kind(r, k);
    return describe_costs(r);
}

static void free_cut(const runner *r, cut_step *c) {
    if (c->made)
        lathe_bench_graph_destroy(&r->timer, &c->graph);
}

static void clean_up(runner *r) {
    free_cut(r, &r->base);
    free_cut(r, &r->nothing);
    for (int k = 0; r->kinds && k < r->table->kind_count; ++k)
        free_cut(r, &r->kinds[k]);
    for (int i = 0; r->rows && r->plan && i < r->plan->row_count; ++i) {
        free_cut(r, &r->rows[i]);
        free_cut(r, &r->orders[i]);
    }
    lathe_bench_plan_destroy(r->plan);
    lathe_bench_launches_destroy(&r->own);
}

static bool set_up(runner *r) {
    const size_t n = (size_t)r->count + 1;
    r->plan = lathe_bench_plan_create(r->table, r->launches, r->count);
    r->left_out = lathe_pool_alloc(r->pool, n, sizeof *r->left_out);
    r->wanted = lathe_pool_alloc(r->pool, n, sizeof *r->wanted);
    r->rows = lathe_pool_alloc(r->pool, n, sizeof *r->rows);
    r->orders = r->rows ? lathe_pool_alloc(r->pool, n, sizeof *r->orders) : NULL;
    if (!r->orders)
        r->rows = NULL;
    r->kinds = lathe_pool_alloc(r->pool, (size_t)r->table->kind_count, sizeof *r->kinds);
    r->routes.of_layer = lathe_pool_alloc(r->pool, (size_t)r->table->layer_count, sizeof(double));
    r->samples = lathe_pool_alloc(r->pool, (size_t)r->o->replays + 1, sizeof *r->samples);
    r->few = lathe_pool_alloc(r->pool, (size_t)r->o->samples + 1, sizeof *r->few);
    r->timer.plan = r->plan;
    r->timer.launches = &r->own;
    return r->plan && r->left_out && r->wanted && r->rows && r->kinds && r->routes.of_layer &&
           r->samples && r->few;
}

static lathe_status run_all(runner *r) {
    lathe_status status = lathe_bench_launches_create(r->o->ranks, r->o->variant, r->pool, &r->own,
                                                      r->message, r->size);
    if (status != LATHE_OK)
        return status;
    r->launches = r->own.of_rank[0];
    r->count = r->own.count;
    if (!set_up(r))
        return fail_memory(r);
    choose_rows(r);
    status = time_sets(r);
    return status == LATHE_OK ? describe(r) : status;
}

lathe_status lathe_bench_run_variant(const lathe_bench_run *o, lathe_pool *pool,
                                     lathe_bench_variant *v, char *message, size_t size) {
    runner r = {.o = o,
                .pool = pool,
                .table = lathe_engine_table(o->ranks->engines[0]),
                .v = v,
                .timer = {.ranks = o->ranks, .message = message, .size = size},
                .message = message,
                .size = size};
    const lathe_step_variant *variant = &r.table->variants[o->variant];
    *v = (lathe_bench_variant){.name = variant->name,
                               .requests = variant->requests,
                               .q = variant->q,
                               .context = o->context};
    const lathe_status status = run_all(&r);
    clean_up(&r);
    return status;
}
