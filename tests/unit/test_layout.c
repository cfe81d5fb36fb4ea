/* SPDX-License-Identifier: Apache-2.0
 * Layout files: every slip is refused with file and line, the field, what was found and what is
 * allowed. */
#include "codegen_case.h"

TestSuite(layout, .init = case_begin, .fini = case_end, .timeout = 60);

Test(layout, the_base_passes) {
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}), "%s", case_result.message);
    cr_assert_eq(case_result.kernels, 15);
    cr_assert_eq(strlen(case_result.hash), 16);
}

Test(layout, missing_file) {
    const lathe_generate_options o = {.layout = "no/such.lua", .tp = 1};
    cr_assert_not(lathe_generate(&o, &case_result));
    cr_assert(strstr(case_result.message, "no/such.lua: No such file"), "%s", case_result.message);
}

Test(layout, no_root_above_the_layout) {
    case_write("alone.lua", "return 1");
    const lathe_generate_options o = {.layout = case_path("alone.lua"), .tp = 1};
    cr_assert_not(lathe_generate(&o, &case_result));
    cr_assert(strstr(case_result.message, "--root"), "%s", case_result.message);
}

Test(layout, syntax_error) {
    REFUSED("local function body()", "local function = body()", "case.lua:20:", "expected");
}

Test(layout, runaway_loop) {
    REFUSED(
        "local inner =", "while true do end local inner =", "case.lua:32:", "does a loop not end?");
}

Test(layout, runaway_memory) {
    REFUSED("local inner =", "local t = {} for i = 1, 1e9 do t[i] = {} end local inner =",
            "case.lua:32:", "more than 64 MiB of memory");
}

Test(layout, returns_no_layout) {
    REFUSED("return layout \"base\" {", "return deployment {", "what the file returns",
            "found deployment", "layout \"...\" {...}");
    REFUSED("return layout \"base\" {", "local _ = layout \"base\" {", "found nil");
}

Test(layout, unknown_field_of_the_layout) {
    REFUSED("    model = build,", "    model = build, modle = 1,", "case.lua:60: layout \"base\"",
            "unknown field 'modle'", "allowed: deployments doc model");
}

Test(layout, unknown_field_of_a_value) {
    REFUSED("input = true", "inputs = true", "case.lua:36: value \"input\"",
            "unknown field 'inputs'", "allowed: input output per");
}

Test(layout, what_is_said_of_a_checkpoint) {
    REFUSED("layers = {", "checkpoint = { file = {} }, layers = {", "unknown field 'file'",
            "allowed: files names unread");
    REFUSED("layers = {", "checkpoint = { names = { 1 } }, layers = {", "names", "found 1");
    REFUSED("layers = {", "checkpoint = { files = { x = 1 } }, layers = {", "field 'x'", "found 1");
    REFUSED("layers = {", "checkpoint = { files = { x = { y = type } } }, layers = {",
            "checkpoint: found", "allowed: numbers, strings");
}

Test(layout, unknown_field_of_a_part) {
    REFUSED("set = { eps = 1e-5 }", "sets = { eps = 1e-5 }", "case.lua:22: part \"norm\"",
            "unknown field 'sets'", "allowed: reads set writes");
}

Test(layout, unknown_field_of_a_use) {
    REFUSED("stream = \"side\"", "streams = \"side\"", "case.lua:10: use \"fix/route\"",
            "unknown field 'streams'");
}

Test(layout, unknown_stream) {
    REFUSED("stream = \"side\"", "stream = \"third\"", "case.lua:10:", "field 'stream'",
            "found \"third\"", "allowed: \"main\", \"side\"");
}

Test(layout, wrong_types) {
    REFUSED("max_context = 64", "max_context = \"64\"", "case.lua:62: deployment",
            "field 'max_context'", "found the string \"64\"", "an integer from 1");
    REFUSED("input = true", "input = 1", "case.lua:36:", "field 'input'", "found 1",
            "true or false");
    REFUSED("\"f32\", rows, H, input", "f32, rows, H, 2.5, input", "case.lua:36:", "dimension 3",
            "found 2.5", "an integer");
    REFUSED("from = { tensor \"l.{l}.gain\" { \"bf16\", H } }", "from = 7",
            "case.lua:47:", "field 'from'", "found 7", "a table in braces");
    REFUSED("reads = { s = \"s\", gain = \"gain\" }", "reads = { s = 4, gain = \"gain\" }",
            "case.lua:22: part \"norm\": reads.s", "found 4", "a name or prev");
}

Test(layout, a_constructor_without_its_table) {
    REFUSED("value \"x\" { \"bf16\", rows, H }", "value \"x\"", "case.lua:33: values",
            "found a function (of a constructor that lacks its table?)", "value \"...\" {...}");
}

