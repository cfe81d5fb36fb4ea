/* SPDX-License-Identifier: Apache-2.0
 * lathe_plan: the smallest variant of equal q, and a reason for each refusal; lathe_run takes only
 * what plan gave. */
#include "driver.h"
#include "fakes.h"

static toy t;
static lathe_engine *engine;

static lathe_engine *make_engine(void) {
    char message[1024];
    lathe_engine *e;
    const lathe_options o = fake_options(&t);
    cr_assert_eq(lathe_create(&o, &e, message, sizeof message), LATHE_OK, "%s", message);
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_OK, "%s", lathe_message(e));
    return e;
}

static void set_up(void) {
    toy_create(&t);
    engine = make_engine();
}

static void tear_down(void) {
    lathe_destroy(engine);
    toy_remove(&t);
}

TestSuite(plan, .init = set_up, .fini = tear_down, .timeout = 60);

/* The toy declares 1x1, 1x4 and 4x1, 64 tokens, pages of 16. */
Test(plan, picks_the_smallest_variant_of_equal_q) {
    static const struct {
        int64_t requests, q;
        int variant;
        int64_t rows;
    } cases[] = {{1, 1, 0, 1}, {1, 4, 1, 4}, {2, 1, 2, 4}, {3, 1, 2, 4}, {4, 1, 2, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        const lathe_batch b = {sizeof b, cases[i].requests, cases[i].q, 10, 1, 16};
        lathe_step_plan plan;
        cr_assert_eq(lathe_plan(engine, &b, &plan), LATHE_OK, "%s", lathe_message(engine));
        cr_expect_eq(plan.variant, cases[i].variant);
        cr_expect_eq(plan.rows, cases[i].rows);
        cr_expect_eq(plan.q, cases[i].q);
        cr_expect_eq(lathe_run(engine, &plan), LATHE_OK);
    }
}

Test(plan, refuses_with_a_reason) {
    static const struct {
        lathe_batch batch;
        lathe_status status;
        const char *reason;
    } cases[] = {
        {{0, 1, 1, 10, 1, 16}, LATHE_INVALID, "a batch of 0 bytes"},
        {{sizeof(lathe_batch), 0, 1, 10, 1, 16}, LATHE_INVALID, "found 0 requests"},
        {{sizeof(lathe_batch), 5, 1, 10, 1, 16},
         LATHE_UNSUPPORTED,
         "rows: found 5 requests of q 1, allowed: at most 4; declared (requests x q): 1x1, 1x4, "
         "4x1"},
        {{sizeof(lathe_batch), 1, 2, 10, 1, 16},
         LATHE_UNSUPPORTED,
         "q: found 2, no variant has it; declared (requests x q): 1x1, 1x4, 4x1"},
        {{sizeof(lathe_batch), 1, 1, 65, 5, 16}, LATHE_UNSUPPORTED, "length: found 65 tokens"},
        {{sizeof(lathe_batch), 1, 4, 3, 1, 16}, LATHE_UNSUPPORTED, "length: found 3 tokens"},
        {{sizeof(lathe_batch), 1, 1, 33, 2, 16},
         LATHE_UNSUPPORTED,
         "table width: found 2 pages for a longest request of 33 tokens, allowed: 3 to 4"},
        {{sizeof(lathe_batch), 1, 1, 33, 5, 16}, LATHE_UNSUPPORTED, "table width: found 5 pages"},
        {{sizeof(lathe_batch), 1, 1, 10, 1, 32},
         LATHE_UNSUPPORTED,
         "KV layout: found pages of 32 tokens, allowed: 16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        lathe_step_plan plan = {.variant = 7};
        cr_expect_eq(lathe_plan(engine, &cases[i].batch, &plan), cases[i].status);
        cr_expect(strstr(lathe_message(engine), cases[i].reason), "wanted %s, got %s",
                  cases[i].reason, lathe_message(engine));
        cr_expect_eq(plan.variant, -1);
        cr_expect_eq(lathe_run(engine, &plan), LATHE_INVALID, "a refused plan runs");
    }
}

Test(plan, a_null_argument_has_a_message_of_its_own) {
    const lathe_batch b = {sizeof b, 1, 1, 10, 1, 16};
    lathe_step_plan plan;
    lathe_array array = {.size = sizeof array};
    cr_expect_eq(lathe_run(engine, &(lathe_step_plan){.variant = 9}), LATHE_INVALID);
    cr_expect_eq(lathe_plan(engine, NULL, &plan), LATHE_INVALID);
    cr_expect_str_eq(lathe_message(engine), "lathe_plan: found NULL, allowed: every argument");
    cr_expect_eq(lathe_plan(engine, &b, NULL), LATHE_INVALID);
    cr_expect_eq(lathe_run(engine, NULL), LATHE_INVALID);
    cr_expect_str_eq(lathe_message(engine), "lathe_run: found NULL, allowed: every argument");
    cr_expect_eq(lathe_find(engine, NULL, 0, &array), LATHE_INVALID);
    cr_expect_str_eq(lathe_message(engine), "lathe_find: found NULL, allowed: every argument");
    cr_expect_eq(lathe_read(engine, "x", 0, 0, NULL, 4), LATHE_INVALID);
    cr_expect_str_eq(lathe_message(engine), "lathe_read: found NULL, allowed: every argument");
    cr_expect_eq(lathe_plan(NULL, &b, &plan), LATHE_INVALID);
    cr_expect_not_null(lathe_unsupported(NULL));
    cr_expect_str_eq(lathe_message(NULL), "");
}

Test(plan, run_refuses_what_plan_did_not_give) {
    const lathe_batch b = {sizeof b, 1, 1, 10, 1, 16};
    lathe_step_plan plan, changed;
    cr_assert_eq(lathe_plan(engine, &b, &plan), LATHE_OK);
    changed = plan;
    changed.variant = 1;
    cr_assert_eq(lathe_run(engine, &changed), LATHE_INVALID);
    cr_assert(strstr(lathe_message(engine), "none that lathe_plan gave"), "%s",
              lathe_message(engine));
    changed = (lathe_step_plan){0};
    cr_assert_eq(lathe_run(engine, &changed), LATHE_INVALID);
    lathe_engine *other = make_engine();
    cr_assert_eq(lathe_run(other, &plan), LATHE_INVALID, "a plan of another engine");
    cr_assert_eq(lathe_run(engine, &plan), LATHE_OK, "a plan stays good");
    lathe_destroy(other);
}

Test(plan, reads_host_state_only) {
    fake_cuda *gpu = fake_cuda_open();
    const int calls = gpu->calls;
    const lathe_batch b = {sizeof b, 1, 1, 10, 1, 16};
    lathe_step_plan plan;
    for (int i = 0; i < 1000; ++i)
        cr_assert_eq(lathe_plan(engine, &b, &plan), LATHE_OK);
    cr_assert_eq(gpu->calls, calls);
}

/* The step becomes part of a graph that the caller captures on a stream of its own. */
Test(plan, a_caller_captures_its_own_stream) {
    cu_result (*create)(cu_stream *, unsigned int);
    cu_result (*destroy)(cu_stream);
    cu_result (*begin)(cu_stream, int);
    cu_result (*end)(cu_stream, cu_graph *);
    cu_result (*nodes)(cu_graph, cu_graph_node *, size_t *);
    cu_result (*drop)(cu_graph);
    const struct {
        void *to;
        const char *symbol;
    } calls[] = {{&create, "cuStreamCreate"},         {&destroy, "cuStreamDestroy_v2"},
                 {&begin, "cuStreamBeginCapture_v2"}, {&end, "cuStreamEndCapture"},
                 {&nodes, "cuGraphGetNodes"},         {&drop, "cuGraphDestroy"}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
        void *address = fake_open("libcuda.so.1", calls[i].symbol);
        memcpy(calls[i].to, &address, sizeof address);
    }
    fake_cuda *fake = fake_cuda_open();
    char text[1024];
    lathe_engine *e;
    cu_stream stream;
    cu_graph graph;
    size_t count = 0;
    int wanted;
    const int before = fake->live;
    cr_assert_eq(create(&stream, CU_STREAM_OWN_ORDER), CU_OK);
    lathe_options o = fake_options(&t);
    o.stream = stream;
    cr_assert_eq(lathe_create(&o, &e, text, sizeof text), LATHE_OK, "%s", text);
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_OK, "%s", lathe_message(e));
    const lathe_batch b = {sizeof b, 1, 1, 10, 1, 16};
    lathe_step_plan plan;
    cr_assert_eq(lathe_plan(e, &b, &plan), LATHE_OK);
    cr_assert_eq(begin(stream, CU_CAPTURE_THREAD), CU_OK);
    cr_assert_eq(lathe_enqueue(e, &plan), LATHE_OK, "%s", lathe_message(e));
    cr_assert_eq(end(stream, &graph), CU_OK);
    cr_assert_eq(nodes(graph, NULL, &count), CU_OK);
    lathe_engine_launches(e, plan.variant, &wanted);
    cr_assert(count > 0 && count <= (size_t)wanted, "%zu nodes of %d operations", count, wanted);
    drop(graph);
    lathe_destroy(e);
    cr_assert_eq(destroy(stream), CU_OK, "the engine destroyed it");
    cr_assert_eq(fake->live, before);
}
