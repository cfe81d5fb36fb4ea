/* SPDX-License-Identifier: Apache-2.0
 * Covering, binding and ordering: what does not meet is refused with both sides, what does is
 * ordered rightly. */
#include "codegen_case.h"

TestSuite(wire, .init = case_begin, .fini = case_end, .timeout = 60);

static const char *step_of(const char *layout, lathe_generate_options options) {
    cr_assert(case_generate(layout, options), "%s", case_result.message);
    return case_read(case_path("out/step.json"));
}

/* The operations of a list of the first variant, e.g. "norm early, fork, route side". */
static const char *operations(const char *step, const char *begin) {
    lathe_text text = {.arena = case_arena};
    const char *at = strstr(strstr(step, "\"variants\""), begin);
    cr_assert(at);
    for (at = strchr(at, '\n') + 1; *(at += strspn(at, " ")) == '{'; at = strchr(at, '\n') + 1) {
        const char *end = strchr(at, '\n');
        const char *kernel = strstr(at, "\"kernel\": \"");
        lathe_text_print(&text, "%s", text.size ? ", " : "");
        if (kernel && kernel < end) {
            kernel += strlen("\"kernel\": \"");
            lathe_text_print(&text, "%.*s", (int)strcspn(kernel, "_\""), kernel);
            const char *early = strstr(at, "\"early\": true"), *side = strstr(at, "\"stream\": 1");
            lathe_text_print(&text, "%s%s", early && early < end ? " early" : "",
                             side && side < end ? " side" : "");
        } else {
            const char *fork = strstr(at, "\"fork\"");
            lathe_text_print(&text, "%s", fork && fork < end ? "fork" : "join");
        }
    }
    return lathe_text_string(&text);
}

Test(wire, side_launches_are_forked_and_joined_where_they_must) {
    cr_assert_str_eq(operations(step_of(case_base(), (lathe_generate_options){0}), "\"body\": ["),
                     "norm early, fork, route side, up, down early, add early, join, mix");
}

Test(wire, a_side_launch_nobody_waits_for_is_joined_at_the_end) {
    const char *layout = case_replace(case_base(), "reads = { r = \"r\", a = \"t\" }",
                                      "reads = { r = \"r0\", a = \"t\" }");
    layout = case_replace(
        layout, "value \"r\" { \"i32\", rows },",
        "value \"r\" { \"i32\", rows }, value \"r0\" { \"i32\", rows, input = true },");
    layout = case_replace(layout, "writes = { s = \"s\" } },", "writes = { s = \"u\" } },");
    layout = case_replace(layout, "value \"t\" { \"f32\", rows, H },",
                          "value \"t\" { \"f32\", rows, H }, value \"u\" { \"f32\", rows, H },");
    cr_assert_str_eq(operations(step_of(layout, (lathe_generate_options){0}), "\"body\": ["),
                     "norm, fork, route side, up, down early, add early, mix early, join");
}

Test(wire, overwriting_what_the_side_stream_reads_waits_for_it) {
    const char *layout = case_replace(case_base(), "reads = { r = \"r\", a = \"t\" }",
                                      "reads = { r = \"r0\", a = \"t\" }");
    layout = case_replace(
        layout, "value \"r\" { \"i32\", rows },",
        "value \"r\" { \"i32\", rows }, value \"r0\" { \"i32\", rows, input = true },");
    cr_assert_str_eq(operations(step_of(layout, (lathe_generate_options){0}), "\"body\": ["),
                     "norm early, fork, route side, up, down early, add early, join, mix");
}

Test(wire, a_second_side_launch_that_needs_the_main_stream_forks_again) {
    const char *layout = case_replace(case_base(), "use \"fix/add\" { parts = { \"add\" } }",
                                      "use \"fix/add\" { parts = { \"add\" }, stream = \"side\" }");
    cr_assert_str_eq(operations(step_of(layout, (lathe_generate_options){0}), "\"body\": ["),
                     "norm early, fork, route side, up, down early, fork, add side, join, mix");
}

