/* SPDX-License-Identifier: Apache-2.0
 * The toy step on the host device, end to end: compiled by the system's compiler, prepared, run op
 * by op and as a graph. The expected values follow from kernels.cuh by hand; all arithmetic is
 * exact. */
#include "toy.h"

#include "lathe.h"
#include "step.h"

static toy t;

static void set_up(void) {
    toy_create(&t);
}
static void tear_down(void) {
    toy_remove(&t);
}

TestSuite(step, .init = set_up, .fini = tear_down, .timeout = 120);

static float weight(int layer, int column) {
    return (float)layer + 0.5f * (float)column;
}

static lathe_status fill(void *context, int index, int layer, void *host, size_t bytes,
                         char *message, size_t size) {
    (void)context, (void)message, (void)size;
    if (index != 0 || bytes != 8 * sizeof(float))
        return LATHE_INVALID;
    for (int c = 0; c < 8; ++c)
        ((float *)host)[c] = weight(layer, c);
    return LATHE_OK;
}

static const lathe_weight_source weights = {.size = sizeof(lathe_weight_source), .fill = fill};

static lathe_engine *build(uint64_t seed) {
    char message[1024];
    lathe_engine *e;
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = t.directory;
    o.cache = t.cache;
    o.seed = seed;
    cr_assert_eq(lathe_create(&o, &e, message, sizeof message), LATHE_OK, "%s", message);
    cr_assert_null(lathe_unsupported(e), "%s", lathe_unsupported(e));
    cr_assert_eq(lathe_build(e, &weights), LATHE_OK, "%s", lathe_message(e));
    return e;
}

static float expected(int token, int column) {
    float s = token < 0 ? 0.0f : (float)(token + column);
    for (int layer = 0; layer < 2; ++layer)
        s = 0.5f * (s * 2.0f * weight(layer, column) + s + weight(layer, column));
    return s + weight(1, column);
}

static void expect_output(lathe_engine *e, const int32_t *tokens, int rows) {
    float out[4 * 8];
    cr_assert_eq(lathe_engine_read(e, "out", 0, 0, out, (size_t)rows * 32), LATHE_OK);
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < 8; ++c)
            cr_expect_eq(out[r * 8 + c], expected(tokens[r], c), "row %d column %d", r, c);
}

static const int32_t tokens[4] = {3, 0, 7, 11};

static lathe_step_plan plan_rows(lathe_engine *e, int64_t requests, int64_t q) {
    const lathe_batch b = {sizeof b, requests, q, 10, 1, 16};
    lathe_step_plan plan;
    cr_assert_eq(lathe_plan(e, &b, &plan), LATHE_OK, "%s", lathe_message(e));
    return plan;
}

static void run(lathe_engine *e, int64_t requests, int64_t q) {
    const lathe_step_plan plan = plan_rows(e, requests, q);
    cr_assert_eq(lathe_run(e, &plan), LATHE_OK, "%s", lathe_message(e));
    cr_assert_eq(lathe_finish(e), LATHE_OK, "%s", lathe_message(e));
}

Test(step, each_variant_gives_the_values_of_the_mathematics) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
        lathe_engine *e = build(seed);
        cr_assert_eq(lathe_engine_write(e, "tokens", 0, 0, tokens, sizeof tokens), LATHE_OK);
        run(e, 1, 1);
        expect_output(e, tokens, 1);
        run(e, 1, 4);
        expect_output(e, tokens, 4);
        run(e, 3, 1);
        expect_output(e, tokens, 4);
        lathe_destroy(e);
    }
}

