/* SPDX-License-Identifier: Apache-2.0
 * Tactics: the exact entry, else the rule; limits of each architecture; tables that do not fit
 * their spec. */
#include "codegen_case.h"
#include "tactic.h"

TestSuite(tactic, .init = case_begin, .fini = case_end, .timeout = 60);

/* What --why says of one kernel. */
static const char *why_of(const char *kernel) {
    const char *line = strstr(case_result.why, kernel);
    cr_assert(line, "no %s in: %s", kernel, case_result.why);
    const char *end = strstr(line, "registers\n");
    cr_assert(end);
    return lathe_arena_copy(case_arena, line, (size_t)(end - line));
}

static bool generate(const char *layout, const char *tactics) {
    return case_generate(layout, (lathe_generate_options){.tactics = tactics});
}

Test(tactic, without_a_table_the_rule) {
    cr_assert(generate(case_base(), NULL));
    cr_assert(strstr(why_of("down_2x4, "), "kSplits=2,kWarps=4"));
    cr_assert(strstr(why_of("down_2x4, "), "the spec's rule, no table was asked for"));
}

Test(tactic, the_exact_entry_comes_first_and_the_rule_last) {
    cr_assert(generate(case_base(), "measured"), "%s", case_result.message);
    cr_assert(strstr(why_of("down_2x4, "), "kSplits=4,kWarps=8"));
    cr_assert(strstr(case_read(case_path("out/step.json")),
                     "\"ceilings\": {\"bf16_tflops\": 500, \"read_gb_s\": 3000},"));
    cr_assert(strstr(why_of("down_2x4, "), "measured, layouts/tactics/measured.lua:9"));
    const char *step = case_read(case_path("out/step.json"));
    /* The second choice keeps the number of splits; the third and the rule would not, and are
     * dropped. */
    cr_assert(strstr(step, "\"file\": \"down_2x4_t1.cu\""));
    cr_assert_null(strstr(step, "down_2x4_t2"));
    cr_assert(strstr(step, "\"name\": \"y\", \"scope\": \"step\", \"shape\": [4, 8, 64]"));
    cr_assert(strstr(case_read(case_path("out/down_2x4.cu")),
                     "static constexpr int kSplits = 4;    // layouts/tactics/measured.lua:9\n"));
}

Test(tactic, consumers_follow_the_producers_splits) {
    cr_assert(generate(case_base(), "measured"));
    cr_assert(strstr(case_read(case_path("out/add_2x4.cu")), "kSplits = 4;"));
    cr_assert(strstr(case_read(case_path("out/add_1x1.cu")), "kSplits = 2;"));
}

Test(tactic, an_entry_equal_to_the_rule_is_one_tactic) {
    cr_assert(generate(case_base(), "measured"));
    cr_assert(strstr(why_of("up_1x1, "), "measured, layouts/tactics/measured.lua:14"));
    cr_assert_null(strstr(case_read(case_path("out/step.json")), "up_1x1_t1"));
}

Test(tactic, other_shapes_and_rows_take_the_rule) {
    cr_assert(generate(case_base(), "measured"));
    cr_assert(strstr(why_of("down_1x1, "),
                     "the spec's rule, no entry in layouts/tactics/measured.lua for it"));
    cr_assert(strstr(why_of("up_2x4, "), "the spec's rule"));
}

/* One tactic, that of the most rows, whatever each variant's own would be. */
Test(tactic, variants_of_an_invariant_deployment_take_one) {
    const char *layout =
        case_replace(case_base(), "deployment {", "deployment { invariant = true,");
    cr_assert(generate(layout, "measured"), "%s", case_result.message);
    cr_assert(strstr(why_of("down_2x4, "), "measured, layouts/tactics/measured.lua:9"));
    cr_assert(strstr(why_of("down_1x1, "), "kSplits=4,kWarps=8: that of the variant of the most"));
    cr_assert_null(strstr(case_read(case_path("out/step.json")), "_t1.cu"));
    cr_assert(strstr(case_read(case_path("out/add_1x1.cu")), "kSplits = 4;"));
}

Test(tactic, unknown_tables) {
    cr_assert_not(generate(case_base(), "none"));
    case_expect_message((const char *const[]){"there is no layouts/tactics/none.lua", NULL});
    cr_assert_not(generate(case_base(), "../base"));
    case_expect_message((const char *const[]){"allowed: a name of a-z 0-9 _", NULL});
}

/* Generates with a table that differs from measured.lua by one change. */
static bool generate_changed(const char *from, const char *to) {
    const char *folders[] = {"layouts", "layouts/tactics", "templates"};
    for (int i = 0; i < 2; i++)
        (void)mkdir(case_path(folders[i]), 0777);
    (void)symlink(FIXTURES "/templates", case_path(folders[2]));
    const char *table = case_read(FIXTURES "/layouts/tactics/measured.lua");
    case_write("layouts/tactics/measured.lua", case_replace(table, from, to));
    return case_generate(case_base(),
                         (lathe_generate_options){.tactics = "measured", .root = case_folder});
}