Test(wire, the_first_launch_of_a_kind_is_early_only_after_a_launch_that_triggers) {
    const char *layout = case_replace(case_base(), "use \"fix/mix\" { parts = { \"mix\" } }",
                                      "use \"fix/mix\" { parts = { \"mix\" } }");
    cr_assert_str_eq(operations(step_of(layout, (lathe_generate_options){0}), "\"prologue\": ["),
                     "begin");
    /* With a join last in every layer nothing early may follow. */
    layout = case_replace(case_base(), "use \"fix/mix\" { parts = { \"mix\" } }",
                          "use \"fix/mix\" { parts = { \"mix\" }, stream = \"side\" }");
    cr_assert_str_eq(operations(step_of(layout, (lathe_generate_options){0}), "\"body\": ["),
                     "norm, fork, route side, up, down early, add early, fork, mix side, join");
}

/* "s" is written before "up", which begins after all before it has ended; "y" by "down", just
 * before. */
Test(wire, a_launch_is_early_only_where_its_settled_arguments_are_settled) {
    const char *layout = case_replace(case_base(), "use \"fix/add\"", "use \"fix/add_settled\"");
    cr_assert_str_eq(operations(step_of(layout, (lathe_generate_options){0}), "\"body\": ["),
                     "norm early, fork, route side, up, down early, add early, join, mix");
    layout = case_replace(case_base(), "use \"fix/add\"", "use \"fix/add_unsettled\"");
    cr_assert_str_eq(operations(step_of(layout, (lathe_generate_options){0}), "\"body\": ["),
                     "norm early, fork, route side, up, down early, add, join, mix");
    /* What "down" has written ahead is there when its successor begins. */
    layout = case_replace(layout, "use \"fix/product\" { parts = { \"down\" }",
                          "use \"fix/product_ahead\" { parts = { \"down\" }");
    cr_assert_str_eq(operations(step_of(layout, (lathe_generate_options){0}), "\"body\": ["),
                     "norm early, fork, route side, up, down early, add early, join, mix");
}

Test(wire, a_launch_that_waits_for_its_blocks_is_never_early) {
    const char *layout = case_replace(case_base(), "use \"fix/copy\" { parts = { \"end\" } }",
                                      "use \"fix/exchange\" { parts = { \"end\" } }");
    const char *step = step_of(layout, (lathe_generate_options){0});
    cr_assert_str_eq(operations(step, "\"epilogue\": ["), "end");
    cr_assert(strstr(step, "{\"bytes\": 2048, \"index\": 0, \"name\": \"sum\"}"));
    cr_assert(strstr(step, "\"mail\": \"mailbox:sum\""));
}

Test(wire, partial_sums_reach_the_consumer_in_their_form) {
    const char *step = step_of(case_base(), (lathe_generate_options){0});
    cr_assert(strstr(step, "\"b\": null, \"b_partials\": \"y\""));
    cr_assert(strstr(step,
                     "{\"dtype\": \"f32\", \"form\": \"k_partials\", \"lifetime\": \"scratch\", "
                     "\"line\": \"case.lua:40\", \"name\": \"y\", \"scope\": \"step\", "
                     "\"shape\": [2, 8, 64]}"));
    step = step_of(
        case_replace(case_base(), "options = { partials = 1 }", "options = { partials = 0 }"),
        (lathe_generate_options){0});
    cr_assert(strstr(step, "\"b\": \"y\", \"b_partials\": null"));
}

Test(wire, a_form_may_differ_between_variants) {
    const char *step = step_of(
        case_replace(case_base(), "options = { partials = 1 }",
                     "options = { partials = function(v) return v.rows > 1 and 1 or 0 end }"),
        (lathe_generate_options){0});
    cr_assert(strstr(step, "\"b\": \"y\", \"b_partials\": null"));
    cr_assert(strstr(step, "\"b\": null, \"b_partials\": \"y.k_partials\""));
    cr_assert(strstr(
        step,
        "{\"dtype\": \"bf16\", \"form\": \"whole\", \"lifetime\": \"scratch\", "
        "\"line\": \"case.lua:40\", \"name\": \"y\", \"scope\": \"step\", \"shape\": [1, 64]}"));
}

