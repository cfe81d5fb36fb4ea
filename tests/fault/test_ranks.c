/* SPDX-License-Identifier: Apache-2.0
 * Ranks that fail on purpose, 2,000 times: every other rank gets a status and a message that names
 * rank, layer and operation, no wait is endless, and after a rejoin steps have the bits of before.
 *
 * The bound on waits is short: virtual time passes only where no rank can get on, so a slow machine
 * ends no wait. */
#include "generated.h"
#include "inject.h"
#include "step_inputs.h"
#include "synthetic.h"
#include "weights.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUND_NS 200000u

typedef struct {
    lathe_generated generated;
    lathe_ranks ranks;
    lathe_step_plan plans[LATHE_GROUP_MAX];
    void *expected; /* the last output of rank 0 after a step without fault */
    lathe_engine_memory output;
    char message[4096];
} fixture;

static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t *state, uint64_t n) {
    return draw(state) % n;
}

static void open_ranks(fixture *f, const char *layout, const char *tp) {
    char path[512];
    snprintf(path, sizeof path, LATHE_SOURCE_DIR "/layouts/%s.lua", layout);
    lathe_options o = LATHE_OPTIONS_INIT;
    lathe_synthetic synthetic;
    lathe_weights weights[LATHE_GROUP_MAX];
    lathe_weight_source sources[LATHE_GROUP_MAX];
    memset(f, 0, sizeof *f);
    cr_assert_eq(lathe_generated_open("gen", path, tp, "host", NULL, &f->generated), 0);
    o.directory = f->generated.directory;
    o.timeout_ns = BOUND_NS;
    cr_assert_eq(lathe_ranks_create(&o, &f->ranks, f->message, sizeof f->message), LATHE_OK, "%s",
                 f->message);
    cr_assert(lathe_synthetic_parse("calm:1", &synthetic));
    for (int r = 0; r < f->ranks.count; ++r) {
        weights[r] = (lathe_weights){lathe_engine_table(f->ranks.engines[r]), r,
                                     lathe_synthetic_reader(&synthetic)};
        sources[r] = lathe_weights_source(&weights[r]);
    }
    cr_assert_eq(lathe_ranks_build(&f->ranks, sources, f->message, sizeof f->message), LATHE_OK,
                 "%s", f->message);
}

static void close_ranks(fixture *f) {
    free(f->expected);
    lathe_ranks_destroy(&f->ranks);
    lathe_generated_close(&f->generated);
}

static lathe_status step(fixture *f, const lathe_inject *inject, lathe_status *statuses) {
    int rank;
    lathe_inject_cost cost = {0};
    return lathe_inject_run(inject, 0, f->ranks.engines, f->plans, f->ranks.count, statuses, &rank,
                            &cost);
}

static void read_output(fixture *f, void *to) {
    cr_assert_eq(lathe_engine_read(f->ranks.engines[0], "x", -1, 0, to, f->output.bytes), LATHE_OK);
}

static void step_is_right(fixture *f, const char *when) {
    lathe_status statuses[LATHE_GROUP_MAX];
    void *found = malloc(f->output.bytes);
    const lathe_status status = step(f, NULL, statuses);
    for (int r = 0; r < f->ranks.count; ++r)
        cr_assert_eq(statuses[r], LATHE_OK, "%s: %s", when, lathe_message(f->ranks.engines[r]));
    cr_assert_eq(status, LATHE_OK);
    read_output(f, found);
    cr_assert_eq(memcmp(found, f->expected, f->output.bytes), 0, "%s: other bits", when);
    free(found);
}

/* Inputs and plans of a variant, and what its step gives. */
static void begin(fixture *f, int variant) {
    const lathe_step_table *t = lathe_engine_table(f->ranks.engines[0]);
    const lathe_step_variant *v = &t->variants[variant];
    const lathe_step_inputs inputs = {.seed = 1};
    const lathe_batch batch = {.size = sizeof batch,
                               .requests = v->requests,
                               .q = v->q,
                               .longest = t->max_context,
                               .table_width = t->group_count ? t->groups[0].table_width : 0,
                               .page_tokens = t->page_tokens};
    lathe_status statuses[LATHE_GROUP_MAX];
    for (int r = 0; r < f->ranks.count; ++r) {
        cr_assert_eq(lathe_step_inputs_write(f->ranks.engines[r], variant, &inputs, f->message,
                                             sizeof f->message),
                     LATHE_OK, "%s", f->message);
        cr_assert_eq(lathe_plan(f->ranks.engines[r], &batch, &f->plans[r]), LATHE_OK);
    }
    cr_assert_eq(step(f, NULL, statuses), LATHE_OK);
    cr_assert_eq(lathe_engine_find(f->ranks.engines[0], "x", -1, &f->output), LATHE_OK);
    f->expected = realloc(f->expected, f->output.bytes);
    read_output(f, f->expected);
}

