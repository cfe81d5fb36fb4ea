/* SPDX-License-Identifier: Apache-2.0
 * step.json is untrusted: what is right is read to the last field, what is wrong is refused at its
 * JSON path. */
#include "toy.h"

#include "step_table.h"

static lathe_status parse(json_t *root, lathe_step_table **table, char *message) {
    char *text = json_dumps(root, 0);
    const lathe_status status =
        lathe_step_table_parse(text, strlen(text), "step.json", table, message, 1024);
    free(text);
    json_decref(root);
    return status;
}

Test(step_table, reads_the_toy) {
    lathe_step_table *t;
    char message[1024] = "";
    cr_assert_eq(lathe_step_table_read(TOY_FIXTURE, &t, message, sizeof message), LATHE_OK, "%s",
                 message);
    cr_assert_str_eq(t->layout, "toy");
    cr_assert_eq(t->tp, 1);
    cr_assert_eq(t->max_context, 64);
    cr_assert_eq(t->kernel_count, 13);
    cr_assert_eq(t->layer_count, 2);
    cr_assert_eq(t->kind_count, 1);
    cr_assert_eq(t->variant_count, 3);
    cr_assert_eq(t->variants[1].q, 4);
    const int w = lathe_step_table_find_buffer(t, "w");
    cr_assert_geq(w, 0);
    cr_assert_eq(t->buffers[w].lifetime, LATHE_LIFETIME_WEIGHT);
    cr_assert_eq(t->buffers[w].fixed_bytes, 32);
    cr_assert_eq(t->buffers[w].layer_count, 2);
    cr_assert_eq(lathe_step_buffer_instance(&t->buffers[w], 1), 1);
    cr_assert_eq(lathe_step_buffer_instance(&t->buffers[w], 2), -1);
    cr_assert_eq(lathe_step_table_find_buffer(t, "nothing"), -1);
    const int kv = lathe_step_table_find_buffer(t, "kv");
    cr_assert_eq(t->buffers[kv].fixed_bytes, 2 * 16 * 4);
    cr_assert_eq(t->buffers[kv].group, 0);
    lathe_step_table_destroy(t);
}

Test(step_table, resolves_operations) {
    lathe_step_table *t;
    char message[1024] = "";
    cr_assert_eq(lathe_step_table_read(TOY_FIXTURE, &t, message, sizeof message), LATHE_OK);
    const lathe_step_ops *body = &t->variants[0].kinds[0];
    cr_assert_eq(body->count, 6);
    cr_assert_eq(body->ops[0].kind, LATHE_OP_FORK);
    cr_assert_eq(body->ops[1].stream, 1);
    cr_assert_eq(body->ops[3].kind, LATHE_OP_JOIN);
    cr_assert(body->ops[5].early);
    const lathe_step_op *finish = &t->variants[0].epilogue.ops[0];
    cr_assert(finish->bindings[1].previous);
    cr_assert_eq(finish->bindings[3].buffer, -1, "null stays unbound");
    const lathe_step_kernel *k = &t->kernels[finish->kernel];
    cr_assert_eq(lathe_step_constant_find(k, k->tactics, "kWidth")->integer, 8);
    cr_assert_null(lathe_step_constant_find(k, k->tactics, "kNothing"));
    lathe_step_table_destroy(t);
}

/* One wrong value each: where it is put, what it is (JSON text; NULL: the key is taken away), what
 * the message holds. */
typedef struct {
    const char *object, *key, *value;
    const char *path, *reason;
} mutation;

