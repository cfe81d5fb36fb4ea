/* SPDX-License-Identifier: Apache-2.0
 * lathe inspect: figures against ones worked out by hand, what is unknown stays unknown, outputs as
 * a user meets them. The committed directories of generated/ are its subjects. */
#include "fakes.h"

#include <criterion/redirect.h>
#include <jansson.h>
#include <math.h>

#include "commands.h"
#include "files.h"
#include "inspect.h"

#define TP8 LATHE_SOURCE_DIR "/generated/muse_spark-tp8-sm_90a"
#define TP4 LATHE_SOURCE_DIR "/generated/muse_spark-tp4-sm_90a"
#define HOST LATHE_SOURCE_DIR "/generated/muse_spark_tiny-tp2-host"

static toy t;
static char *text;
static size_t text_size;
static FILE *out;

static void set_up(void) {
    toy_create(&t);
    out = open_memstream(&text, &text_size);
}
static void tear_down(void) {
    fclose(out);
    free(text);
    toy_remove(&t);
}

TestSuite(cmd_inspect, .init = set_up, .fini = tear_down, .timeout = 60);

static void expect(const char *wanted) {
    fflush(out);
    cr_assert(strstr(text, wanted), "wanted %s, got %s", wanted, text);
}

static lathe_inspect open_directory(const char *directory) {
    char message[1024] = "";
    lathe_inspect in;
    cr_assert_eq(lathe_inspect_open(directory, t.cache, FAKE_NVRTC, &in,
                                    (lathe_message_buffer){message, sizeof message}),
                 LATHE_OK, "%s", message);
    return in;
}

static int inspect(int argc, const char *const *words) {
    char *argv[16] = {(char *)"inspect"};
    for (int i = 0; i < argc; ++i)
        argv[i + 1] = (char *)(uintptr_t)words[i];
    return lathe_cmd_inspect(argc + 1, argv);
}

/* 4.53 GB at 4530 GB/s take a second; 989 tera-operations too. */
Test(cmd_inspect, floors) {
    const lathe_step_ceilings c = {4530, 989}, none = {0};
    bool by_operations;
    cr_assert_float_eq(lathe_inspect_floor(&c, 4530000, 1, &by_operations), 1.0, 1e-12);
    cr_assert_not(by_operations);
    cr_assert_float_eq(lathe_inspect_floor(&c, 4530000, 1978000000, &by_operations), 2.0, 1e-12);
    cr_assert(by_operations);
    cr_assert(isnan(lathe_inspect_floor(&none, 1, 1, &by_operations)));
}

/* Each limit in turn: threads, registers, shared memory, blocks. */
Test(cmd_inspect, blocks_of_a_multiprocessor) {
    cr_assert_eq(lathe_inspect_resident("sm_90a", 1024, 32, 0), 2);
    cr_assert_eq(lathe_inspect_resident("sm_90a", 128, 213, 0), 2);
    cr_assert_eq(lathe_inspect_resident("sm_90a", 128, 40, 115712), 2);
    cr_assert_eq(lathe_inspect_resident("sm_90a", 128, 40, 115713), 1);
    cr_assert_eq(lathe_inspect_resident("sm_90a", 32, 16, 0), 32);
    cr_assert_eq(lathe_inspect_resident("sm_120a", 768, 32, 0), 2);
    cr_assert_eq(lathe_inspect_resident("sm_90a", 128, -1, 0), 0);
    cr_assert_eq(lathe_inspect_resident("host", 128, 40, 0), 0);
}

