/* SPDX-License-Identifier: Apache-2.0
 * A probe and weights held by rank, from a layout to the structs of the runtime: what is right
 * arrives, what is wrong is refused at its line or at its JSON path. */
#include "codegen_case.h"
#include "toy.h"

#include "step_table.h"

TestSuite(probe, .init = case_begin, .fini = case_end, .timeout = 60);

/* The base layout with two norms of the input to compare, and `down` held by rows. */
static const char *layout(void) {
    const char *text = case_replace(
        case_base(), "weight \"down\" { \"bf16\", H, inner, from",
        "weight \"held.down\" { \"bf16\", H // d.tp, INNER, from = { tensor \"l.{l}.down\" { "
        "\"bf16\", H, INNER, shard = 0 } } },\n"
        "weight \"down\" { \"bf16\", H, inner, held = \"held.down\", from");
    text = case_replace(text, "value \"x\" { \"bf16\", rows, H },",
                        "value \"x\" { \"bf16\", rows, H }, value \"p\" { \"bf16\", rows, H },");
    text = case_replace(text, "use \"fix/norm\" { parts = { \"norm\" } },",
                        "use \"fix/norm\" { parts = { \"norm\" } }, use \"fix/norm\" { parts = { "
                        "\"again\" } },");
    return case_replace(
        text, "layers = { \"body\"",
        "probe = probe { about = \"two norms\", variant = \"1x4\", layers = { 0, 2 }, limit = 0.5, "
        "sums = { \"x\", \"p\" }, parts = {\n"
        "part \"begin\" \"copy\" { reads = { a = \"input\" }, writes = { b = \"s\" } },\n"
        "part \"norm\" \"norm\" { reads = { s = \"s\", gain = \"gain\" }, writes = { x = \"x\" }, "
        "set = { eps = 1e-5 } },\n"
        "part \"again\" \"norm\" { reads = { s = \"s\", gain = \"gain\" }, writes = { x = \"p\" }, "
        "set = { eps = 1e-5 } } } },\n"
        "layers = { \"body\"");
}

static json_t *generated(void) {
    cr_assert(case_generate(layout(), (lathe_generate_options){.tp = 2}), "%s",
              case_result.message);
    json_t *root = json_load_file(case_path("out/step.json"), 0, NULL);
    cr_assert_not_null(root);
    return root;
}

static lathe_status parse(json_t *root, lathe_step_table **table, char *message) {
    char *text = json_dumps(root, 0);
    const lathe_status status =
        lathe_step_table_parse(text, strlen(text), "step.json", table, message, 1024);
    free(text);
    json_decref(root);
    return status;
}

static const lathe_step_buffer *find(const lathe_step_table *t, const char *name) {
    const int i = lathe_step_table_find_buffer(t, name);
    cr_assert_geq(i, 0, "%s", name);
    return &t->buffers[i];
}

Test(probe, arrives) {
    lathe_step_table *t;
    char message[1024] = "";
    cr_assert_eq(parse(generated(), &t, message), LATHE_OK, "%s", message);
    const lathe_step_probe *p = &t->probe;
    cr_assert_str_eq(p->about, "two norms");
    cr_assert_eq(p->limit, 0.5);
    cr_assert(p->layer_count == 2 && p->layers[0] == 0 && p->layers[1] == 2);
    cr_assert_eq(p->ops.count, 3);
    cr_assert_eq(p->ops.ops[1].kernel, p->ops.ops[2].kernel, "one kernel for both norms");
    cr_assert_eq(&t->buffers[p->sums[0]], find(t, "x"));
    cr_assert_eq(&t->buffers[p->sums[1]], find(t, "p"));
    cr_assert_eq(find(t, "x")->lifetime, LATHE_LIFETIME_SCRATCH);
    cr_assert_eq(find(t, "p")->lifetime, LATHE_LIFETIME_BUILD);
    lathe_step_table_destroy(t);
}

Test(probe, what_ranks_hold_arrives) {
    lathe_step_table *t;
    char message[1024] = "";
    cr_assert_eq(parse(generated(), &t, message), LATHE_OK, "%s", message);
    int found = 0;
    for (int w = 0; w < t->weight_count; ++w) {
        const lathe_step_weight *held = t->weights[w].held;
        if (!held)
            continue;
        ++found;
        cr_assert_eq(&t->buffers[t->weights[w].buffer], find(t, "down"));
        cr_assert_eq(&t->buffers[held->buffer], find(t, "held.down"));
    }
    cr_assert_eq(found, 1);
    cr_assert_eq(find(t, "held.down")->lifetime, LATHE_LIFETIME_BUILD);
    cr_assert_eq(find(t, "held.down")->layer_count, 3);
    cr_assert_eq(find(t, "held.down")->shape.dim[0], 32);
    lathe_step_table_destroy(t);
}

Test(probe, one_rank_has_none) {
    cr_assert_not(case_generate(layout(), (lathe_generate_options){.tp = 1}));
    case_expect_message((const char *const[]){"probe: found in a deployment of one rank", NULL});
}