static lathe_inject draw_fault(const fixture *f, uint64_t *state) {
    lathe_inject fault = {(lathe_inject_kind)(1 + below(state, 4)),
                          (int)below(state, (uint64_t)f->ranks.count), 0, 0};
    if (fault.kind == LATHE_INJECT_LATE) /* half well within the bound, half well beyond */
        fault.delay_ns = below(state, 2) ? 2 * BOUND_NS + below(state, BOUND_NS)
                                         : 1 + below(state, BOUND_NS / 2);
    return fault;
}

static bool ends_the_step(const lathe_inject *fault) {
    return fault->kind == LATHE_INJECT_LOST || fault->kind == LATHE_INJECT_SKEW ||
           (fault->kind == LATHE_INJECT_LATE && fault->delay_ns > BOUND_NS);
}

/* "layer N", the kernel, the rank that was missing; of a skewed rank the two that differ. */
static void names_the_fault(const char *message, const lathe_inject *fault, const char *what) {
    char missing[64], first[64], second[64];
    snprintf(missing, sizeof missing, " %d did not come in time", fault->rank);
    snprintf(first, sizeof first, "ranks %d and", fault->rank);
    snprintf(second, sizeof second, "and %d are not at the same", fault->rank);
    cr_assert(strstr(message, "layer ") && strstr(message, ", sum_"), "%s: %s", what, message);
    if (fault->kind == LATHE_INJECT_SKEW)
        cr_assert(strstr(message, first) || strstr(message, second), "%s: %s", what, message);
    else
        cr_assert(strstr(message, missing), "%s: %s", what, message);
}

static void check_loss(fixture *f, const lathe_inject *fault, const lathe_status *statuses,
                       const char *what) {
    const lathe_status wanted = fault->kind == LATHE_INJECT_SKEW ? LATHE_DISAGREE : LATHE_PEER_LOST;
    for (int r = 0; r < f->ranks.count; ++r) {
        if (fault->kind == LATHE_INJECT_LOST && r == fault->rank)
            continue;
        cr_assert_eq(statuses[r], wanted, "%s, rank %d: %s: %s", what, r,
                     lathe_status_name(statuses[r]), lathe_message(f->ranks.engines[r]));
        names_the_fault(lathe_message(f->ranks.engines[r]), fault, what);
        cr_assert_eq(lathe_run(f->ranks.engines[r], &f->plans[r]), LATHE_INVALID);
        cr_assert(strstr(lathe_message(f->ranks.engines[r]), "rejoin"));
    }
    cr_assert_eq(lathe_ranks_rejoin(&f->ranks, f->message, sizeof f->message), LATHE_OK, "%s: %s",
                 what, f->message);
}

static void check_no_loss(fixture *f, const lathe_inject *fault, const lathe_status *statuses,
                          const char *what) {
    for (int r = 0; r < f->ranks.count; ++r) {
        cr_assert_eq(statuses[r], LATHE_OK, "%s: %s", what, lathe_message(f->ranks.engines[r]));
        if (fault->kind == LATHE_INJECT_NAN)
            cr_assert_gt(lathe_inject_count_nan(f->ranks.engines[r]), 0, "%s, rank %d", what, r);
    }
}

static void inject_many(fixture *f, int variant, int count) {
    begin(f, variant);
    for (int i = 0; i < count; ++i) {
        uint64_t state = (uint64_t)(variant * 100000 + i);
        char what[128];
        lathe_status statuses[LATHE_GROUP_MAX];
        const lathe_inject fault = draw_fault(f, &state);
        snprintf(what, sizeof what, "variant %d, injection %d: kind %d, rank %d, %llu ns", variant,
                 i, (int)fault.kind, fault.rank, (unsigned long long)fault.delay_ns);
        if (below(&state, 20) == 0)
            step_is_right(f, what);
        const lathe_status status = step(f, &fault, statuses);
        cr_assert_eq(status != LATHE_OK, ends_the_step(&fault), "%s: %s", what,
                     lathe_status_name(status));
        if (ends_the_step(&fault))
            check_loss(f, &fault, statuses, what);
        else
            check_no_loss(f, &fault, statuses, what);
    }
    step_is_right(f, "at the end");
}

/* The numbers of a layout's two batch variants. */
static void survive(const char *layout, const char *tp, int small, int large) {
    fixture f;
    open_ranks(&f, layout, tp);
    inject_many(&f, 0, small);
    inject_many(&f, 1, large);
    close_ranks(&f);
}

/* Most in a step of little but exchanges, by either way; the rest with attention before them. */
Test(ranks, two_ranks_survive_1650_faults) {
    survive("cases/exchanges", "2", 1000, 300);
    survive("attention_block", "2", 330, 20);
}

Test(ranks, four_ranks_survive_350_faults) {
    survive("cases/exchanges", "4", 200, 90);
    survive("attention_block", "4", 50, 10);
}