Test(wire, unknown_options_and_attributes) {
    REFUSED("options = { partials = 1 }", "options = { partial = 1 }",
            "case.lua:12:", "unknown option 'partial'");
    REFUSED("options = { partials = 1 }", "options = { partials = 2 }",
            "case.lua:12:", "constant kPartials",
            "found 2, allowed: from 0 to 1 (templates/fix/product.lua:9)");
    REFUSED("set = { eps = 1e-5 }", "set = { eps = 1e-5, center = 1 }", "case.lua:22:",
            "part \"norm\": unknown attribute 'center'; no constant of templates/fix/norm.lua "
            "comes from it");
    REFUSED("set = { eps = 1e-5 }", "set = {}",
            "case.lua:22:", "constant kEps (templates/fix/norm.lua:8) comes from norm.eps",
            "but part \"norm\" sets no 'eps'");
    REFUSED("set = { eps = 1e-5 }", "set = { eps = \"1e-5\" }", "case.lua:22:", "found the string",
            "allowed: a number");
    REFUSED("set = { eps = 1e-5 }", "set = { eps = 0/0 }", "case.lua:22:", "constant kEps");
}

Test(wire, forms_that_do_not_meet_name_both_sides) {
    REFUSED("use \"fix/product\" { parts = { \"up\" } }",
            "use \"fix/product\" { parts = { \"up\" }, options = { partials = 1 } }",
            "case.lua:25: body: part \"down\": provider fix/product: forms do not meet",
            "\"h\" comes as k_partials from provider fix/product (body: part \"up\", case.lua:24)",
            "gemm.x is taken as: whole");
}

Test(wire, shapes_that_do_not_meet_name_both_sides) {
    REFUSED("value \"h\" { \"bf16\", rows, inner }", "value \"h\" { \"bf16\", rows, inner + 8 }",
            "body: part \"up\": provider fix/product: shapes do not meet",
            "kN is 48 by argument 'w', bound to \"up\" [48, 64] (case.lua:49)",
            "56 by argument 'y', bound to \"h\" [1, 56] (case.lua:39)");
    REFUSED("part \"down\" \"gemm\" { reads = { x = \"h\"",
            "part \"down\" \"gemm\" { reads = { x = \"x\"", "part \"down\"",
            "kK is 64 by argument 'x', bound to \"x\" [1, 64] (case.lua:38, from "
            "provider fix/norm (body: part \"norm\"))",
            "48 by argument 'w'");
    REFUSED("value \"r\" { \"i32\", rows }", "value \"r\" { \"i32\", rows, 2 }", "part \"route\"",
            "argument 'r' (templates/fix/route.lua:8) has 1 dimensions", "\"r\" [1, 2]");
}

Test(wire, dtypes_that_do_not_meet) {
    REFUSED("value \"x\" { \"bf16\"", "value \"x\" { \"f32\"", "case.lua:38:", "\"x\" is f32",
            "argument 'x' (templates/fix/norm.lua:14) takes bf16");
}

Test(wire, an_argument_that_no_buffer_feeds) {
    REFUSED("reads = { s = \"s\", gain = \"gain\" }", "reads = { s = \"s\" }",
            "case.lua:9: body: part \"norm\": provider fix/norm",
            "argument 'gain' (templates/fix/norm.lua:13): no buffer feeds norm.gain",
            "part \"norm\" (case.lua:22) names none");
}

Test(wire, a_port_that_no_argument_takes) {
    REFUSED("part \"route\" \"route\" { reads = { s = \"s\" }",
            "part \"route\" \"route\" { reads = { s = \"s\", x = \"x\" }",
            "case.lua:23:", "reads \"x\" as route.x",
            "the provider (templates/fix/route.lua:2) has no argument");
}

