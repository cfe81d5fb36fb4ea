/* SPDX-License-Identifier: Apache-2.0
 * What a library moves between the ranks, from the layout to the reader of step.json, and the order
 * in which sums over ranks are added up. */
#include "codegen_case.h"

#include "step_table.h"

TestSuite(collective, .init = case_begin, .fini = case_end, .timeout = 60);

#define REDUCE                                                                                     \
    "use \"fix/copy\" { parts = { \"end\" } }", "use \"fix/reduce\" { parts = { \"end\" } }"

static const char *reduced(void) {
    return case_replace(case_base(), REDUCE);
}

static const char *gathered(void) {
    const char *layout = case_replace(case_base(), "use \"fix/copy\" { parts = { \"end\" } }",
                                      "use \"fix/gather\" { parts = { \"all\" } },\n"
                                      "use \"fix/spread\" { parts = { \"end\" } }");
    layout = case_replace(layout, "epilogue = { part \"end\" \"copy\" { reads = { a = \"s\" }",
                          "epilogue = { part \"all\" \"gather\" { reads = { columns = \"s\" }, "
                          "writes = { whole = \"g\" } }, part \"end\" \"copy\" { reads = { a = "
                          "\"g\" }");
    layout =
        case_replace(layout, "value \"t\"", "value \"g\" { \"f32\", rows, 2 * H }, value \"t\"");
    return case_replace(layout, "value \"output\" { \"f32\", rows, H",
                        "value \"output\" { \"f32\", rows, 2 * H");
}

static lathe_step_table *read_step(void) {
    lathe_step_table *table;
    char message[1024] = "";
    cr_assert_eq(lathe_step_table_read(case_path("out"), &table, message, sizeof message), LATHE_OK,
                 "%s", message);
    return table;
}

Test(collective, a_sum_is_an_operation_without_a_kernel) {
    cr_assert(case_generate(reduced(), (lathe_generate_options){.tp = 2}), "%s",
              case_result.message);
    cr_assert_neq(access(case_path("out/end_1x4.cu"), F_OK), 0);
    lathe_step_table *t = read_step();
    const lathe_step_ops *ops = &t->variants[0].epilogue;
    cr_assert_eq(ops->count, 1);
    const lathe_step_collective *c = ops->ops[0].collective;
    cr_assert_eq(ops->ops[0].kind, LATHE_OP_COLLECTIVE);
    cr_assert(!c->gather);
    cr_assert_eq(c->dtype, LATHE_SCALAR_F32);
    cr_assert_eq(c->count, 4 * 64);
    cr_assert_str_eq(t->buffers[c->from.buffer].name, "s");
    cr_assert_str_eq(t->buffers[c->to.buffer].name, "output");
    cr_assert_str_eq(c->part, "end");
    for (int k = 0; k < t->kernel_count; k++)
        cr_assert_str_neq(t->kernels[k].provider, "fix/reduce");
    lathe_step_table_destroy(t);
}

Test(collective, gathered_columns_come_rank_by_rank) {
    cr_assert(case_generate(gathered(), (lathe_generate_options){.tp = 2}), "%s",
              case_result.message);
    lathe_step_table *t = read_step();
    const lathe_step_ops *ops = &t->variants[0].epilogue;
    cr_assert_eq(ops->count, 2);
    cr_assert(ops->ops[0].collective->gather);
    cr_assert_eq(ops->ops[0].collective->count, 4 * 64);
    cr_assert(!ops->ops[1].early, "nothing overlaps a collective");
    const lathe_step_buffer *g = &t->buffers[ops->ops[0].collective->to.buffer];
    cr_assert_eq(g->form, LATHE_FORM_COLUMNS);
    cr_assert_eq(g->shape.dim[0], 2);
    cr_assert_eq(g->shape.dim[2], 64);
    lathe_step_table_destroy(t);
}

Test(collective, what_does_not_fit_is_refused) {
    cr_assert_not(case_generate(reduced(), (lathe_generate_options){0}));
    case_expect_message(
        (const char *const[]){"case.lua:15: epilogue: part \"end\": provider fix/reduce: "
                              "all_reduce in a deployment of one rank",
                              NULL});
    const char *layout = case_replace(gathered(), "value \"g\" { \"f32\", rows, 2 * H }",
                                      "value \"g\" { \"f32\", rows, 4 * H }");
    cr_assert_not(case_generate(layout, (lathe_generate_options){.tp = 2}));
    case_expect_message((const char *const[]){"kN is 64", "128 by argument 'to'", NULL});
    layout = case_replace(gathered(), "use \"fix/spread\"", "use \"fix/copy\"");
    cr_assert_not(case_generate(layout, (lathe_generate_options){.tp = 2}));
    case_expect_message((const char *const[]){"\"g\" comes as columns from provider fix/gather",
                                              "taken as: whole", NULL});
}

static void refuse_order(const char *layout, const char *message) {
    cr_assert_not(case_generate(layout, (lathe_generate_options){.tp = 2}));
    case_expect_message((const char *const[]){message, NULL});
}

#define END "writes = { b = \"output\" } }", "writes = { b = \"output\" }, set = { order = \""

Test(collective, order_is_the_library_s) {
    const char *layout = reduced();
    cr_assert(
        case_generate(case_replace(layout, END "library\" } }"), (lathe_generate_options){.tp = 2}),
        "%s", case_result.message);
    refuse_order(case_replace(layout, END "ascending\" } }"),
                 "attribute 'order': found the string \"ascending\", allowed: \"library\"");
}

