/* SPDX-License-Identifier: Apache-2.0
 * `lathe tune` on the fake driver, whose clock makes tactics equal, or some of them dear. */
#include "fakes.h"

#include <criterion/redirect.h>

#include "commands.h"
#include "files.h"
#include "generate.h"
#include "tactic_file.h"
#include "tune_choices.h"
#include "tune_table.h"

static char root[64], step[128], cache[128], out[128];

static int call(int (*command)(int, char **), const char *const *words) {
    char *argv[32];
    int argc = 0;
    for (; words[argc]; ++argc)
        argv[argc] = (char *)(uintptr_t)words[argc];
    return command(argc, argv);
}

static void set_up(void) {
    strcpy(root, "/tmp/lathe-test-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    setenv("LATHE_NVRTC", FAKE_NVRTC, 1);
    cr_redirect_stdout();
    cr_redirect_stderr();
    snprintf(step, sizeof step, "%s/step", root);
    snprintf(cache, sizeof cache, "%s/cache", root);
    snprintf(out, sizeof out, "%s/table.lua", root);
    cr_assert_eq(
        call(lathe_cmd_gen,
             (const char *const[]){"gen", LATHE_SOURCE_DIR "/layouts/muse_spark_tiny.lua", "--tp",
                                   "2", "--arch", "sm_90a", "--no-scan", "--out", step, NULL}),
        LATHE_EXIT_OK);
}

static void tear_down(void) {
    cr_assert_eq(lathe_folder_remove(root), 0);
}

TestSuite(cmd_tune, .init = set_up, .fini = tear_down, .timeout = 120);

static int tune(const char *kernel, const char *tactics, const char *most) {
    return call(
        lathe_cmd_tune,
        (const char *const[]){
            "tune",     step,   "--layout",  LATHE_SOURCE_DIR "/layouts/muse_spark_tiny.lua",
            "--kernel", kernel, "--variant", "1x8",
            "--cache",  cache,  "--tactics", tactics,
            "--out",    out,    "--most",    most,
            "--rounds", "10",   "--layers",  "3",
            NULL});
}

static char *read_out(void) {
    char *text;
    size_t bytes;
    cr_assert_eq(lathe_file_read(out, 1 << 20, &text, &bytes), 0);
    return text;
}

static lathe_tactic_file parse(const char *text) {
    static char said[512];
    lathe_tactic_file file;
    cr_assert_eq(
        lathe_tactic_file_parse("t", text, &file, (lathe_message_buffer){said, sizeof said}),
        LATHE_OK, "%s", said);
    return file;
}

/* A kernel whose consumer changes with it: the slices of k. */
Test(cmd_tune, of_equals_the_rules_tactic_is_taken_and_the_table_stays) {
    cr_assert_eq(tune("attn_qkv_1x8", "h200", "9"), LATHE_EXIT_OK);
    char *once = read_out(), *text;
    size_t bytes;
    cr_assert_eq(
        lathe_file_read(LATHE_SOURCE_DIR "/layouts/tactics/h200.lua", 1 << 20, &text, &bytes), 0);
    lathe_tactic_file was = parse(text), is = parse(once);
    cr_assert_eq(is.count, was.count + 1);
    for (int i = 0; i < was.count; ++i)
        cr_expect(json_equal(is.entries[i].fields, was.entries[i].fields), "%d", i);
    const json_t *record = json_object_get(is.entries[was.count].fields, "record");
    cr_expect_eq(json_integer_value(json_object_get(record, "tried")), 9);
    cr_expect_eq(json_array_size(json_object_get(record, "losers")), 8);
    cr_expect_eq(json_number_value(json_object_get(record, "median_us")), 1);
    cr_assert_eq(tune("attn_qkv_1x8", "h200", "9"), LATHE_EXIT_OK);
    char *twice = read_out();
    cr_expect_str_eq(once, twice);
    fflush(stdout);
    lathe_tactic_file_free(&was);
    lathe_tactic_file_free(&is);
    free(once);
    free(twice);
    free(text);
}

Test(cmd_tune, the_fastest_is_taken) {
    fake_cuda_open()->dear_threads = 64;
    cr_assert_eq(tune("attn_rope_full_nvfp4_1x8", "new", "24"), LATHE_EXIT_OK);
    char *text = read_out();
    cr_expect(strstr(text, "return tactics \"new\" {\n    doc = "), "%s", text);
    cr_expect(strstr(text, ", arch = \"sm_90a\",\n"), "%s", text);
    lathe_tactic_file file = parse(text);
    cr_assert_eq(file.count, 1);
    const json_t *fields = file.entries[0].fields;
    const json_t *chosen = json_array_get(json_object_get(fields, "choose"), 0);
    cr_expect_leq(json_integer_value(json_object_get(chosen, "kTeams")), 2, "%s", text);
    const json_t *losers = json_object_get(json_object_get(fields, "record"), "losers");
    const json_t *last = json_array_get(losers, json_array_size(losers) - 1);
    cr_expect_eq(json_number_value(json_object_get(last, "median_us")), 2, "%s", text);
    cr_expect_gt(json_integer_value(json_object_get(last, "kTeams")), 2, "%s", text);
    lathe_tactic_file_free(&file);
    free(text);
}

Test(cmd_tune, a_table_of_another_architecture_is_left_alone) {
    static const lathe_tune_machine machine;
    static char said[512];
    lathe_tune_table t = {.path = "other.lua", .arch = "sm_90a"};
    t.text = strdup("return tactics \"other\" { doc = \"\", arch = \"sm_100a\" }\n");
    cr_assert_eq(lathe_tune_table_check(&t, &machine, (lathe_message_buffer){said, sizeof said}),
                 LATHE_INVALID);
    cr_expect_str_eq(said, "other.lua is of sm_100a and the step for sm_90a; allowed: --tactics "
                           "with the name of another table, or a new one");
    lathe_tune_table_close(&t);
}

/* Of many tactics what rule and table take, and the others evenly. */
Test(cmd_tune, a_list_holds_at_most_so_many) {
    static lathe_generate_result all, few;
    char all_out[160], few_out[160];
    snprintf(all_out, sizeof all_out, "%s/all", root);
    snprintf(few_out, sizeof few_out, "%s/few", root);
    lathe_generate_options o = {.layout = LATHE_SOURCE_DIR "/layouts/muse_spark_tiny.lua",
                                .tp = 2,
                                .arch = "sm_90a",
                                .choices = 4096,
                                .out = all_out,
                                .no_scan = true};
    cr_assert(lathe_generate(&o, &all), "%s", all.message);
    o.choices = 5;
    o.out = few_out;
    cr_assert(lathe_generate(&o, &few), "%s", few.message);
    lathe_pool *pool = lathe_pool_create();
    lathe_tune_kernel *of_all, *of_few;
    const int count = lathe_tune_choices_read(all.choices, pool, &of_all);
    cr_assert_eq(lathe_tune_choices_read(few.choices, pool, &of_few), count);
    bool more = false;
    for (int k = 0; k < count; ++k) {
        int rules = 0, taken = 0;
        cr_expect_eq(of_few[k].count, of_all[k].count < 5 ? of_all[k].count : 5, "%s",
                     of_all[k].name);
        for (int c = 0; c < of_few[k].count; ++c) {
            rules += of_few[k].choices[c].rule;
            taken += of_few[k].choices[c].taken;
            cr_expect(strstr(all.choices, of_few[k].choices[c].name));
        }
        cr_expect(rules == 1 && taken == 1, "%s", of_all[k].name);
        more = more || of_all[k].count > 40;
    }
    cr_expect(more);
    lathe_pool_destroy(pool);
    free(all.choices);
    free(all.why);
    free(few.choices);
    free(few.why);
}

Test(cmd_tune, what_cannot_be_measured_is_refused) {
    const char *const no_kernel[] = {
        "tune",   step,       "--layout", LATHE_SOURCE_DIR "/layouts/muse_spark_tiny.lua",
        "--list", "--kernel", "nothing",  NULL};
    cr_expect_eq(call(lathe_cmd_tune, no_kernel), LATHE_EXIT_USAGE);
    const char *const no_layout[] = {"tune", step, "--list", NULL};
    cr_expect_eq(call(lathe_cmd_tune, no_layout), LATHE_EXIT_USAGE);
    const char *const host[] = {"tune", LATHE_SOURCE_DIR "/generated/muse_spark_tiny-tp2-host",
                                NULL};
    cr_expect_eq(call(lathe_cmd_tune, host), LATHE_EXIT_USAGE);
    const char *const both[] = {"tune", step, "--list", "--build", NULL};
    cr_expect_eq(call(lathe_cmd_tune, both), LATHE_EXIT_USAGE);
    const char *const few[] = {"tune", step, "--rounds", "2", NULL};
    cr_expect_eq(call(lathe_cmd_tune, few), LATHE_EXIT_USAGE);
    const char *const name[] = {
        "tune",   step,        "--layout", LATHE_SOURCE_DIR "/layouts/muse_spark_tiny.lua",
        "--list", "--tactics", "../x",     NULL};
    cr_expect_eq(call(lathe_cmd_tune, name), LATHE_EXIT_USAGE);
    fflush(stderr);
    FILE *said = cr_get_redirected_stderr();
    char text[4096] = "";
    cr_assert_gt(fread(text, 1, sizeof text - 1, said), 0);
    cr_expect(strstr(text, "no kernel with several tactics matches nothing"), "%s", text);
    cr_expect(strstr(text, "allowed: --layout FILE"), "%s", text);
    cr_expect(strstr(text, "for the host device"), "%s", text);
    cr_expect(strstr(text, "--rounds '2'"), "%s", text);
    cr_expect(strstr(text, "allowed: a name of a-z 0-9 _"), "%s", text);
}

/* ---- choices and entries, without a step ---- */

static const char listed[] = "k\tf/p\t8\tkN=64,kF=0.5\t-\tkT=1\t64\t1024\n"
                             "k\tf/p\t8\tkN=64,kF=0.5\tdefault\tkT=2\t64\t4096\n"
                             "k\tf/p\t8\tkN=64,kF=0.5\ttaken\tkT=3\t32\t1024\n"
                             "k\tf/p\t8\tkN=64,kF=0.5\t-\tkT=4\t64\t1024\n"
                             "other\tf/q\t1\tkN=1\tboth\tonly\t32\t0\n";

Test(tune_choices, are_read_and_ranked) {
    lathe_pool *pool = lathe_pool_create();
    lathe_tune_kernel *k;
    cr_assert_eq(lathe_tune_choices_read(listed, pool, &k), 2);
    cr_expect(k[0].count == 4 && k[0].rows == 8 && k[1].count == 1 && k[1].choices[0].taken);
    const int ranks[] = {2, 0, 1, 3};
    for (int i = 0; i < 4; ++i)
        cr_expect_eq(k[0].choices[i].simple, ranks[i], "%d", i);
    lathe_pool_destroy(pool);
}

Test(tune_choices, the_same_measurements_make_the_same_entry) {
    lathe_pool *pool = lathe_pool_create();
    lathe_tune_kernel *k;
    cr_assert_eq(lathe_tune_choices_read(listed, pool, &k), 2);
    const double medians[] = {3.006, 2.0, 1.504, __builtin_nan("")};
    const lathe_tune_measured m = {"G", "13.0", "580", "2026-01-02", 2, medians, 0.051};
    json_t *a = lathe_tune_entry(&k[0], &m), *b = lathe_tune_entry(&k[0], &m);
    char *text = lathe_tactic_file_print("f/p", a), *again = lathe_tactic_file_print("f/p", b);
    cr_expect_str_eq(text, again);
    cr_expect_str_eq(text, "tactic \"f/p\" {\n"
                           "        shape = { kN = 64, kF = 0.5 }, rows = 8,\n"
                           "        choose = { { kT = 3 } },\n"
                           "        record = {\n"
                           "            gpu = \"G\", toolkit = \"13.0\", driver = \"580\", date = "
                           "\"2026-01-02\", median_us = 1.5, spread_us = 0.05, tried = 3,\n"
                           "            losers = {\n"
                           "                { kT = 2, median_us = 2.0 },\n"
                           "                { kT = 1, median_us = 3.01 },\n"
                           "            },\n"
                           "        },\n"
                           "    }");
    free(text);
    free(again);
    json_decref(a);
    json_decref(b);
    lathe_pool_destroy(pool);
}
