/* SPDX-License-Identifier: Apache-2.0
 * Values that cross through a mailbox: publisher and receiver meet, and what does not is refused
 * with both ends named. */
#include "codegen_case.h"
#include "tactic.h"

TestSuite(published, .init = case_begin, .fini = case_end, .timeout = 60);

#define SEND                                                                                       \
    "use \"fix/product\" { parts = { \"down\" }, options = { partials = 1 } }",                    \
        "use \"fix/send\" { parts = { \"down\" } }"
#define RECEIVE "use \"fix/add\" {", "use \"fix/receive\" {"

static const char *both(void) {
    return case_replace(case_replace(case_base(), SEND), RECEIVE);
}

#define REFUSED_FROM(layout, ...)                                                                  \
    do {                                                                                           \
        cr_assert_not(case_generate(layout, (lathe_generate_options){0}));                         \
        case_expect_message((const char *const[]){__VA_ARGS__, NULL});                             \
    } while (0)

Test(published, crosses_without_a_buffer) {
    cr_assert(case_generate(both(), (lathe_generate_options){.tp = 2}), "%s", case_result.message);
    const char *step = case_read(case_path("out/step.json"));
    cr_assert(strstr(step, "\"mail\": {\"mailbox\": \"sum\", \"value\": \"y\"}"));
    cr_assert(strstr(step, "\"sum\": {\"mailbox\": \"sum\", \"value\": \"y\"}"));
    cr_assert(strstr(step, "\"mail\": null"), "the receiver does not push as well");
    cr_assert(strstr(step, "{\"dir\": \"mailbox\", \"dtype\": \"bf16\", \"form\": "
                           "\"rank_partials\", \"name\": \"mail\", \"publishes\": true, "
                           "\"shape\": [4, 64]}"));
    cr_assert(strstr(step, "\"name\": \"sum\", \"publishes\": false, \"shape\": [4, 64]}"));
    cr_assert(strstr(step, "{\"bytes\": 512, \"index\": 0, \"name\": \"sum\"}"));
    cr_assert_null(strstr(step, "\"name\": \"y\", \"scope\""), "the value has a buffer");
    const char *kernel = case_read(case_path("out/down_1x4.cu"));
    cr_assert(strstr(kernel, "// mailbox, publishes [4, 64]"));
    cr_assert(strstr(kernel, "kRanks = 2;"));
}

Test(published, a_receiver_pushes_by_itself_where_nothing_is_published) {
    cr_assert(case_generate(
                  case_replace(both(), "{ \"down\" } }", "{ \"down\" }, options = { whole = 1 } }"),
                  (lathe_generate_options){0}),
              "%s", case_result.message);
    const char *step = case_read(case_path("out/step.json"));
    cr_assert(strstr(step, "\"b\": \"y\", \"mail\": \"mailbox:sum\""));
    cr_assert(strstr(step, "\"sum\": null"));
}

Test(published, a_reader_that_does_not_receive_is_named_with_the_publisher) {
    REFUSED_FROM(case_replace(case_base(), SEND),
                 "case.lua:26: body: part \"add\": provider fix/add",
                 "\"y\" comes as rank_partials through exchange \"sum\" from provider fix/send "
                 "(body: part \"down\", case.lua:25)",
                 "taken as: whole, k_partials");
}

/* With one change of the receiver's spec. */
static void refuse_receiver(const char *from, const char *to) {
    const char *copy =
        lathe_arena_print(case_arena, "cp -r '%s/templates' '%s'", FIXTURES, case_folder);
    cr_assert_eq(mkdir(case_path("layouts"), 0777), 0);
    cr_assert_eq(system(copy), 0);
    case_write("templates/fix/receive.lua",
               case_replace(case_read(FIXTURES "/templates/fix/receive.lua"), from, to));
    cr_assert_not(case_generate(both(), (lathe_generate_options){.root = case_folder}));
}

Test(published, exchanges_must_be_the_same) {
    refuse_receiver("exchange = \"sum\", port", "exchange = \"other\", port");
    case_expect_message((const char *const[]){
        "\"y\" comes as rank_partials through exchange \"sum\" from provider fix/send",
        "taken as: whole, rank_partials through exchange \"other\"", NULL});
}

Test(published, is_received_once) {
    const char *layout =
        case_replace(both(), "use \"fix/mix\"",
                     "use \"fix/receive\" { parts = { \"again\" } },\nuse \"fix/mix\"");
    layout = case_replace(layout, "part \"mix\" \"mix\"",
                          "part \"again\" \"add\" { reads = { b = \"y\", s = \"s\", alpha = "
                          "\"alpha\" }, writes = { s_out = \"t\" } },\npart \"mix\" \"mix\"");
    REFUSED_FROM(layout, "part \"again\"", "reads the value \"y\"",
                 "body: part \"add\" (provider fix/receive) has received");
}