/* All launches in one stream are on the critical path; a layer has its four exchanges. */
Test(cmd_inspect, nodes_of_a_layer) {
    lathe_inspect in = open_directory(TP8);
    bool seen = false;
    for (int p = 0; p < in.variants[0].part_count; ++p) {
        const lathe_inspect_part *part = &in.variants[0].parts[p];
        if (strcmp(part->name, "full_nvfp4") != 0)
            continue;
        seen = true;
        cr_assert_eq(part->exchanges, 4);
        cr_assert_eq(part->critical, part->nodes);
        cr_assert_gt(part->floor_us, 20);
    }
    cr_assert(seen);
    int nodes = 0, layers = 0;
    for (int p = 0; p < in.variants[0].part_count; ++p) {
        nodes += in.variants[0].parts[p].layers * in.variants[0].parts[p].nodes;
        layers += in.variants[0].parts[p].layers;
    }
    cr_assert_eq(layers, in.table->layer_count + 2);
    cr_assert_eq(in.variants[0].whole.nodes, nodes);
    lathe_inspect_close(&in);
}

Test(cmd_inspect, unbuilt_kernels_have_no_registers) {
    lathe_inspect in = open_directory(TP8);
    cr_assert_eq(in.kernels[0].registers, -1);
    cr_assert_null(in.kernels[0].artefact);
    lathe_inspect_print(&in, out);
    expect("0 of ");
    expect("kernels are in the cache; `lathe build` compiles the others");
    expect("the spec's rule, no entry in layouts/tactics/h200.lua for it");
    lathe_inspect_close(&in);
}

/* The fake's log: what the real ptxas prints. */
Test(cmd_inspect, registers_come_from_the_log) {
    char *argv[] = {(char *)"build", t.directory,       (char *)"--cache",
                    t.cache,         (char *)"--nvrtc", (char *)FAKE_NVRTC};
    cr_redirect_stdout();
    cr_assert_eq(lathe_cmd_build(6, argv), LATHE_EXIT_OK);
    lathe_inspect in = open_directory(t.directory);
    cr_assert_geq(in.kernels[0].registers, 0);
    cr_assert_eq(in.kernels[0].spill_bytes, 0);
    cr_assert_not_null(in.kernels[0].artefact);
    cr_assert_gt(in.kernels[0].resident, 0);
    lathe_inspect_close(&in);
}

Test(cmd_inspect, json_says_the_same) {
    lathe_inspect in = open_directory(TP8);
    in.pattern = "attn_qkv_1x8";
    cr_assert(lathe_inspect_write_json(&in, out));
    fflush(out);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(root);
    const json_t *kernels = json_object_get(root, "kernels");
    cr_assert_eq(json_array_size(kernels), 1);
    const json_t *k = json_array_get(kernels, 0);
    cr_assert_str_eq(json_string_value(json_object_get(k, "name")), "attn_qkv_1x8");
    cr_assert(json_is_null(json_object_get(k, "registers")));
    cr_assert_gt(json_integer_value(json_object_get(k, "bytes")), 2304 * 8192 * 2);
    cr_assert_eq(json_integer_value(json_object_get(root, "inspect")), 1);
    cr_assert_eq(json_array_size(json_object_get(root, "variants")), in.table->variant_count);
    json_decref(root);
    lathe_inspect_close(&in);
}

Test(cmd_inspect, nothing_differs_from_itself) {
    lathe_inspect in = open_directory(TP8);
    cr_assert_eq(lathe_inspect_diff(&in, &in, out), 0);
    expect("0 differences\n");
    lathe_inspect_close(&in);
}

Test(cmd_inspect, names_what_differs) {
    lathe_inspect from = open_directory(TP8), to = open_directory(TP4);
    const int all = lathe_inspect_diff(&from, &to, out);
    expect("attn_qkv_1x8\n  kN                           2304 -> 4608\n");
    from.pattern = to.pattern = "attn_qkv_1x8";
    const int of_one = lathe_inspect_diff(&from, &to, out);
    cr_assert(of_one > 0 && of_one < all, "%d of %d", of_one, all);
    lathe_inspect_close(&from);
    lathe_inspect_close(&to);
}