Test(wire, names_that_are_not_declared) {
    REFUSED("reads = { x = \"h\", w = \"down\" }", "reads = { x = \"hh\", w = \"down\" }",
            "case.lua:25:", "part \"down\" reads \"hh\", which is not declared");
    REFUSED("writes = { y = \"h\" }", "writes = { y = \"hh\" }",
            "case.lua:24:", "part \"up\" writes \"hh\", which is not declared");
}

Test(wire, a_value_read_before_it_is_written) {
    REFUSED("reads = { a = \"input\" }", "reads = { a = \"t\" }", "case.lua:53:",
            "reads the value \"t\" (case.lua:41), which no launch before it writes");
}

Test(wire, a_value_that_is_another_thing_in_a_later_layer) {
    /* Layer 0 reads y as the prologue left it, whole; layer 1 would read the partial sums of layer
     * 0. */
    const char *layout = case_replace(case_base(), "use \"fix/copy\" { parts = { \"begin\" } },",
                                      "use \"fix/copy\" { parts = { \"begin\" } },\n"
                                      "use \"fix/norm\" { parts = { \"first\" } },");
    layout = case_replace(
        layout, "prologue = { part",
        "prologue = { part \"first\" \"norm\" { reads = { s = \"input\", gain = \"gain\" }, "
        "writes = { x = \"y\" }, set = { eps = 0 } }, part");
    const char *down = "        part \"down\" \"gemm\" { reads = { x = \"h\", w = \"down\" }, "
                       "writes = { y = \"y\" } },\n";
    layout = case_replace(layout, down, "");
    layout = case_replace(layout, "        part \"mix\" \"mix\"",
                          lathe_arena_print(case_arena, "%s        part \"mix\" \"mix\"", down));
    cr_assert_not(case_generate(layout, (lathe_generate_options){0}));
    case_expect_message((const char *const[]){
        "kind \"body\", layer 1: \"y\"",
        "is k_partials f32 [2, 1, 64] from provider fix/product (body: part \"down\") here",
        "but whole bf16 [1, 64] from provider fix/norm (prologue: part \"first\") in an earlier "
        "layer",
        NULL});
}

Test(wire, outputs_must_be_written_and_inputs_must_not) {
    REFUSED("value \"t\" { \"f32\", rows, H }",
            "value \"t\" { \"f32\", rows, H }, value \"o\" { \"f32\", 1, output = true }",
            "case.lua:41: value \"o\": an output that no part writes");
    REFUSED("writes = { b = \"s\" } } },", "writes = { b = \"input\" } } },",
            "case.lua:53:", "not for writing");
    REFUSED("writes = { x = \"x\" }", "writes = { x = \"gain\" }",
            "case.lua:22:", "writes \"gain\", which is not for writing");
}

Test(wire, what_a_launch_reads_it_must_not_write) {
    REFUSED("writes = { s_out = \"t\" }", "writes = { s_out = \"s\" }",
            "case.lua:26:", "arguments 's' and 's_out' are both \"s\"",
            "allowed: one inout argument");
}

static const char *bump(const char *value) {
    const char *layout =
        case_replace(case_base(), "use \"fix/norm\" {",
                     "use \"fix/bump\" { parts = { \"bump\" } }, use \"fix/norm\" {");
    return case_replace(
        layout,
        "prologue = { part \"begin\" \"copy\" { reads = { a = \"input\" }, writes = { b = \"s\" } "
        "} },",
        lathe_arena_print(
            case_arena,
            "prologue = { part \"begin\" \"copy\" { reads = { a = \"input\" }, writes = { b = "
            "\"s\" } }, "
            "part \"bump\" \"bump\" { reads = { s = \"%s\" }, writes = { s = \"%s\" } } },",
            value, value));
}