static void table_refused(const char *from, const char *to, const char *wanted) {
    cr_assert_not(generate_changed(from, to), "passed: %s", to);
    case_expect_message((const char *const[]){"layouts/tactics/measured.lua:", wanted, NULL});
}

Test(tactic, of_a_table_for_another_architecture_nothing_is_taken) {
    cr_assert(generate_changed("ceilings =", "arch = \"sm_90a\", ceilings ="), "%s",
              case_result.message);
    cr_assert_str_eq(case_result.warning, "");
    cr_assert(strstr(why_of("down_2x4, "), "measured, layouts/tactics/measured.lua:9"));
    cr_assert(generate_changed("ceilings =", "arch = \"sm_100a\", ceilings ="), "%s",
              case_result.message);
    cr_assert_str_eq(case_result.warning, "layouts/tactics/measured.lua:7: measured on sm_100a, "
                                          "nothing of it is taken for sm_90a");
    cr_assert_eq(case_result.entries_used, 0);
    cr_assert(strstr(why_of("down_2x4, "),
                     "the spec's rule, layouts/tactics/measured.lua is of another architecture"));
    cr_assert_null(strstr(case_result.why, "is for no kernel of this step"));
    cr_assert_null(strstr(case_read(case_path("out/step.json")), "ceilings"));
}

Test(tactic, tables_that_do_not_fit) {
    table_refused("rows = 8,", "row = 8,", "unknown field 'row'");
    table_refused("ceilings =", "arch = \"sm_9\", ceilings =",
                  "unknown architecture \"sm_9\"; allowed: sm_90a");
    table_refused("rows = 8,", "", "field 'rows': found nothing");
    table_refused("kK = 48", "kKK = 48", "unknown field 'kKK'");
    table_refused("kN = 64, kK = 48", "kN = 64", "kK is missing");
    table_refused("kN = 64, kK = 48", "kN = 64, kK = 48, kWarps = 1", "unknown field 'kWarps'");
    table_refused("kSplits = 4, kWarps = 8", "kSplits = 4, kWraps = 8",
                  "unknown field 'kWraps'; allowed: kSplits kWarps");
    table_refused("kSplits = 4, kWarps = 8", "kSplits = 4", "kWarps is missing");
    table_refused("kSplits = 4, kWarps = 8", "kSplits = 4, kWarps = 9",
                  "found 9, allowed: from 1 to 8");
    table_refused("kSplits = 4, kWarps = 8", "kSplits = 3, kWarps = 8",
                  "the spec has none such for this shape on sm_90a; allowed: kSplits=");
    table_refused("kSplits = 4, kWarps = 8", "kSplits = 4, kWarps = 1.5",
                  "found 1.5, allowed: an integer");
    table_refused("gpu = \"GPU\",", "", "record: field 'gpu'");
    table_refused("median_us = 2", "median_us = \"2\"", "record: field 'median_us'");
    table_refused("read_gb_s = 3000, ", "", "ceilings: field 'read_gb_s': found nothing");
    table_refused("read_gb_s = 3000", "read_gb_s = 0", "found 0, allowed: ");
    table_refused("read_gb_s = 3000", "read_tb_s = 3", "unknown field 'read_tb_s'");
    table_refused("choose = { { kSplits = 4, kWarps = 8 }, { kSplits = 4, kWarps = 2 }, { kSplits "
                  "= 1, kWarps = 2 } }",
                  "choose = {}", "field 'choose': found none");
    table_refused("kPartials = 1 }, rows = 1", "kPartials = 0 }, rows = 1",
                  "this shape stands before at line 14");
}

Test(tactic, entries_for_no_kernel_of_the_step_are_checked_too) {
    table_refused("kN = 48, kK = 64, kPartials = 1 }", "kN = 48, kKK = 64, kPartials = 1 }",
                  "19: tactic \"fix/product\": field 'shape': unknown field 'kKK'; allowed: ");
    table_refused("choose = { { kSplits = 1, kWarps = 1 } }", "choose = { { kSplit = 1 } }",
                  "unknown field 'kSplit'; allowed: kSplits kWarps");
    table_refused("    tactic \"fix/product\" {\n        shape = { kRows = 8",
                  "    tactic \"fix/produce\" {\n        shape = { kRows = 8",
                  "9: tactic \"fix/produce\": unknown provider, there is no "
                  "templates/fix/produce.lua");
}

Test(tactic, entries_that_were_used_are_counted) {
    cr_assert(generate(case_base(), "measured"));
    cr_assert_str_eq(case_result.table, "layouts/tactics/measured.lua");
    cr_assert_eq(case_result.entries, 3);
    cr_assert_eq(case_result.entries_used, 2);
    cr_assert(strstr(case_result.why, "layouts/tactics/measured.lua:19: \"fix/product\" is for no "
                                      "kernel of this step"));
}