Test(collective, order_of_a_kernel_s_sum) {
    const char *layout = case_replace(case_base(), "use \"fix/add\" {", "use \"fix/receive\" {");
    layout = case_replace(layout, "options = { partials = 1 }", "options = { partials = 0 }");
    const char *from = "writes = { s_out = \"t\" } }";
    cr_assert(
        case_generate(case_replace(layout, from,
                                   "writes = { s_out = \"t\" }, set = { order = \"bf16_each\" } }"),
                      (lathe_generate_options){.tp = 2}),
        "%s", case_result.message);
    cr_assert(strstr(case_read(case_path("out/add_1x4.cu")), "kOrder = 1;"));
    refuse_order(
        case_replace(layout, from, "writes = { s_out = \"t\" }, set = { order = \"library\" } }"),
        "case.lua:26: body: part \"add\": provider fix/receive: part \"add\": attribute "
        "'order': found the string \"library\", allowed: \"ascending\" \"bf16_each\"");
    refuse_order(case_replace(layout, from,
                              "writes = { s_out = \"t\" }, set = { order = \"descending\" } }"),
                 "found the string \"descending\"");
    /* A provider that knows no other order takes the rule's name, and no other. */
    layout = case_replace(case_base(), END "ascending\" } }");
    cr_assert(case_generate(layout, (lathe_generate_options){0}), "%s", case_result.message);
    refuse_order(case_replace(case_base(), END "bf16_each\" } }"), "unknown attribute 'order'");
}

/* The text of step.json with one change is refused. */
static void refuse_step(const char *from, const char *to, const char *message) {
    const char *step = case_replace(case_read(case_path("out/step.json")), from, to);
    lathe_step_table *t;
    char found[1024];
    cr_assert_eq(lathe_step_table_parse(step, strlen(step), "step.json", &t, found, sizeof found),
                 LATHE_INVALID);
    cr_expect(strstr(found, message), "no \"%s\" in: %s", message, found);
}

Test(collective, a_damaged_step_is_refused) {
    cr_assert(case_generate(gathered(), (lathe_generate_options){.tp = 2}));
    refuse_step("\"all_gather\"", "\"broadcast\"", "found \"broadcast\", allowed: all_reduce");
    refuse_step("\"all_gather\"", "\"all_reduce\"",
                "found the form columns of \"g\", allowed: whole");
    refuse_step("\"order\": \"library\"", "\"order\": \"ascending\"", "found \"ascending\"");
    refuse_step("{\"count\": 256", "{\"count\": 257", "the argument has 1028 bytes");
    refuse_step("\"to\": \"g\"", "\"to\": null", ".to: is missing");
    refuse_step("\"from\": \"s\"", "\"from\": \"nothing\"", "allowed: a name in buffers");
    refuse_step("\"early\": false, \"kernel\": \"end_1x4\"",
                "\"early\": true, \"kernel\": \"end_1x4\"", "found true after a collective");
    refuse_step("\"tp\": 2", "\"tp\": 1", "");
}

Test(collective, a_damaged_published_value_is_refused) {
    const char *layout = case_replace(
        case_base(), "use \"fix/product\" { parts = { \"down\" }, options = { partials = 1 } }",
        "use \"fix/send\" { parts = { \"down\" } }");
    layout = case_replace(layout, "use \"fix/add\" {", "use \"fix/receive\" {");
    cr_assert(case_generate(layout, (lathe_generate_options){.tp = 2}), "%s", case_result.message);
    lathe_step_table *t = read_step();
    const lathe_step_ops *body = &t->variants[0].kinds[0];
    int seen = 0;
    for (int i = 0; i < body->count; i++)
        for (int a = 0; body->ops[i].bindings && a < t->kernels[body->ops[i].kernel].arg_count;
             a++) {
            const lathe_step_arg *arg = &t->kernels[body->ops[i].kernel].args[a];
            if (!body->ops[i].bindings[a].value)
                continue;
            cr_assert(arg->carries && arg->form == LATHE_FORM_RANK_PARTIALS);
            cr_assert_eq(arg->dtype, LATHE_SCALAR_BF16);
            cr_assert_eq(arg->shape.dim[1], 64);
            cr_assert_str_eq(body->ops[i].bindings[a].value, "y");
            seen += arg->publishes ? 1 : 10;
        }
    cr_assert_eq(seen, 11);
    lathe_step_table_destroy(t);
    refuse_step("\"mailbox\": \"sum\", \"value\"", "\"mailbox\": \"none\", \"value\"",
                "found \"none\", allowed: a name in mailboxes");
    refuse_step("\"mailbox\": \"sum\", \"value\": \"y\"", "\"mailbox\": \"sum\"",
                "key \"value\" is missing");
    refuse_step("{\"mailbox\": \"sum\", \"value\": \"y\"}", "\"mailbox:sum\"",
                "allowed: {mailbox, value} or null");
    refuse_step("\"form\": \"rank_partials\", \"name\": \"mail\"",
                "\"form\": \"whole\", \"name\": \"mail\"", "allowed: rank_partials columns");
    refuse_step("{\"bytes\": 512", "{\"bytes\": 511", "mailbox \"sum\" 511");
}