/* Every include is in place, each header once, each with its origin. */
Test(cmd_inspect, flattens) {
    char message[512];
    lathe_inspect in = open_directory(TP8);
    cr_assert_eq(lathe_inspect_flatten(TP8, in.kernels[0].tactic->file, out,
                                       (lathe_message_buffer){message, sizeof message}),
                 LATHE_OK);
    expect("#line 1 \"prims.cuh\"\n");
    cr_assert_null(strstr(text, "#include \""));
    const char *first = strstr(text, "#line 1 \"types.cuh\"\n");
    cr_assert(first && !strstr(first + 1, "#line 1 \"types.cuh\"\n"));
    lathe_inspect_close(&in);
}

/* The page holds everything: no address, no file, and no text that could end its script. */
Test(cmd_inspect, writes_a_page) {
    char path[512], *page;
    size_t bytes;
    snprintf(path, sizeof path, "%s/page.html", t.cache);
    cr_assert_eq(lathe_folder_make(t.cache), 0);
    cr_redirect_stderr();
    cr_assert_eq(inspect(3, (const char *[]){TP8, "--html", path}), LATHE_EXIT_OK);
    cr_assert_eq(lathe_file_read(path, (size_t)1 << 30, &page, &bytes), 0);
    static const char *const none[] = {"src=", "https:", "@import", "@CSS@", "@JS@", "@DATA@"};
    for (size_t i = 0; i < sizeof none / sizeof *none; ++i)
        cr_assert_null(strstr(page, none[i]), "%s", none[i]);
    const char *data = strstr(page, "type=\"application/json\">");
    cr_assert(data && (data = strchr(data, '>')));
    const char *end = strstr(data, "</script>");
    json_t *root = json_loadb(data + 1, (size_t)(end - data - 1), JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(root);
    const json_t *k = json_array_get(json_object_get(root, "kernels"), 0);
    cr_assert(strstr(json_string_value(json_object_get(k, "source")), "extern \"C\" __global__"));
    cr_assert(json_object_get(json_object_get(root, "lua"), "layouts/muse_spark_model.lua"));
    json_decref(root);
    free(page);
    snprintf(path, sizeof path, "%s/none/page.html", t.cache);
    cr_assert_eq(inspect(3, (const char *[]){TP8, "--html", path}), LATHE_EXIT_USAGE);
}

Test(cmd_inspect, wrong_usage) {
    cr_redirect_stdout();
    cr_redirect_stderr();
    cr_assert_eq(inspect(0, NULL), LATHE_EXIT_USAGE);
    cr_assert_eq(inspect(1, (const char *[]){"/nonexistent"}), LATHE_EXIT_USAGE);
    cr_assert_eq(inspect(3, (const char *[]){TP8, "--json", "--sass"}), LATHE_EXIT_USAGE);
    cr_assert_eq(inspect(3, (const char *[]){TP8, "--json", "--json"}), LATHE_EXIT_USAGE);
    cr_assert_eq(inspect(3, (const char *[]){TP8, "--kernel", "none"}), LATHE_EXIT_USAGE);
    cr_assert_eq(inspect(2, (const char *[]){TP8, "--flatten"}), LATHE_EXIT_USAGE);
    cr_assert_eq(inspect(2, (const char *[]){HOST, "--sass"}), LATHE_EXIT_USAGE);
    cr_assert_eq(inspect(1, (const char *[]){HOST}), LATHE_EXIT_OK);
}

/* ---- beside a record of `lathe bench` ---- */

/* Of the kernel `name` of TP 8: 10 us where 5 are predicted, floor 4. */
static char *write_record(const char *file, const char *name, const char *tactic, int tp) {
    char *path;
    cr_assert_gt(asprintf(&path, "%s/%s", t.directory, file), 0);
    json_t *record =
        json_pack("{s:s,s:i,s:{s:s,s:s,s:s,s:i},s:s,s:s,s:s,s:i,s:i,s:i,"
                  "s:[{s:s,s:{s:f},s:[{s:s,s:f}],s:[{s:s,s:s,s:f,s:f,s:f,s:f}]}]}",
                  "kind", "lathe bench", "format", 1, "machine", "gpu", "G", "driver", "580",
                  "date", "2026-01-02", "multiprocessors", 132, "layout", "muse_spark",
                  "deployment", "", "arch", "sm_90a", "tp", tp, "layers", 62, "layers_of", 62,
                  "variants", "name", "1x8", "step", "median_us", 5000.0, "kinds", "name",
                  "full_nvfp4", "median_us", 90.5, "kernels", "name", name, "tactic", tactic,
                  "left_out_us", 9.0, "in_order_us", 10.0, "floor_us", 4.0, "predicted_us", 5.0);
    cr_assert_not_null(record);
    cr_assert_eq(json_dump_file(record, path, 0), 0);
    json_decref(record);
    return path;
}

static const lathe_inspect_kernel *find_kernel(const lathe_inspect *in, const char *name) {
    for (int k = 0; k < in->table->kernel_count; ++k)
        if (strcmp(in->table->kernels[k].name, name) == 0)
            return &in->kernels[k];
    cr_assert(false, "no kernel %s", name);
    return NULL;
}

Test(cmd_inspect, what_bench_measured_stands_beside) {
    char message[1024] = "";
    lathe_inspect in = open_directory(TP8);
    const lathe_inspect_kernel *k = find_kernel(&in, "moe_gather_first_sliding_bf16_1x8");
    char *path =
        write_record("bench.json", "moe_gather_first_sliding_bf16_1x8", k->tactic->name, 8);
    cr_expect(isnan(k->measured_us) && isnan(in.variants[1].whole.measured_us));
    cr_assert_eq(lathe_inspect_read_bench(&in, t.directory, NULL,
                                          (lathe_message_buffer){message, sizeof message}),
                 LATHE_OK, "%s", message);
    cr_expect(k->measured_us == 10 && k->touched_floor_us == 4 && k->predicted_us == 5);
    cr_expect_str_eq(k->limit, "few blocks: 9 of 132 multiprocessors have one");
    cr_expect(in.measured.kernels == 1 && in.measured.near == 0 && in.measured.stale == 0);
    cr_expect(in.variants[1].whole.measured_us == 5000);
    lathe_inspect_print(&in, out);
    expect("measured: G, driver 580, 2026-01-02: the first 62 of 62 layers; predictions within 15 "
           "%: 0 of 1 kernels");
    expect("10.00 us, 0.40 of its floor; predicted 5.00; limit: few blocks");
    cr_assert(lathe_inspect_write_json(&in, out));
    expect("\"within_15_percent\": 0");
    expect("\"measured_us\": 90.5");
    lathe_inspect_close(&in);
    free(path);
}

Test(cmd_inspect, a_record_of_another_tactic_or_deployment_does_not_count) {
    char said[1024] = "";
    const lathe_message_buffer message = {said, sizeof said};
    lathe_inspect in = open_directory(TP8);
    char *path = write_record("bench.json", "moe_gather_first_sliding_bf16_1x8", "kWarps=77", 8);
    cr_assert_eq(lathe_inspect_read_bench(&in, t.directory, path, message), LATHE_OK, "%s", said);
    cr_expect(isnan(find_kernel(&in, "moe_gather_first_sliding_bf16_1x8")->measured_us));
    cr_expect_eq(in.measured.stale, 1);
    free(path);
    path = write_record("bench.json", "moe_gather_first_sliding_bf16_1x8", "kWarps=1", 4);
    cr_expect_eq(lathe_inspect_read_bench(&in, t.directory, path, message), LATHE_INVALID);
    cr_expect(strstr(said, "a record of another deployment, allowed: of muse_spark, TP 8, sm_90a"),
              "%s", said);
    cr_expect_eq(lathe_inspect_read_bench(&in, t.directory, NULL, message), LATHE_OK);
    cr_expect_eq(lathe_inspect_read_bench(&in, t.directory, TP8 "/step.json", message),
                 LATHE_INVALID);
    cr_expect_eq(lathe_inspect_read_bench(&in, t.directory, "/nothing", message), LATHE_IO);
    lathe_inspect_close(&in);
    free(path);
}