static const struct {
    const char *from, *to, *message;
} slips[] = {
    {"limit = 0.5", "limit = 1", "field 'limit': found 1, allowed: a number between 0 and 1"},
    {"limit = 0.5, ", "", "field 'limit': found nothing"},
    {"layers = { 0, 2 }", "layers = { 2, 0 }", "layers', ascending: found 0"},
    {"layers = { 0, 2 }", "layers = { 3 }", "layers', ascending: found 3"},
    {"layers = { 0, 2 }", "layers = {}", "field 'layers': found none"},
    {"variant = \"1x4\"", "variant = \"1x5\"", "field 'variant': found \"1x5\", allowed: \"1x4\""},
    {"sums = { \"x\", \"p\" }", "sums = { \"x\" }", "field 'sums': allowed: two values"},
    {"sums = { \"x\", \"p\" }", "sums = { \"x\", \"h\" }", "'sums': \"h\": allowed: a whole bf16"},
    {"sums = { \"x\", \"p\" }", "sums = { \"x\", \"s\" }", "'sums': \"s\": allowed: a whole bf16"},
    {"about = ", "unheard = ", "unheard"},
    {"parts = { \"again\" } }", "parts = { \"again\" }, stream = \"side\" }",
     "launches on the main stream that exchange nothing"},
    {"held = \"held.down\"", "held = \"held.up\"", "field 'held': \"held.up\" is no weight"},
    {"held = \"held.down\"", "held = \"gain\"", "\"gain\" is not of the same one tensor"},
    {"from = { tensor \"l.{l}.down\" { \"bf16\", H, INNER, shard = 1",
     "from = { tensor \"l.{l}.down\" { \"bf16\", H, INNER, shard = 0", "must be cut along axis 0"},
};

Test(probe, slips_are_refused) {
    for (size_t i = 0; i < sizeof slips / sizeof *slips; ++i) {
        const char *text = case_replace(layout(), slips[i].from, slips[i].to);
        if (strstr(slips[i].message, "must be cut"))
            text = case_replace(text, "weight \"down\" { \"bf16\", H, inner",
                                "weight \"down\" { \"bf16\", H // d.tp, INNER");
        cr_expect_not(case_generate(text, (lathe_generate_options){.tp = 2}), "%s", slips[i].to);
        case_expect_message((const char *const[]){slips[i].message, NULL});
    }
}

static const struct {
    const char *object, *key, *value, *path, *reason;
} mutations[] = {
    {"probe", "limit", "0", "probe.limit", "found 0, allowed: a number between 0 and 1"},
    {"probe", "limit", "\"0.5\"", "probe.limit", "found \"0.5\""},
    {"probe", "about", NULL, "probe", "key \"about\" is missing"},
    {"probe", "layers", "[0, 3]", "probe.layers[1]", "found 3"},
    {"probe", "sums", "[\"x\"]", "probe.sums", "found 1 elements"},
    {"probe", "sums", "[\"x\", \"nothing\"]", "probe.sums[1]", "found \"nothing\""},
    {"probe", "sums", "[\"s\", \"p\"]", "probe.sums[0]", "allowed: a bf16 buffer"},
    {"probe", "sums", "[\"x\", \"gain\"]", "probe.sums[1]", "allowed: a bf16 buffer"},
    {"probe", "ops", "[{\"op\": \"fork\", \"stream\": 1}]", "probe.ops",
     "found a fork without its join"},
    {"probe.ops.2.args", "x", "\"q\"", "probe.ops[2].args.x", "found \"q\""},
    {"variants.0.kinds.body.0.args", "x", "\"p\"", "variants[0].kinds.body[0].args.x",
     "found \"p\" of lifetime build, allowed: in the probe"},
    {"weights.0", "held", "\"nothing\"", "weights[0].held", "found \"nothing\""},
    {"weights.0", "held", "\"gain\"", "weights[0].held", "allowed: a weight of lifetime build"},
    {"weights.3.sources.0", "tensor", "\"other\"", "weights[0].held", "of the same one tensor"},
    {"weights.3.sources.0", "shard", "{\"axis\": 0, \"groups\": 2}", "weights[0].held",
     "cut along axis 0"},
};

Test(probe, each_mutation_is_refused_at_its_path) {
    for (size_t i = 0; i < sizeof mutations / sizeof *mutations; ++i) {
        char message[1024] = "", path[200];
        lathe_step_table *t;
        json_t *root = generated(), *object = toy_at(root, mutations[i].object);
        if (mutations[i].value)
            json_object_set_new(object, mutations[i].key,
                                json_loads(mutations[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(object, mutations[i].key);
        cr_expect_eq(parse(root, &t, message), LATHE_INVALID, "%s is taken", mutations[i].path);
        snprintf(path, sizeof path, "step.json: %s: ", mutations[i].path);
        cr_expect_eq(strncmp(message, path, strlen(path)), 0, "wanted %s, got %s", path, message);
        cr_expect(strstr(message, mutations[i].reason), "wanted %s, got %s", mutations[i].reason,
                  message);
    }
}