static const mutation mutations[] = {
    {"", "format", "2", "format", "found 2, allowed: 1; a newer lathe"},
    {"", "format", "\"1\"", "format", "found \"1\", allowed: 1"},
    {"", "extra", "1", "$", "unknown key \"extra\""},
    {"", "tp", "17", "tp", "found 17, allowed: an integer from 1 to 16"},
    {"", "tp", "-1", "tp", "found -1"},
    {"", "tp", "1.5", "tp", "found 1.5"},
    {"", "layers", "[]", "layers", "found 0 elements"},
    {"", "layers", "[\"body\", \"other\"]", "layers[1]", "kind \"other\" does not exist"},
    {"", "layers", "[\"x\"]", "layers[0]", "kind \"x\" does not exist, allowed: those of"},
    {"", "layers", "[\"body\"]", "buffers[4].layers[1]",
     "found 1, allowed: no more: the step has 1 layers"},
    {"", "variants", "[]", "variants", "found 0 elements"},
    {"", "kernels", "{}", "kernels", "allowed: an array"},
    {"", "layout", "\"../evil\"", "layout", "found \"../evil\""},
    {"ceilings", "read_gb_s", "0", "ceilings.read_gb_s", "found 0, allowed: an integer from 1"},
    {"ceilings", "bf16_tflops", NULL, "ceilings", "key \"bf16_tflops\" is missing"},
    {"limits", "max_rows", "0", "limits.max_rows", "found 0"},
    {"limits", "max_rows", "2", "variants[1].q", "found 4, allowed: an integer from 1 to 2"},
    {"limits", "page_tokens", NULL, "limits", "key \"page_tokens\" is missing"},
    {"groups.0", "table_width", "0", "groups[0].table_width", "found 0"},
    {"buffers.0", "dtype", "\"f16\"", "buffers[0].dtype", "found \"f16\", allowed: bf16 f32"},
    {"buffers.0", "shape", "[-4]", "buffers[0].shape[0]", "found -4"},
    {"buffers.0", "shape", "[0]", "buffers[0].shape[0]", "found 0"},
    {"buffers.0", "shape", "[1099511627776, 1099511627776]", "buffers[0].shape",
     "2^46 bytes, allowed: fewer"},
    {"buffers.0", "shape", "[4294967296, 4294967296, 4294967296]", "buffers[0].shape", "2^46"},
    {"buffers.0", "shape", "[1,1,1,1,1,1,1,1,1]", "buffers[0].shape", "found 9 elements"},
    {"buffers.0", "shape", "4", "buffers[0].shape", "allowed: an array"},
    {"buffers.0", "lifetime", "\"forever\"", "buffers[0].lifetime", "found \"forever\""},
    {"buffers.0", "layers", "[0]", "buffers[0].layers", "with scope \"layer\""},
    {"buffers.0", "name", "\"rank\"", "buffers[1].name", "a second time (first at [0])"},
    {"buffers.0", "name", "\"\"", "buffers[0].name", "found \"\""},
    {"buffers.4", "layers", "[0, 2]", "buffers[4].layers[1]",
     "found 2, allowed: an integer from 1 to 1"},
    {"buffers.4", "layers", "[1, 0]", "buffers[4].layers[1]", "found 0"},
    {"buffers.4", "layers", "[0]", "prepare[0].args.w", "which layer 1 does not have"},
    {"buffers.10", "group", "\"none\"", "buffers[10].group", "allowed: a name in groups"},
    {"", "checkpoint", "{\"files\": 3}", "checkpoint", "allowed: an object"},
    {"", "checkpoint", "{\"files\": {\"../x\": {}}}", "checkpoint", "found"},
    {"", "checkpoint", "{\"files\": {\"x\": 1}}", "checkpoint", "x is no object"},
    {"", "checkpoint", "{\"names\": [1]}", "checkpoint.names[0]", "found 1"},
    {"", "arch", "\"sm_1\"", "arch",
     "found sm_1, allowed: sm_90a, sm_100a, sm_103a, sm_120a, host"},
    {"", "serves", "3", "serves", "allowed: an object"},
    {"", "serves", "{\"lora\": []}", "serves.lora", "allowed: a number or a word"},
    {"", "checkpoint", "{\"other\": []}", "checkpoint", "other"},
    {"weights.0", "buffer", "\"s\"", "weights[0].buffer", "a buffer of lifetime weight"},
    {"weights.0", "axis", "1", "weights[0].axis", "found 1"},
    {"weights.0", "sources", "[]", "weights[0].sources", "found 0 elements"},
    {"weights.0.sources.0", "shape", "[9]", "weights[0].sources", "found 9 elements for one rank"},
    {"weights.0.sources.0", "shard", "{\"axis\": 1, \"groups\": 1}",
     "weights[0].sources[0].shard.axis", "found 1"},
    {"weights.0.sources.0", "shard", "{\"axis\": 0, \"groups\": 3}", "weights[0].sources[0].shard",
     "a multiple of groups * tp = 3"},
    {"kernels.1", "name", "\"a/b\"", "kernels[1].name", "found \"a/b\""},
    {"kernels.1", "name", "\"twice\"", "kernels[1].name", "a second time"},
    {"kernels.1", "constants", "{\"kRows\": \"1\"}", "kernels[1].constants.kRows",
     "allowed: a number"},
    {"kernels.1.args.0", "dir", "\"sideways\"", "kernels[1].args[0].dir", "found \"sideways\""},
    {"kernels.1.args.0", "dtype", "\"i64\"", "variants[0].prologue[0].args.tokens",
     "of i32, allowed: i64"},
    {"kernels.1.args.0", "shape", "[5]", "variants[0].prologue[0].args.tokens",
     "the argument has 20 bytes, the buffer \"tokens\" 16"},
    {"kernels.1.args.0", "form", "\"columns\"", "variants[0].prologue[0].args.tokens",
     "found the form whole of \"tokens\", allowed: columns"},
    {"kernels.1", "tactics", "[]", "kernels[1].tactics", "found 0 elements"},
    {"kernels.1.tactics.0", "file", "\"../../etc/passwd\"", "kernels[1].tactics[0].file",
     "below the directory"},
    {"kernels.1.tactics.0", "file", "\"/etc/passwd\"", "kernels[1].tactics[0].file",
     "below the directory"},
    {"kernels.1.tactics.0", "entry", "\"f()\"", "kernels[1].tactics[0].entry", "a C identifier"},
    {"kernels.1.tactics.0", "grid", "[1, 1]", "kernels[1].tactics[0].grid", "found 2 elements"},
    {"kernels.1.tactics.0", "grid", "[1, 65536, 1]", "kernels[1].tactics[0].grid[1]",
     "found 65536"},
    {"kernels.1.tactics.0", "block", "1025", "kernels[1].tactics[0].block", "found 1025"},
    {"kernels.1.tactics.0", "shared", "4294967296", "kernels[1].tactics[0].shared",
     "found 4294967296"},
    {"kernels.1.tactics.0", "registers", "256", "kernels[1].tactics[0].registers", "found 256"},
    {"prepare.0", "layers", "[0, 7]", "prepare[0].layers[1]", "found 7"},
    {"prepare.0", "kernel", "\"nobody\"", "prepare[0].kernel", "allowed: a name in kernels"},
    {"prepare.0.args", "w", "\"nothing\"", "prepare[0].args.w", "allowed: a name in buffers"},
    {"prepare.0.args", "w", "7", "prepare[0].args.w", "a buffer, {buffer, layer} or null"},
    {"prepare.0.args", "w", "{\"buffer\": \"w\", \"layer\": -1}", "prepare[0].args.w",
     "layer -1 does not have"},
    {"prepare.0.args", "w", "{\"buffer\": \"w\", \"layer\": 1}", "prepare[0].args.w.layer",
     "found 1"},
    {"", "mailboxes",
     "[{\"name\": \"a\", \"bytes\": 16, \"index\": 1}, {\"name\": \"b\", \"bytes\": 16, \"index\": "
     "1}]",
     "mailboxes[1].index", "found 1 a second time (first at [0])"},
    {"prepare.0.args", "w", NULL, "prepare[0].args.w", "is missing"},
    {"prepare.0.args", "x", "null", "prepare[0].args.x", "no such argument"},
    {"variants.0", "name", "\"1x4\"", "variants[1].name", "a second time"},
    {"variants.0", "requests", "5", "variants[0].requests", "found 5"},
    {"variants.0.kinds.body.0", "op", "\"scatter\"", "variants[0].kinds.body[0].op",
     "launch fork join"},
    {"variants.0.kinds.body.0", "stream", "2", "variants[0].kinds.body[0].stream", "found 2"},
    {"variants.0.kinds.body.0", "op", "\"join\"", "variants[0].kinds.body[0]",
     "no fork has opened"},
    {"variants.0.kinds.body.3", "op", "\"fork\"", "variants[0].kinds.body[3]",
     "a stream that is open"},
    {"variants.0.kinds.body.4", "early", "true", "variants[0].kinds.body[4].early",
     "does not wait"},
    {"variants.0.prologue.0", "stream", "1", "variants[0].prologue[0].stream",
     "no fork has opened"},
    {"kernels.5.tactics.0", "cooperative", "true", "variants[0].kinds.body[5].early",
     "cooperative kernel"},
};