Test(layout, negative_and_huge_sizes) {
    REFUSED("local H <const> = 64", "local H <const> = -64", "dimension 2", "found -64",
            "an integer from 1");
    REFUSED("local H <const> = 64", "local H <const> = 1 << 60", "dimension 2",
            "found 1152921504606846976", "to 1099511627776");
    REFUSED("{ \"f32\", rows, H },", "{ \"f32\", rows, 1 << 30, 1 << 30 },", "\"s\"", "too large");
    REFUSED("variants = { { 1, 1 }, { 2, 4 } }", "variants = { { 1, 0 } }", "variants: q",
            "found 0");
    REFUSED("tp = 1,", "tp = -1,", "case.lua:62: deployment: field 'tp'", "found -1");
}

Test(layout, unknown_dtype_and_dimension) {
    REFUSED("{ \"i32\", rows }", "{ \"i31\", rows }", "case.lua:42: value \"r\": dtype",
            "the string \"i31\"", "bf16 f32 f64");
    REFUSED("{ \"i32\", rows }", "{ \"i32\", \"row\" }", "case.lua:42:", "the string \"row\"",
            "rows requests q pages table_width");
}

Test(layout, duplicate_names) {
    REFUSED("value \"t\" {", "value \"s\" {", "case.lua:41: duplicate name \"s\"",
            "declared before at case.lua:37");
    REFUSED("value \"t\" {", "value \"tokens\" {", "case.lua:41: duplicate name \"tokens\"");
    REFUSED("weight \"gate\" {", "weight \"gain\" {", "case.lua:48: duplicate name \"gain\"");
    REFUSED("part \"up\" \"gemm\"", "part \"norm\" \"gemm\"",
            "case.lua:24: duplicate part \"norm\"", "stands before at case.lua:22");
    REFUSED("kinds = { kind", "kinds = { kind \"body\" { parts = {} }, kind",
            "duplicate kind \"body\": stands before at case.lua:54");
    REFUSED("group \"full\" { window = 0 }", "group \"full\" { window = 0 }, group \"full\" {}",
            "duplicate group \"full\": stands before at case.lua:34");
    REFUSED("tp = 2,", "tp = 1,", "case.lua:63:", "tp 1", "stands twice: before at case.lua:62");
    REFUSED("{ { 1, 1 }, { 2, 4 } }", "{ { 2, 4 }, { 2, 4 } }", "variant 2x4 stands twice");
}

Test(layout, a_name_declared_twice_by_a_function_is_found_at_its_calls) {
    const char *text = case_replace(case_base(), "local function build(d)",
                                    "local function bf16_rows(name, n)\n"
                                    "    local made = value(name) { bf16, rows, n }\n"
                                    "    return made\nend\n\nlocal function build(d)");
    text = case_replace(text, "value \"x\" { \"bf16\", rows, H }", "bf16_rows(\"x\", H)");
    text = case_replace(text, "value \"y\" { \"bf16\", rows, H }", "bf16_rows(\"x\", H)");
    cr_assert_not(case_generate(text, (lathe_generate_options){0}));
    case_expect_message((const char *const[]){
        "case.lua:32: duplicate name \"x\", called at case.lua:45: declared before at case.lua:32, "
        "called at case.lua:43",
        NULL});
}

Test(layout, aux_layers_are_layers_that_write_an_output) {
    const char *text = case_replace(case_base(), "value \"t\" { \"f32\", rows, H }",
                                    "value \"t\" { f32, rows, H, per = \"layer\", output = true }");
    static const struct {
        const char *aux, *message;
    } wrong[] = {{"{ 1, 3 }", "case.lua:62: aux: found 3, allowed: an integer from 0 to 2"},
                 {"{ 1, 1 }", "case.lua:62: aux: found 1 after 1, allowed: layer numbers in asc"},
                 {"{ 2, 1 }", "case.lua:62: aux: found 1 after 2, allowed: layer numbers in asc"},
                 {"{ -1 }", "case.lua:62: aux: found -1, allowed: an integer from 0"},
                 {"{ \"1\" }", "case.lua:62: aux: found the string \"1\""}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *aux = lathe_arena_print(case_arena, "tp = 1, aux = %s,", wrong[i].aux);
        cr_assert_not(
            case_generate(case_replace(text, "tp = 1,", aux), (lathe_generate_options){0}));
        case_expect_message((const char *const[]){wrong[i].message, NULL});
    }
    cr_assert(case_generate(case_replace(text, "tp = 1,", "tp = 1, aux = { 0, 2 },"),
                            (lathe_generate_options){0}),
              "%s", case_result.message);
    REFUSED("tp = 1,", "tp = 1, aux = { 1 },",
            "case.lua:62: aux: layer 1: no part of it writes an output per layer");
}

Test(layout, a_kind_of_no_layer_is_refused) {
    REFUSED("kinds = { kind", "kinds = { kind \"spare\" { parts = {} }, kind",
            "case.lua:54:", "kind \"spare\": no layer is of this kind");
}

Test(layout, what_no_part_touches_is_refused) {
    REFUSED("value \"x\" {", "value \"spare\" { f32, rows },\n value \"x\" {",
            "case.lua:38: \"spare\": no part reads or writes this value");
    REFUSED("value \"x\" {", "value \"spare\" { f32, rows, input = true },\n value \"x\" {",
            "case.lua:38: \"spare\": an input that no part reads");
    REFUSED("weight \"gate\" {",
            "weight \"spare\" { bf16, H, from = { tensor \"spare\" { bf16, H } } },\n"
            "weight \"gate\" {",
            "case.lua:48: \"spare\": no part reads this weight");
    REFUSED("        prepare = {",
            "caches = { cache \"kv\" { bf16, pages, 2, group = \"full\" } },\n        prepare = {",
            "case.lua:52: \"kv\": no part reads or writes this cache");
}

