/* SPDX-License-Identifier: Apache-2.0
 * What `lathe bench` plans, counts and writes, without a device. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_launches.h"
#include "bench_model.h"
#include "bench_options.h"
#include "bench_record.h"
#include "bench_routes.h"
#include "bench_stats.h"
#include "bench_weights.h"
#include "commands.h"
#include "device.h"
#include "step_cut.h"
#include "step_table.h"

#define DIRECTORY LATHE_SOURCE_DIR "/generated/muse_spark-tp8-sm_90a"

/* ---- quantiles ---- */

Test(bench, quantiles_are_samples_of_their_rank) {
    double hundred[100], two[] = {3, 1}, one[] = {7};
    for (int i = 0; i < 100; ++i)
        hundred[i] = 100 - i;
    lathe_bench_stats s = lathe_bench_stats_of(hundred, 100);
    cr_expect(s.median == 50.5 && s.p10 == 10 && s.p25 == 25 && s.p75 == 75 && s.p90 == 90 &&
              s.p99 == 99 && s.count == 100);
    s = lathe_bench_stats_of(two, 2);
    cr_expect(s.median == 2 && s.p10 == 1 && s.p99 == 3);
    s = lathe_bench_stats_of(one, 1);
    cr_expect(s.median == 7 && s.p10 == 7 && s.p99 == 7);
    cr_expect_eq(lathe_bench_stats_of(NULL, 0).count, 0);
}

/* ---- options ---- */

static int parse(lathe_bench_options *o, const char *const *words) {
    char *argv[32] = {(char *)(uintptr_t) "bench"};
    int argc = 1;
    for (; words[argc - 1]; ++argc)
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    return lathe_bench_options_parse(argc, argv, o);
}

#define PARSE(o, ...) parse(o, (const char *const[]){__VA_ARGS__, NULL})

Test(bench, options_are_read) {
    lathe_bench_options o;
    cr_assert_eq(
        PARSE(&o, "d", "--rank-slice", "--variant", "1x8,4x8", "--layers", "0", "--kernel", "gemm"),
        0);
    cr_expect(o.rank_slice && o.layers == 0 && o.variant_count == 2 && o.replays == 1000);
    cr_expect_str_eq(o.variants[1], "4x8");
    cr_expect_str_eq(o.kernel, "gemm");
}

Test(bench, what_makes_no_sense_is_refused, .init = cr_redirect_stderr) {
    lathe_bench_options o;
    cr_expect_eq(PARSE(&o, "--rank-slice"), LATHE_EXIT_USAGE + 1);
    cr_expect_eq(PARSE(&o, "d", "--device", "host"), LATHE_EXIT_USAGE + 1);
    cr_expect_eq(PARSE(&o, "d", "--replays", "2"), LATHE_EXIT_USAGE + 1);
    cr_expect_eq(PARSE(&o, "d", "--step", "--kernel", "x"), LATHE_EXIT_USAGE + 1);
    cr_expect_eq(PARSE(&o, "d", "--variant", ","), LATHE_EXIT_USAGE + 1);
    fflush(stderr);
    cr_assert_stderr_neq_str("");
}

/* ---- fewer layers ---- */

static lathe_step_table *cut_table(const lathe_step_cut *cut) {
    char message[512];
    json_t *step = json_load_file(DIRECTORY "/step.json", 0, NULL);
    cr_assert_not_null(step);
    cr_assert_eq(lathe_step_cut_json(step, cut, message, sizeof message), LATHE_OK, "%s", message);
    char *text = json_dumps(step, 0);
    lathe_step_table *t;
    cr_assert_eq(lathe_step_table_parse(text, strlen(text), "cut", &t, message, sizeof message),
                 LATHE_OK, "%s", message);
    free(text);
    json_decref(step);
    return t;
}

static int64_t bytes_of(const lathe_step_table *t) {
    int64_t bytes = 0;
    for (int i = 0; i < t->buffer_count; ++i)
        bytes +=
            t->buffers[i].fixed_bytes * (t->buffers[i].per_layer ? t->buffers[i].layer_count : 1);
    return bytes;
}