static void mutate(json_t *root, const mutation *m) {
    json_t *object = toy_at(root, m->object);
    if (!m->value) {
        json_object_del(object, m->key);
        return;
    }
    json_t *value = json_loads(m->value, JSON_DECODE_ANY, NULL);
    cr_assert_not_null(value, "%s", m->value);
    json_object_set_new(object, m->key, value);
}

Test(step_table, refuses_each_mutation_at_its_path) {
    for (size_t i = 0; i < sizeof mutations / sizeof mutations[0]; ++i) {
        const mutation *m = &mutations[i];
        char message[1024] = "", path[200];
        lathe_step_table *t = (lathe_step_table *)&t;
        json_t *root = toy_json();
        mutate(root, m);
        cr_expect_eq(parse(root, &t, message), LATHE_INVALID, "%s.%s = %s is taken", m->object,
                     m->key, m->value);
        cr_expect_null(t);
        snprintf(path, sizeof path, "step.json: %s: ", m->path);
        cr_expect_eq(strncmp(message, path, strlen(path)), 0, "wanted %s, got %s", path, message);
        cr_expect(strstr(message, m->reason), "wanted %s, got %s", m->reason, message);
    }
}

Test(step_table, every_prefix_is_refused) {
    char *text = json_dumps(toy_json(), JSON_COMPACT);
    const size_t length = strlen(text);
    for (size_t n = 0; n < length; n += n < 200 ? 1 : 97) {
        char message[1024] = "";
        lathe_step_table *t;
        cr_assert_eq(lathe_step_table_parse(text, n, "step.json", &t, message, sizeof message),
                     LATHE_INVALID);
        cr_assert_null(t);
        cr_assert(strstr(message, "step.json:"), "%s", message);
        cr_assert(strstr(message, "truncated"), "%s", message);
    }
    free(text);
}