Test(published, an_exchange_carries_one_value_at_a_time) {
    const char *layout =
        case_replace(both(), "use \"fix/product\" { parts = { \"up\" } }",
                     "use \"fix/product\" { parts = { \"up\" } },\nuse \"fix/send\" { parts = { "
                     "\"more\" } }");
    layout = case_replace(layout, "part \"add\" \"add\"",
                          "part \"more\" \"gemm\" { reads = { x = \"h\", w = \"down\" }, writes = "
                          "{ y = \"z\" } },\npart \"add\" \"add\"");
    layout = case_replace(layout, "value \"t\"", "value \"z\" { \"bf16\", rows, H }, value \"t\"");
    REFUSED_FROM(layout, "part \"more\"", "uses exchange \"sum\" while it carries \"y\"",
                 "from provider fix/send (body: part \"down\")", "no launch has received yet");
}

/* The base layout with the product published at the end of each layer, and before the first. */
static const char *across_layers(void) {
    const char *layout = case_replace(case_base(), SEND);
    layout = case_replace(layout, "use \"fix/add\" { parts = { \"add\" } }",
                          "use \"fix/receive\" { parts = { \"add\" } },\n"
                          "use \"fix/norm\" { parts = { \"norm0\" } },\n"
                          "use \"fix/send\" { parts = { \"down0\" } }");
    layout = case_replace(layout, "use \"fix/copy\" { parts = { \"end\" } }",
                          "use \"fix/receive\" { parts = { \"end\" } }");
    const char *add = "        part \"add\" \"add\" { reads = { b = \"y\", s = \"s\", alpha = "
                      "\"alpha\" }, writes = { s_out = \"t\" } },\n";
    layout =
        case_replace(case_replace(layout, add, ""), "    return {\n        part \"norm\"",
                     lathe_arena_print(case_arena, "    return {\n%s        part \"norm\"", add));
    layout = case_replace(
        layout, "writes = { b = \"s\" } } },",
        "writes = { b = \"s\" } },\n"
        "part \"norm0\" \"norm\" { reads = { s = \"s\", gain = \"gain\" }, writes = { x = \"x\" }, "
        "set = { eps = 1e-5 } },\n"
        "part \"down0\" \"gemm\" { reads = { x = \"x\", w = \"square\" }, writes = { y = \"y\" } } "
        "},");
    layout = case_replace(layout, "weight \"down\"",
                          "weight \"square\" { \"bf16\", H, H, from = { tensor \"l.{l}.sq\" { "
                          "\"bf16\", H, H } } },\nweight \"down\"");
    return case_replace(layout, "part \"end\" \"copy\" { reads = { a = \"s\" }, writes = { b = ",
                        "part \"end\" \"add\" { reads = { b = \"y\", s = \"s\", alpha = "
                        "\"alpha\" }, writes = { s_out = ");
}

Test(published, crosses_layers) {
    cr_assert(case_generate(across_layers(), (lathe_generate_options){.tp = 2}), "%s",
              case_result.message);
    const char *step = case_read(case_path("out/step.json"));
    size_t bound = 0;
    for (const char *c = step; (c = strstr(c, "{\"mailbox\": \"sum\", \"value\": \"y\"}")); c++)
        bound++;
    cr_assert_eq(bound, 4, "%zu", bound); /* prologue, layer twice, epilogue */
    /* Without the first publisher the first layer has nothing to receive. */
    REFUSED_FROM(
        case_replace(across_layers(), "writes = { y = \"y\" } } },", "writes = { y = \"h\" } } },"),
        "part \"down0\"", "\"h\"");
    /* A layer may not be met with nothing published where it was wired to receive. */
    const char *layout =
        case_replace(across_layers(), "kind \"body\" { parts = body() } },",
                     "kind \"body\" { parts = body() }, kind \"last\" { parts = {\n"
                     "part \"add\" \"add\" { reads = { b = \"y\", s = \"s\", alpha = "
                     "\"alpha\" }, writes = { s_out = \"t\" } } } } },");
    REFUSED_FROM(case_replace(layout, "{ \"body\", \"body\", \"body\" }",
                              "{ \"body\", \"last\", \"body\" }"),
                 "kind \"body\", layer 2: \"y\"", "is not written here",
                 "but rank_partials bf16 [1, 64] through exchange \"sum\" from provider fix/send "
                 "(prologue: part \"down0\") in an earlier layer of the kind");
}

