/* SPDX-License-Identifier: Apache-2.0
 * `lathe bench` on the fake driver, where every node of a graph takes a microsecond: so what each
 * kernel adds, the sums and the layers are known. */
#include "fakes.h"

#include <criterion/redirect.h>
#include <math.h>

#include "bench_launches.h"
#include "bench_record.h"
#include "bench_weights.h"
#include "commands.h"

static char root[64];

static void set_up(void) {
    strcpy(root, "/tmp/lathe-test-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    setenv("LATHE_NVRTC", FAKE_NVRTC, 1);
    cr_redirect_stdout();
}

static void tear_down(void) {
    cr_assert_eq(lathe_folder_remove(root), 0);
}

TestSuite(cmd_bench, .init = set_up, .fini = tear_down, .timeout = 120);

static int call(int (*command)(int, char **), const char *const *words) {
    char *argv[32];
    int argc = 0;
    for (; words[argc]; ++argc)
        argv[argc] = (char *)(uintptr_t)words[argc];
    return command(argc, argv);
}

static char directory[128], cache[128], record_path[128];

/* Generates `layout` and times it; the record. */
static json_t *bench(const char *layout, const char *deployment, const char *flag,
                     const char *variant, const char *layers) {
    char path[256], message[512];
    json_t *record;
    snprintf(path, sizeof path, "%s/layouts/%s.lua", LATHE_SOURCE_DIR, layout);
    snprintf(directory, sizeof directory, "%s/step", root);
    snprintf(cache, sizeof cache, "%s/cache", root);
    snprintf(record_path, sizeof record_path, "%s/record.json", root);
    cr_assert_eq(call(lathe_cmd_gen, (const char *const[]){"gen", path, "--tp", "2", "--arch",
                                                           "sm_90a", "--no-scan", "--deployment",
                                                           deployment, "--out", directory, NULL}),
                 LATHE_EXIT_OK);
    cr_assert_eq(
        call(lathe_cmd_bench,
             (const char *const[]){"bench", directory, "--cache", cache, "--variant", variant,
                                   "--replays", "20", "--samples", "6", "--record", record_path,
                                   "--layers", layers, flag, NULL}),
        LATHE_EXIT_OK);
    cr_assert_eq(lathe_bench_record_read(record_path, &record, message, sizeof message), LATHE_OK,
                 "%s", message);
    return record;
}

static double find(const json_t *record, const char *variant, const char *list, const char *name,
                   const char *key) {
    return lathe_bench_record_find(record, variant, list, name, key);
}

Test(cmd_bench, of_a_rank_slice_every_kernel_adds_its_nodes) {
    json_t *r = bench("muse_spark_tiny", "", "--rank-slice", "1x8", "0");
    const json_t *v = json_array_get(json_object_get(r, "variants"), 0);
    const json_t *kernels = json_object_get(v, "kernels");
    size_t i;
    json_t *k;
    int launches = 0;
    json_array_foreach(kernels, i, k) {
        const char *name = json_string_value(json_object_get(k, "name"));
        cr_expect(fabs(find(r, "1x8", "kernels", name, "left_out_us") - 1) < 1e-6, "%s", name);
        cr_expect(fabs(find(r, "1x8", "kernels", name, "in_order_us") - 1) < 1e-6, "%s", name);
        launches += (int)json_integer_value(json_object_get(k, "launches"));
    }
    cr_expect_eq(launches, 48);
    cr_expect(find(r, "1x8", NULL, "step", "median_us") == 48);
    cr_expect(find(r, "1x8", NULL, NULL, "left_out_us") == 48);
    cr_expect(find(r, "1x8", "kinds", "full_nvfp4", "median_us") == 11);
    cr_expect(find(r, "1x8", "kinds", "full_nvfp4", "kernels_us") == 11);
    cr_expect(find(r, "1x8", "kinds", "full_nvfp4", "nodes") == 11);
    cr_expect(find(r, "1x8", "kinds", "full_bf16", "nodes") == 11);
    cr_expect(json_is_true(json_object_get(r, "rank_slice")));
    json_decref(r);
}

Test(cmd_bench, ranks_that_publish_leave_out_both_sides) {
    json_t *r = bench("attention_block", "publish", "--json", "2x4", "0");
    cr_expect(find(r, "2x4", NULL, "step", "median_us") == 11);
    cr_expect(find(r, "2x4", "kernels", "proj_2x4", "left_out_us") == 2);
    cr_expect(isnan(find(r, "2x4", "kernels", "sum_last_2x4", "left_out_us")));
    cr_expect(find(r, "2x4", NULL, NULL, "left_out_us") == 11);
    cr_expect(find(r, "2x4", NULL, NULL, "in_order_us") == 11);
    cr_expect_eq(json_integer_value(json_object_get(r, "ranks")), 2);
    json_decref(r);
}

Test(cmd_bench, fewer_layers_take_less) {
    json_t *r = bench("boundary_chain", "", "--rank-slice", "1x8", "5");
    cr_expect(find(r, "1x8", NULL, "step", "median_us") == 11);
    cr_expect(find(r, "1x8", "kinds", "boundaries", "median_us") == 2);
    cr_expect(find(r, "1x8", "kinds", "boundaries", "layers") == 4);
    cr_expect_eq(json_integer_value(json_object_get(r, "layers_of")), 32);
    json_decref(r);
}

Test(cmd_bench, a_library_has_no_loop_back, .init = cr_redirect_stderr) {
    char path[] = LATHE_SOURCE_DIR "/layouts/boundary_chain.lua";
    cr_redirect_stdout();
    setenv("LATHE_NVRTC", FAKE_NVRTC, 1);
    cr_assert_eq(
        call(lathe_cmd_bench, (const char *const[]){"bench", path, "--tp", "2", "--deployment",
                                                    "nccl", "--rank-slice", NULL}),
        LATHE_EXIT_USAGE);
    strcpy(root, "/tmp/lathe-test-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void *address_of(const lathe_step_launch *l, const char *name, lathe_step_dir dir) {
    for (int i = 0; l->kind == LATHE_OP_LAUNCH && i < l->value_count; ++i)
        if (l->values[i].arg->dir == dir && strcmp(l->values[i].arg->name, name) == 0) {
            cr_assert_eq(l->addresses[i], l->values[i].address);
            return l->addresses[i];
        }
    return NULL;
}

/* Tiles of whole experts, of the first layer, must never be read as those of slices. */
Test(cmd_bench, every_layer_reads_the_routes_of_its_own) {
    json_decref(bench("muse_spark_tiny", "", "--rank-slice", "1x8", "0"));
    char message[512] = "";
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = directory;
    o.cache = cache;
    o.device = LATHE_DEVICE_CUDA;
    o.loopback = true;
    lathe_ranks ranks;
    cr_assert_eq(lathe_ranks_create(&o, &ranks, message, sizeof message), LATHE_OK, "%s", message);
    lathe_bench_weights *weights = lathe_bench_weights_create(1);
    lathe_weights w = {lathe_engine_table(ranks.engines[0]), 0,
                       lathe_bench_weights_reader(weights)};
    const lathe_weight_source source = lathe_weights_source(&w);
    cr_assert_eq(lathe_ranks_build(&ranks, &source, message, sizeof message), LATHE_OK, "%s",
                 message);
    lathe_pool *pool = lathe_pool_create();
    lathe_bench_launches own;
    cr_assert_eq(lathe_bench_launches_create(&ranks, 1, pool, &own, message, sizeof message),
                 LATHE_OK, "%s", message);
    const lathe_step_launch *of_engine = lathe_engine_launches(ranks.engines[0], 1, &own.count);
    void *tiles[16] = {NULL};
    int readers = 0;
    for (int i = 0; i < own.count; ++i) {
        const lathe_step_launch *l = &own.of_rank[0][i];
        void *out = address_of(l, "cta_expert", LATHE_DIR_OUT);
        void *in = address_of(l, "cta_expert", LATHE_DIR_IN);
        for (int k = 0; out && k < 16; ++k)
            cr_expect_neq(tiles[k], out, "layer %d has the tiles of layer %d", l->layer, k);
        if (out)
            tiles[l->layer] = out;
        if (in)
            cr_expect_eq(in, tiles[l->layer]);
        readers += in != NULL;
        if (lathe_bench_launches_routes(l))
            cr_expect_neq(address_of(l, "logits", LATHE_DIR_IN),
                          address_of(&of_engine[i], "logits", LATHE_DIR_IN));
    }
    cr_expect_eq(own.routings, lathe_engine_table(ranks.engines[0])->layer_count);
    cr_expect_geq(readers, own.routings);
    cr_expect_eq(lathe_bench_launches_draw(&own, 1, message, sizeof message), LATHE_OK);
    lathe_bench_launches_destroy(&own);
    lathe_pool_destroy(pool);
    lathe_ranks_destroy(&ranks);
    lathe_bench_weights_destroy(weights);
}

Test(cmd_bench, an_earlier_record_gives_ratios) {
    json_t *r = bench("boundary_chain", "", "--rank-slice", "1x1", "3");
    json_decref(r);
    char other[160], line[512];
    snprintf(other, sizeof other, "%s/said", root);
    cr_assert_not_null(freopen(other, "w", stdout));
    cr_assert_eq(call(lathe_cmd_bench,
                      (const char *const[]){"bench", directory, "--cache", cache, "--variant",
                                            "1x1", "--replays", "20", "--rank-slice", "--layers",
                                            "3", "--against", record_path, NULL}),
                 LATHE_EXIT_OK);
    fflush(stdout);
    FILE *said = fopen(other, "r");
    int ratios = 0;
    while (fgets(line, sizeof line, said))
        ratios += strstr(line, "  x 1.000") != NULL;
    fclose(said);
    cr_expect_eq(ratios, 4); /* the step, a kind of layer, two kernels */
}