Test(step, op_by_op_gives_the_same_bits) {
    lathe_engine *e = build(1);
    int count;
    cr_assert_eq(lathe_engine_write(e, "tokens", 0, 0, tokens, sizeof tokens), LATHE_OK);
    const lathe_step_launch *l = lathe_engine_launches(e, 1, &count);
    for (int i = 0; i < count; ++i) {
        cr_assert_eq(lathe_engine_launch(e, &l[i]), LATHE_OK, "%s", lathe_message(e));
        cr_assert_eq(lathe_engine_synchronize(e), LATHE_OK, "%s", lathe_message(e));
    }
    expect_output(e, tokens, 4);
    const float nothing[32] = {0};
    cr_assert_eq(lathe_engine_write(e, "out", 0, 0, nothing, sizeof nothing), LATHE_OK);
    cr_assert_eq(lathe_engine_launch_all(e, 1), LATHE_OK, "%s", lathe_message(e));
    cr_assert_eq(lathe_engine_synchronize(e), LATHE_OK, "%s", lathe_message(e));
    expect_output(e, tokens, 4);
    lathe_destroy(e);
}

Test(step, prepare_runs_at_build) {
    lathe_engine *e = build(0);
    float p[8];
    for (int layer = 0; layer < 2; ++layer) {
        cr_assert_eq(lathe_engine_read(e, "p", layer, 0, p, sizeof p), LATHE_OK);
        for (int c = 0; c < 8; ++c)
            cr_expect_eq(p[c], 2.0f * weight(layer, c));
    }
    lathe_destroy(e);
}

Test(step, graphs_equal_step_json) {
    lathe_engine *e = build(0);
    for (int v = 0; v < 3; ++v)
        cr_expect_eq(lathe_engine_compare_graph(e, v), LATHE_OK, "%s", lathe_message(e));
    lathe_destroy(e);
}

Test(step, a_step_neither_allocates_nor_waits) {
    lathe_engine *e = build(0);
    lathe_device *d = lathe_engine_device(e);
    cr_assert_eq(lathe_engine_write(e, "tokens", 0, 0, tokens, sizeof tokens), LATHE_OK);
    const uint64_t allocations = d->ops->allocations(d), waits = d->ops->synchronizations(d);
    for (int i = 0; i < 10; ++i) {
        const lathe_step_plan plan = plan_rows(e, 1, 4);
        cr_assert_eq(lathe_run(e, &plan), LATHE_OK, "%s", lathe_message(e));
    }
    cr_assert_eq(d->ops->allocations(d), allocations);
    cr_assert_eq(d->ops->synchronizations(d), waits);
    cr_assert_eq(lathe_finish(e), LATHE_OK, "%s", lathe_message(e));
    expect_output(e, tokens, 4);
    lathe_destroy(e);
}

Test(step, a_bad_token_zeroes_its_row_and_is_reported_once) {
    static const int32_t bad[4] = {3, -5, 7, 11};
    lathe_engine *e = build(2);
    cr_assert_eq(lathe_engine_write(e, "tokens", 0, 0, bad, sizeof bad), LATHE_OK);
    const lathe_step_plan plan = plan_rows(e, 1, 4);
    cr_assert_eq(lathe_run(e, &plan), LATHE_OK);
    cr_assert_eq(lathe_finish(e), LATHE_INVALID);
    cr_assert(strstr(lathe_message(e), "token id"), "%s", lathe_message(e));
    expect_output(e, bad, 4);
    cr_assert_eq(lathe_finish(e), LATHE_OK);
    lathe_destroy(e);
}

Test(step, a_template_that_does_not_compile_is_named) {
    char message[1024];
    lathe_engine *e;
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = t.directory;
    o.cache = t.cache;
    toy_shell("sed -i 's/0.5f [*] s/0.5f * missing/' %s/templates/toy/%s", t.directory,
              "kernels.cuh");
    cr_assert_eq(lathe_create(&o, &e, message, sizeof message), LATHE_OK, "%s", message);
    cr_assert_eq(lathe_build(e, &weights), LATHE_COMPILE);
    cr_assert(strstr(lathe_message(e), "toy/kernels.cuh:"), "%s", lathe_message(e));
    cr_assert(strstr(lathe_message(e), "missing"), "%s", lathe_message(e));
    lathe_destroy(e);
}