Test(published, must_be_received) {
    const char *layout =
        case_replace(case_replace(case_base(), SEND), "{ b = \"y\", s", "{ b = \"x\", s");
    REFUSED_FROM(layout, "\"y\" is rank_partials bf16", "through exchange \"sum\"",
                 "and not received when the layer begins");
    layout = case_replace(layout, "{ \"body\", \"body\", \"body\" }", "{ \"body\" }");
    REFUSED_FROM(layout, "value \"y\" is rank_partials bf16 [1, 64] through exchange \"sum\" from "
                         "provider fix/send (body: part \"down\"), and no launch of the step "
                         "receives it");
}

Test(published, is_not_written_over) {
    const char *layout =
        case_replace(both(), "use \"fix/mix\"",
                     "use \"fix/product\" { parts = { \"again\" } },\nuse \"fix/mix\"");
    layout = case_replace(layout, "part \"add\" \"add\"",
                          "part \"again\" \"gemm\" { reads = { x = \"h\", w = \"down\" }, writes = "
                          "{ y = \"y\" } },\npart \"add\" \"add\"");
    REFUSED_FROM(layout, "part \"again\": provider fix/product: argument 'y' writes \"y\"",
                 "from provider fix/send (body: part \"down\") and which no launch has received");
}

Test(published, a_launch_takes_an_exchange_once) {
    refuse_receiver("c.kReceives == 0", "c.kReceives < 2");
    case_expect_message((const char *const[]){"provider fix/receive: arguments 'sum'", "and 'mail'",
                                              "are both exchange \"sum\"", NULL});
}

Test(published, neither_outputs_nor_values_of_a_layer) {
    REFUSED_FROM(case_replace(both(), "value \"y\" { \"bf16\", rows, H }",
                              "value \"y\" { \"bf16\", rows, H, output = true }"),
                 "argument 'mail'", "publishes \"y\"", "it is an output of the step");
    REFUSED_FROM(case_replace(both(), "value \"y\" { \"bf16\", rows, H }",
                              "value \"y\" { \"bf16\", rows, H, per = \"layer\" }"),
                 "publishes \"y\"", "it is kept per layer");
    REFUSED_FROM(case_replace(both(), "value \"y\" { \"bf16\"", "value \"y\" { \"f32\""),
                 "\"y\" is f32, but argument 'mail'", "takes bf16");
}

/* Providers that take one rank's values for all there is. */
static const struct {
    const char *provider, *kind;
} alone[] = {
    {"boundary/residual_norm", "rank_sum"},
    {"boundary/residual_norm", "gather"},
    {"embedding/embed", "rank_sum"},
    {"head/argmax", "argmax"},
    {"moe/norm_quantise", "pool_gather"},
    {"moe/expert_norm", "pool_gather"},
    {"moe/tail", "combine"},
};

Test(published, providers_of_one_rank_refuse_several) {
    if (!LATHE_TRY(&case_diag))
        cr_assert_fail("%s", case_diag.message);
    lathe_lua *lua = lathe_lua_create(case_arena, (lathe_lua_folders){LATHE_SOURCE_DIR, FIXTURES});
    const lathe_arch *host = lathe_arch_find(&case_diag, (lathe_where){0}, "host");
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        const lathe_provider *p = lathe_provider_load(lua, (lathe_where){0}, alone[i].provider);
        const lathe_node args[2] = {
            {.kind = LATHE_NODE_TABLE, .table = lathe_tree_make(case_arena)},
            lathe_tactic_arch(case_arena, host, 2, &alone[i].kind, 1)};
        const lathe_node reason = lathe_lua_call(lua, &p->unsupported, args, 2, "unsupported");
        cr_expect(reason.kind == LATHE_NODE_STRING &&
                      strstr(reason.string, "takes those of all 2 ranks"),
                  "%s on %s", alone[i].provider, alone[i].kind);
    }
    lathe_lua_destroy(lua);
}

Test(published, a_spec_may_refuse_a_number_of_ranks) {
    const char *layout = case_replace(
        both(), "deployment { tp = 2",
        "deployment { tp = 3, max_context = 64, variants = { { 1, 4 } }, provide = uses() }, "
        "deployment { tp = 2");
    layout = case_replace(layout, "split(INNER, \"inner width\", 8)",
                          "split(INNER, \"inner width\", 16)");
    cr_assert_not(case_generate(layout, (lathe_generate_options){.tp = 3}));
    case_expect_message(
        (const char *const[]){"provider fix/send: unsupported: more than 2 ranks: 3", NULL});
}