Test(wire, an_inout_argument_is_read_and_written) {
    const char *step = step_of(bump("s"), (lathe_generate_options){0});
    cr_assert_str_eq(operations(step, "\"prologue\": ["), "begin, bump");
    cr_assert(strstr(step, "\"dir\": \"inout\""));
    cr_assert_not(case_generate(bump("t"), (lathe_generate_options){0}));
    case_expect_message((const char *const[]){
        "part \"bump\" reads the value \"t\" (case.lua:41), which no launch before it writes",
        NULL});
}

Test(wire, parts_that_nothing_covers) {
    REFUSED("use \"fix/mix\" { parts = { \"mix\" } },", "",
            "case.lua:27: body: part \"mix\" of kind mix",
            "covered by no use of the deployment (case.lua:62)");
    REFUSED(
        "use \"fix/mix\" { parts = { \"mix\" } },", "use \"fix/mix\" { parts = { \"mxi\" } },",
        "case.lua:14: use \"fix/mix\": unknown part \"mxi\"; allowed: gate begin end norm route "
        "up down add mix");
    /* Another use covers what was meant. */
    REFUSED("use \"fix/mix\" { parts = { \"mix\" } },",
            "use \"fix/mix\" { parts = { \"mix\" } }, use \"fix/gate\" { parts = { \"gaet\" } },",
            "case.lua:14: use \"fix/gate\": unknown part \"gaet\"; allowed: gate begin end norm ");
}

Test(wire, a_use_that_covers_nothing) {
    const char *of_mix = "use \"fix/mix\" { parts = { \"mix\" } },";
    REFUSED(of_mix,
            "use \"fix/mix\" { parts = { \"mix\" } },\nuse \"fix/add\" { parts = { \"mix\" } },",
            "case.lua:15: use \"fix/add\" covers nothing: in body, use \"fix/mix\" (",
            "case.lua:14) comes first");
    REFUSED(of_mix,
            "use \"fix/mix\" { parts = { \"mix\" } },\nuse \"fix/none\" { parts = { \"mix\" } },",
            "case.lua:15: use \"fix/none\": unknown provider");
    REFUSED(of_mix,
            "use \"fix/mix\" { parts = { \"mix\" } }, use \"fix/add\" { parts = { \"mix\", \"end\" "
            "} },",
            "case.lua:14: use \"fix/add\" covers nothing: no list of parts has all of its parts");
}

Test(wire, a_provider_of_other_kinds) {
    REFUSED("use \"fix/mix\" { parts = { \"mix\" } }", "use \"fix/add\" { parts = { \"mix\" } }",
            "case.lua:14:", "provider fix/add covers parts of the kinds add, found mix");
    REFUSED("use \"fix/mix\" { parts = { \"mix\" } }",
            "use \"fix/mix\" { parts = { \"mix\", \"mix\" } }",
            "case.lua:14:", "part \"mix\" stands twice");
}

Test(wire, prev_needs_a_layer_before) {
    REFUSED("gain = \"gain\" }", "gain = prev \"gain\" }", "case.lua:22: part \"norm\"",
            "prev \"gain\": layer 0 has no layer before it");
    REFUSED("reads = { s = \"s\", gain", "reads = { s = prev \"s\", gain",
            "case.lua:22:", "prev \"s\": it is not per layer (case.lua:37)");
}

Test(wire, prev_and_the_epilogue_bind_the_right_layers) {
    const char *layout = case_replace(
        case_base(), "kinds = { kind \"body\" { parts = body() } },",
        "kinds = { kind \"first\" { parts = body() }, kind \"body\" { parts = body('prev') } },");
    layout = case_replace(layout, "local function body()", "local function body(how)");
    layout = case_replace(layout, "alpha = \"alpha\" }", "alpha = how and prev \"alpha\" or nil }");
    layout = case_replace(layout, "layers = { \"body\",", "layers = { \"first\",");
    const char *step = step_of(layout, (lathe_generate_options){0});
    cr_assert(strstr(step, "\"alpha\": {\"buffer\": \"alpha\", \"layer\": -1}"));
    /* Layers 1 and 2 read the gate of layers 0 and 1: no other is prepared, and no other weight
     * loaded. */
    cr_assert(strstr(step, "\"kernel\": \"gate\", \"layers\": [0, 1]"));
    cr_assert(strstr(step, "\"form\": \"whole\", \"layers\": [0, 1], \"lifetime\": \"weight\", "
                           "\"line\": \"case.lua:48\", \"name\": \"gate\""));
    cr_assert(
        strstr(step, "\"layers\": [0, 1, 2], \"lifetime\": \"weight\", \"line\": \"case.lua:47\""));
}