Test(step_table, missing_file_and_folder_are_io) {
    char message[1024] = "";
    lathe_step_table *t;
    cr_assert_eq(lathe_step_table_read("/nonexistent", &t, message, sizeof message), LATHE_IO);
    cr_assert(strstr(message, "/nonexistent/step.json"), "%s", message);
    cr_assert_null(t);
}

Test(step_table, a_duplicate_key_is_refused) {
    const char *text = "{\"format\": 1, \"format\": 1}";
    char message[1024] = "";
    lathe_step_table *t;
    cr_assert_eq(lathe_step_table_parse(text, strlen(text), "x", &t, message, sizeof message),
                 LATHE_INVALID);
    cr_assert(strstr(message, "duplicate"), "%s", message);
}

Test(step_table, an_unfilled_weight_and_a_fork_left_open_are_refused) {
    char message[1024] = "";
    lathe_step_table *t;
    json_t *root = toy_json();
    json_array_clear(json_object_get(root, "weights"));
    cr_assert_eq(parse(root, &t, message), LATHE_INVALID);
    cr_assert(strstr(message, "nothing fills the buffer \"w\""), "%s", message);
    root = toy_json();
    json_array_remove(toy_at(root, "variants.0.kinds.body"), 3);
    cr_assert_eq(parse(root, &t, message), LATHE_INVALID);
    cr_assert(strstr(message, "without its join"), "%s", message);
    root = toy_json();
    json_array_remove(toy_at(root, "variants.0.kinds.body"), 4);
    cr_assert_eq(parse(root, &t, message), LATHE_INVALID);
    cr_assert(strstr(message, "first launch after a fork or a join"), "%s", message);
}

Test(step_table, the_digest_follows_the_bytes) {
    char message[1024] = "";
    lathe_step_table *a, *b;
    json_t *root = toy_json();
    cr_assert_eq(parse(json_deep_copy(root), &a, message), LATHE_OK, "%s", message);
    json_object_set_new(root, "hash", json_string("fedcba9876543210"));
    cr_assert_eq(parse(root, &b, message), LATHE_OK, "%s", message);
    cr_assert_neq(a->digest, b->digest);
    lathe_step_table_destroy(a);
    lathe_step_table_destroy(b);
}