Test(layout, unknown_layer_kind_and_group) {
    REFUSED(
        "layers = { \"body\", \"body\", \"body\" }",
        "layers = (function() local t = {} for i = 1, 4097 do t[i] = 'body' end return t end)()",
        "found 4097 layers, allowed: at most 4096");
    REFUSED("layers = { \"body\",", "layers = { \"bdy\",",
            "layers: found \"bdy\", allowed: \"body\"");
    REFUSED("        prepare = {",
            "caches = { cache \"kv\" { bf16, pages, 2, group = \"ful\" } },\n        prepare = {",
            "cache \"kv\": field 'group': found \"ful\", allowed: \"full\"");
    REFUSED("        prepare = {",
            "caches = { cache \"kv\" { bf16, 2, pages, group = \"full\" } },\n        prepare = {",
            "cache \"kv\": dimension 1", "allowed: pages");
}

Test(layout, deployments_are_picked_by_size_and_name) {
    cr_assert(case_generate(case_base(), (lathe_generate_options){.tp = 2}));
    cr_assert(strstr(case_read(case_path("out/step.json")), "\"tp\": 2"));
    cr_assert(case_generate(case_base(), (lathe_generate_options){.deployment = "other"}));
    const char *step = case_read(case_path("out/step.json"));
    cr_assert(strstr(step, "\"deployment\": \"other\""));
    cr_assert(strstr(step, "\"max_context\": 100"));
    cr_assert(strstr(step, "\"table_width\": 7"));
}

Test(layout, a_deployment_that_is_not_there_is_answered_with_those_that_are) {
    cr_assert_not(case_generate(case_base(), (lathe_generate_options){.deployment = "none"}));
    case_expect_message((const char *const[]){"case.lua:60:", "no deployment \"none\" of tp 1",
                                              "there are: tp 1, tp 2, tp 1 other", NULL});
}

Test(layout, a_tp_size_that_is_not_served_is_refused_with_reasons) {
    cr_assert_not(case_generate(case_base(), (lathe_generate_options){.tp = 5}));
    case_expect_message(
        (const char *const[]){"no deployment of tp 5", "there are: tp 1, tp 2",
                              "case.lua:32: inner width: 48 do not divide by 5 ranks", NULL});
    cr_assert_not(case_generate(case_base(), (lathe_generate_options){.tp = 4}));
    case_expect_message(
        (const char *const[]){"inner width: 48 / 4 = 12 is no multiple of 8", NULL});
}

Test(layout, a_declared_tp_size_that_does_not_divide_is_refused_with_reasons) {
    cr_assert_not(case_generate(case_replace(case_base(), "tp = 2,", "tp = 7,"),
                                (lathe_generate_options){.tp = 7}));
    case_expect_message((const char *const[]){"case.lua:63:", "cannot be split over 7 ranks",
                                              "inner width: 48 do not divide by 7 ranks", NULL});
}

Test(layout, unknown_architecture) {
    cr_assert_not(case_generate(case_base(), (lathe_generate_options){.arch = "sm_80"}));
    case_expect_message((const char *const[]){"unknown architecture \"sm_80\"",
                                              "sm_90a sm_100a sm_103a sm_120a host", NULL});
}

Test(layout, dimensions_may_be_functions_of_the_variant) {
    ACCEPTED("value \"r\" { \"i32\", rows }",
             "value \"r\" { \"i32\", function(v) return v.requests * v.q end }");
    REFUSED("value \"r\" { \"i32\", rows }",
            "value \"r\" { \"i32\", function(v) return -v.rows end }", "case.lua:42: \"r\"",
            "found -1");
    REFUSED("value \"r\" { \"i32\", rows }",
            "value \"r\" { \"i32\", function(v) return v.row end }",
            "case.lua:42:", "nothing is called 'row' here");
}

Test(layout, prepare_knows_no_rows) {
    REFUSED("value \"alpha\" { \"f32\", H,", "value \"alpha\" { \"f32\", rows,",
            "case.lua:44: \"alpha\"", "`prepare` cannot touch it");
}

Test(layout, an_epsilon_that_is_none_is_refused) {
    const char *toy = case_read(LATHE_SOURCE_DIR "/layouts/toy.lua");
    static const char *const wrong[] = {"eps = 0,", "eps = -1e-5,"};
    for (size_t i = 0; i < 2; i++) {
        cr_assert_not(case_generate(case_replace(toy, "eps = 1e-5,", wrong[i]),
                                    (lathe_generate_options){.root = LATHE_SOURCE_DIR}));
        case_expect_message(
            (const char *const[]){"case.lua:", "constant kEps", "allowed: from 1e-30", NULL});
    }
}