Test(wire, what_nobody_reads_is_not_prepared) {
    const char *step = step_of(case_replace(case_base(), ", alpha = \"alpha\" }", " }"),
                               (lathe_generate_options){0});
    cr_assert_null(strstr(step, "\"name\": \"alpha\", \"scope\""));
    cr_assert_null(strstr(step, "\"name\": \"gate\""));
    cr_assert(strstr(step, "\"prepare\": []"));
}

Test(wire, the_step_must_not_write_what_prepare_made) {
    const char *layout = case_replace(case_base(), "use \"fix/gate\" { parts = { \"gate\" } },",
                                      "use \"fix/gate\" { parts = { \"gate\" } },\n"
                                      "use \"fix/gate\" { parts = { \"bad\" } },");
    layout = case_replace(
        layout, "    }\nend\n\nlocal function build",
        "part \"bad\" \"gate\" { reads = { w = \"gate\" }, writes = { alpha = \"alpha\" } },\n"
        "    }\nend\n\nlocal function build");
    cr_assert_not(case_generate(layout, (lathe_generate_options){0}));
    case_expect_message((const char *const[]){
        "part \"bad\"", "writes \"alpha\", which `prepare` has made for good", NULL});
}

Test(wire, kernels_are_shared_by_equal_launches) {
    const char *step = step_of(case_base(), (lathe_generate_options){0});
    cr_assert(strstr(step, "\"args\": {\"a\": \"s\", \"b\": \"output\"}, \"early\": false, "
                           "\"kernel\": \"begin_1x1\""));
    cr_assert_null(strstr(step, "\"kernel\": \"end"));
}

Test(wire, kernels_of_the_same_part_get_their_kind_in_the_name) {
    const char *layout = case_replace(
        case_base(), "kinds = { kind \"body\" { parts = body() } },",
        "kinds = { kind \"a\" { parts = body(1e-5) }, kind \"b\" { parts = body(1e-6) } },");
    layout = case_replace(layout, "local function body()", "local function body(eps)");
    layout = case_replace(layout, "eps = 1e-5", "eps = eps");
    layout = case_replace(layout, "{ \"body\", \"body\", \"body\" }", "{ \"a\", \"b\", \"a\" }");
    const char *step = step_of(layout, (lathe_generate_options){0});
    cr_assert(strstr(step, "\"name\": \"norm_a_1x1\""));
    cr_assert(strstr(step, "\"name\": \"norm_b_1x1\""));
    cr_assert(strstr(step, "\"name\": \"up_1x1\""));
}

Test(wire, names_that_nothing_has_are_refused_with_what_is_allowed) {
    REFUSED(
        "use \"fix/norm\" { parts = { \"norm\" } }", "use \"fix/norm\" { parts = { \"nrm\" } }",
        "case.lua:9: use \"fix/norm\": unknown part \"nrm\"; allowed: ", " norm route up down ");
    REFUSED("options = { partials = 1 }", "options = { partial = 1 }",
            "unknown option 'partial'; allowed: partials");
    REFUSED("set = { eps = 1e-5 }", "set = { epz = 1e-5 }", "unknown attribute 'epz'",
            "; allowed: eps");
    REFUSED("reads = { x = \"x\", w = \"up\" }", "reads = { x = \"x\", w = \"up\", z = \"x\" }",
            "has no argument; allowed: gemm.");
}