Test(step_cut, a_step_of_fewer_layers_is_whole) {
    const char *const variants[] = {"1x8"};
    const lathe_step_cut cut = {.layers = 4, .variants = variants, .variant_count = 1};
    const lathe_step_cut nothing = {0};
    lathe_step_table *all = cut_table(&nothing), *few = cut_table(&cut);
    cr_expect_eq(all->layer_count, 62);
    cr_expect_eq(all->variant_count, 3);
    cr_expect_eq(few->layer_count, 4);
    cr_expect_eq(few->kind_count, 3); /* the first, one with full attention, one sliding */
    cr_expect_eq(few->variant_count, 1);
    cr_expect_lt(few->kernel_count, all->kernel_count / 2);
    cr_expect_lt(bytes_of(few), bytes_of(all) / 4);
    for (int i = 0; i < few->weight_count; ++i)
        cr_expect_geq(few->weights[i].buffer, 0);
    lathe_step_table_destroy(all);
    lathe_step_table_destroy(few);
}

Test(step_cut, a_variant_that_is_none_is_refused) {
    const char *const variants[] = {"1x8", "9x9"};
    const lathe_step_cut cut = {.variants = variants, .variant_count = 2};
    char message[512];
    json_t *step = json_load_file(DIRECTORY "/step.json", 0, NULL);
    cr_assert_eq(lathe_step_cut_json(step, &cut, message, sizeof message), LATHE_INVALID);
    cr_expect_str_eq(message, "no variant '9x9'; declared are: 1x1 1x8 4x8");
    json_decref(step);
}

/* ---- weights ---- */

static void read_tensor(lathe_weight_reader reader, const lathe_step_source *s, const char *name,
                        int64_t offset, int64_t count, uint16_t *to) {
    char message[256];
    cr_assert_eq(reader.read(reader.context, s, name, offset, count, to, message, sizeof message),
                 LATHE_OK, "%s", message);
}

Test(bench, large_weights_are_the_same_in_any_order_and_apart_by_row_and_tensor) {
    enum { WIDTH = 1024, ROWS = 4096 };
    lathe_bench_weights *w = lathe_bench_weights_create(3);
    const lathe_weight_reader reader = lathe_bench_weights_reader(w);
    const lathe_step_source s = {.tensor = "t{l}",
                                 .dtype = LATHE_SCALAR_BF16,
                                 .shape = {.count = 2, .dim = {ROWS, WIDTH}},
                                 .shard_axis = -1};
    static uint16_t whole[2 * LATHE_BENCH_STRETCH], part[WIDTH], other[WIDTH];
    read_tensor(reader, &s, "t0", 0, ROWS * WIDTH, whole);
    for (int64_t row = 0; row < ROWS; row += 1000) {
        read_tensor(reader, &s, "t0", row * WIDTH, WIDTH, part);
        cr_expect_arr_eq(part, whole + row * WIDTH, sizeof part);
    }
    cr_expect_arr_neq(whole, whole + LATHE_BENCH_STRETCH, sizeof part);
    read_tensor(reader, &s, "t1", 0, WIDTH, other);
    cr_expect_arr_neq(whole, other, sizeof other);
    lathe_bench_weights_destroy(w);
}

/* ---- routes ---- */

Test(bench, distinct_experts_are_counted) {
    const int32_t tiles[] = {4, 4, 7, 0, 7, 9};
    cr_expect_eq(lathe_bench_routes_distinct(tiles, 6), 4);
    cr_expect_eq(lathe_bench_routes_distinct(tiles, 2), 1);
    cr_expect_eq(lathe_bench_routes_distinct(tiles, 0), 0);
}

Test(bench, drawn_experts_are_as_many_as_asked_and_distinct_as_by_chance) {
    enum { EXPERTS = 256, CHOSEN = 8, TOKENS = 8, DRAWS = 400 };
    uint64_t state = 1;
    double distinct = 0;
    for (int n = 0; n < DRAWS; ++n) {
        bool seen[EXPERTS] = {false};
        for (int t = 0; t < TOKENS; ++t) {
            float logits[EXPERTS];
            int chosen = 0;
            lathe_bench_draw_logits(&state, EXPERTS, CHOSEN, logits);
            for (int e = 0; e < EXPERTS; ++e) {
                chosen += logits[e] > 0;
                distinct += logits[e] > 0 && !seen[e];
                seen[e] |= logits[e] > 0;
            }
            cr_assert_eq(chosen, CHOSEN);
        }
    }
    /* 256 (1 - (1 - 1/32)^8) = 57.4; the mean of 400 draws is within 0.6 of it. */
    cr_expect(fabs(distinct / DRAWS - 57.4) < 0.6, "%f", distinct / DRAWS);
}