static const char *fat(const char *options) {
    return case_replace(
        case_base(), "use \"fix/copy\" { parts = { \"begin\" } }",
        lathe_arena_print(case_arena, "use \"fix/fat\" { parts = { \"begin\" }, options = { %s } }",
                          options));
}

static bool on(const char *arch, const char *options) {
    return case_generate(fat(options), (lathe_generate_options){.arch = arch});
}

Test(tactic, shared_memory_of_each_architecture) {
    static const char *const large[] = {"sm_90a", "sm_100a", "sm_103a", "host"};
    for (size_t i = 0; i < 4; i++) {
        cr_assert(on(large[i], "shared = 232448"), "%s", case_result.message);
        cr_assert_not(on(large[i], "shared = 232449"));
    }
    cr_assert(on("sm_120a", "shared = 101376"), "%s", case_result.message);
    cr_assert_not(on("sm_120a", "shared = 101377"));
    case_expect_message((const char *const[]){
        "case.lua:8: prologue: part \"begin\": provider fix/fat", "tactic only",
        "101377 bytes of shared memory; sm_120a allows 101376", NULL});
}

Test(tactic, registers_of_a_block) {
    cr_assert(on("sm_90a", "registers = 128, threads = 512"), "%s", case_result.message);
    cr_assert_not(on("sm_90a", "registers = 129, threads = 512"));
    case_expect_message((const char *const[]){"129 registers for each of 512 threads",
                                              "sm_90a allows 65536 in all", NULL});
    cr_assert_not(on("sm_90a", "registers = 256"));
    case_expect_message((const char *const[]){"field 'registers'", "found 256", "to 255", NULL});
}

Test(tactic, launch_bounds_follow_the_registers) {
    cr_assert(on("sm_90a", "registers = 128, threads = 64"));
    cr_assert(strstr(case_read(case_path("out/begin_1x1.cu")),
                     "__launch_bounds__(64, 8) // 128 registers"));
    cr_assert(on("sm_90a", "registers = 255, threads = 256"));
    cr_assert(strstr(case_read(case_path("out/begin_1x1.cu")), "__launch_bounds__(256, 1)"));
    cr_assert(on("sm_90a", "registers = 32, threads = 32"));
    cr_assert(strstr(case_read(case_path("out/begin_1x1.cu")), "__launch_bounds__(32, 32)"));
    cr_assert(on("sm_120a", "registers = 32, threads = 1024"));
    cr_assert(strstr(case_read(case_path("out/begin_1x1.cu")), "__launch_bounds__(1024, 1)"));
}

Test(tactic, whole_warps_only) {
    cr_assert_not(on("sm_90a", "threads = 48"));
    case_expect_message((const char *const[]){
        "templates/fix/fat.lua:", "found 48, allowed: a multiple of 32", NULL});
}

Test(tactic, a_shape_the_spec_does_not_support) {
    REFUSED("local H <const> = 64", "local H <const> = 60",
            "case.lua:11: body: part \"up\": provider fix/product",
            "unsupported: K must be a multiple of 8");
}

/* The committed table: its entry is taken by the model it was measured for, and by no smaller one.
 */
Test(tactic, the_committed_table_fits) {
    const lathe_generate_options whole = {.layout = LATHE_SOURCE_DIR "/layouts/muse_spark.lua",
                                          .tp = 1,
                                          .tactics = "h200",
                                          .out = case_path("out"),
                                          .no_scan = true};
    cr_assert(lathe_generate(&whole, &case_result), "%s", case_result.message);
    cr_assert(strstr(case_result.why, "measured, layouts/tactics/h200.lua:"));
    lathe_generate_options tiny = whole;
    tiny.layout = LATHE_SOURCE_DIR "/layouts/muse_spark_tiny.lua";
    free(case_result.why);
    cr_assert(lathe_generate(&tiny, &case_result), "%s", case_result.message);
    cr_assert_null(strstr(case_result.why, "measured"));
}

/* Products over weights name what is tried where their first tactic does not build; the host's
 * compiler refuses none. */
Test(tactic, weight_kernels_have_a_careful_tactic) {
    lathe_generate_options o = {.layout = LATHE_SOURCE_DIR "/layouts/muse_spark.lua",
                                .tp = 1,
                                .arch = "sm_100a",
                                .out = case_path("out"),
                                .no_scan = true};
    cr_assert(lathe_generate(&o, &case_result), "%s", case_result.message);
    const char *step = case_read(case_path("out/step.json"));
    cr_assert(strstr(step, "\"file\": \"attn_qkv_1x8_t1.cu\""));
    cr_assert(strstr(step, "\"name\": \"kSplits=1,kTiles=1,kWarps=16,kSteps=1,kStages=0\""));
    const char *line = strstr(case_result.why, "attn_qkv_1x8, ");
    cr_assert(line && strstr(line, "where the one before does not build"));
    free(case_result.why);
    o.arch = "host";
    cr_assert(lathe_generate(&o, &case_result), "%s", case_result.message);
    cr_assert_null(strstr(case_read(case_path("out/step.json")), "attn_qkv_1x8_t1.cu"));
}