/* ---- the costs of a node and of an exchange ---- */

Test(bench, costs_are_medians_of_what_floors_leave) {
    const lathe_bench_sample samples[] = {{12, 10, false}, {3.5, 1, false}, {40, 10, false},
                                          {6, 1, true},    {7, 1, true},    {2, 0, false}};
    const lathe_bench_costs c = lathe_bench_costs_of(samples, 6);
    cr_expect(c.node == 2.25 && c.exchange == 3.25, "%f %f", c.node, c.exchange);
    cr_expect(lathe_bench_predict(&c, 10, false) == 12.25);
    cr_expect(lathe_bench_predict(&c, 1, true) == 6.5);
    cr_expect_eq(lathe_bench_costs_of(NULL, 0).node, 0);
    cr_expect_eq(lathe_bench_costs_of(samples + 3, 2).node, 0);
}

/* ---- records ---- */

static lathe_bench_kernel kernels[] = {
    {.name = "a",
     .provider = "f/a",
     .tactic = "",
     .launches = 2,
     .measured = true,
     .left_out = 1.5},
    {.name = "b", .provider = "f/b", .tactic = "", .launches = 1}};
static lathe_bench_kind kinds[] = {
    {.name = "body", .layers = 2, .nodes = 3, .measured = true, .time = 4, .bytes = 2e6}};
static lathe_bench_variant variant = {.name = "1x8",
                                      .requests = 1,
                                      .q = 8,
                                      .step = {.median = 10, .p10 = 9, .p90 = 11, .p99 = 12},
                                      .kernels = kernels,
                                      .kernel_count = 2,
                                      .kinds = kinds,
                                      .kind_count = 1};

static json_t *make_record(void) {
    lathe_bench_result r = {.layout = "toy",
                            .deployment = "",
                            .arch = "sm_90a",
                            .hash = "0",
                            .tp = 1,
                            .ceiling = 1e12,
                            .variants = &variant,
                            .variant_count = 1};
    json_t *record = lathe_bench_record_make(&r);
    cr_assert_not_null(record);
    return record;
}

Test(bench_record, what_is_written_is_read_and_found) {
    char path[] = "/tmp/lathe-test-XXXXXX", message[512];
    cr_assert_geq(mkstemp(path), 0);
    json_t *made = make_record(), *read;
    cr_assert_eq(lathe_bench_record_write(path, made, message, sizeof message), LATHE_OK, "%s",
                 message);
    cr_assert_eq(lathe_bench_record_read(path, &read, message, sizeof message), LATHE_OK, "%s",
                 message);
    cr_expect(json_equal(made, read));
    cr_expect(lathe_bench_record_find(read, "1x8", NULL, "step", "median_us") == 10);
    cr_expect(lathe_bench_record_find(read, "1x8", "kernels", "a", "left_out_us") == 1.5);
    cr_expect(lathe_bench_record_find(read, "1x8", "kinds", "body", "floor_us") == 2);
    cr_expect(isnan(lathe_bench_record_find(read, "1x8", "kernels", "b", "left_out_us")));
    cr_expect(isnan(lathe_bench_record_find(read, "1x1", NULL, "step", "median_us")));
    cr_expect(isnan(lathe_bench_record_find(NULL, "1x8", NULL, "step", "median_us")));
    json_decref(made);
    json_decref(read);
    unlink(path);
}

Test(bench_record, anything_else_is_refused) {
    char message[512];
    json_t *record;
    cr_expect_eq(lathe_bench_record_read(DIRECTORY "/step.json", &record, message, sizeof message),
                 LATHE_INVALID);
    cr_expect(strstr(message, "allowed: a record that lathe bench wrote"), "%s", message);
    cr_expect_eq(
        lathe_bench_record_read(LATHE_SOURCE_DIR "/LICENSE", &record, message, sizeof message),
        LATHE_INVALID);
    cr_expect_eq(lathe_bench_record_read("no/such/file", &record, message, sizeof message),
                 LATHE_IO);
    cr_expect_null(record);
}

/* ---- without a GPU ---- */

Test(bench, without_a_gpu_it_says_so, .init = cr_redirect_stderr) {
    char *argv[] = {(char *)(uintptr_t) "bench", (char *)(uintptr_t)DIRECTORY};
    if (lathe_device_cuda_count() > 0)
        cr_skip_test("there is one");
    cr_assert_eq(lathe_cmd_bench(2, argv), LATHE_EXIT_DEVICE);
}
