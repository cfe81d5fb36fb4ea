/* SPDX-License-Identifier: Apache-2.0
 * Damage to a checkpoint is found before anything is built, all of it at once. The checkpoint is a
 * copy of the golden case mini's. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint_check.h"
#include "checkpoint_record.h"
#include "commands.h"
#include "files.h"
#include "generated.h"

#define GOLDEN LATHE_SOURCE_DIR "/tests/golden/mini/checkpoint"
#define FIRST "model-00001-of-00002.safetensors"

static char folder[] = "test_checkpoint_check_XXXXXX";
static char message[16384];
static lathe_generated generated;
static lathe_step_table *table;

static void set_up(void) {
    char command[512];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp %s/* %s", GOLDEN, folder);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(lathe_generated_open("gen", LATHE_SOURCE_DIR "/layouts/cases/mini.lua", "1",
                                      "host", NULL, &generated),
                 LATHE_EXIT_OK);
    cr_assert_eq(lathe_step_table_read(generated.directory, &table, message, sizeof message),
                 LATHE_OK, "%s", message);
}

static void tear_down(void) {
    lathe_step_table_destroy(table);
    lathe_generated_close(&generated);
    lathe_folder_remove(folder);
}

TestSuite(checkpoint_check, .init = set_up, .fini = tear_down);

static char *in_folder(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static lathe_status check(void) {
    lathe_safetensors *c;
    lathe_status status = lathe_safetensors_open(folder, &c, message, sizeof message);
    if (status != LATHE_OK)
        return status;
    status = lathe_checkpoint_check(table, c, message, sizeof message);
    lathe_safetensors_close(c);
    return status;
}

/* Replaces every occurrence of `from` in a file of the copy by `to`, of the same length in files
 * whose length matters. */
static void edit(const char *name, const char *from, const char *to) {
    char *data, *out;
    size_t bytes, length = 0;
    int found = 0;
    cr_assert_eq(lathe_file_read(in_folder(name), 1 << 24, &data, &bytes), 0);
    out = malloc(2 * bytes + 1);
    for (size_t i = 0; i < bytes;) {
        const size_t n = strlen(from);
        if (i + n <= bytes && memcmp(data + i, from, n) == 0) {
            memcpy(out + length, to, strlen(to));
            length += strlen(to);
            i += n;
            ++found;
        } else {
            out[length++] = data[i++];
        }
    }
    cr_assert_gt(found, 0, "%s lacks %s", name, from);
    cr_assert_eq(lathe_file_write(in_folder(name), out, length), 0);
    free(data);
    free(out);
}

static void expect_wrong(int lines, const char *const *words) {
    int found = 0; /* below the line that names the checkpoint */
    cr_assert_eq(check(), LATHE_INVALID);
    cr_assert(strstr(message, " is not the checkpoint that step.json describes:\n"), "%s", message);
    for (const char *p = message; *p; ++p)
        found += *p == '\n';
    for (; *words; ++words)
        cr_assert(strstr(message, *words), "'%s' lacks '%s'", message, *words);
    cr_assert_eq(found, lines, "%s", message);
}

#define WRONG(lines, ...) expect_wrong(lines, (const char *const[]){__VA_ARGS__, NULL})

Test(checkpoint_check, the_golden_checkpoint_passes) {
    cr_assert_eq(check(), LATHE_OK, "%s", message);
}

Test(checkpoint_check, every_field_that_differs_is_named) {
    edit("config.json", "\"hidden_size\": 128", "\"hidden_size\": 129");
    edit("config.json", "\"post_norm_eps\": 1e-08", "\"post_norm_epsilon\": 1e-08");
    edit("config.json", "\"full_attention\"", "\"chunked_attention\"");
    edit("config.json", "\"qk_scale_factor\": 5.4730064", "\"qk_scale_factor\": 5.47301");
    edit("config.json", "\"rope_theta\": 500000.0", "\"rope_theta\": 10000");
    edit("hf_quant_config.json", "\"group_size\": 16", "\"group_size\": 32");
    edit("hf_quant_config.json", "layers.3.", "layers.2.");
    WRONG(9, "config.json: text_config.hidden_size: found 129, the layout says 128",
          "config.json: text_config.post_norm_eps: found nothing, the layout says 1e-8",
          "text_config.post_norm_epsilon: found 1e-8, the layout does not know this field",
          "text_config.layer_types[1]: found \"chunked_attention\", the layout says "
          "\"full_attention\" (1 of 4 differ)",
          "qk_scale_factor: found 5.47301",
          "text_config.rope_parameters.rope_theta: found 10000, the layout says",
          "quantization.group_size: found 32, the layout says 16",
          "quantization.exclude_modules: found nothing that means "
          "\"model.language_model.layers.3.mlp.experts\", the layout has it there",
          "quantization.exclude_modules: found \"model.language_model.layers.2.mlp.experts*\", "
          "which means \"model.language_model.layers.2.mlp.experts\"; the layout has it not there");
}

Test(checkpoint_check, fields_that_would_change_the_mathematics_are_named) {
    edit("config.json", "\"head_dim\": 32",
         "\"head_dim\": 32, \"attention_bias\": true, \"swiglu_limit\": 7.0, \"n_group\": 8, "
         "\"hidden_act\": \"gelu\", \"attn_temperature_tuning\": true");
    edit("config.json", "\"rope_type\"", "\"factor\": 8.0, \"rope_type\"");
    edit("config.json", "\"torch_dtype\"",
         "\"quantization_config\": {\"kv_cache_scheme\": {\"num_bits\": 8}}, \"torch_dtype\"");
    edit("config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    edit("hf_quant_config.json", "\"kv_cache_quant_algo\": null",
         "\"kv_cache_quant_algo\": \"FP8\", \"pre_quant_scale\": true");
    edit("hf_quant_config.json", "\"lm_head\",", "\"lm_head\", \"*.layers.1.mlp*\",");
    WRONG(11, "text_config.attention_bias: found true, the layout says false",
          "text_config.swiglu_limit: found 7.0, the layout does not know this field",
          "text_config.n_group: found 8, the layout says 1",
          "text_config.hidden_act: found \"gelu\", the layout says \"silu\"",
          "text_config.attn_temperature_tuning: found true, the layout does not know this field",
          "text_config.rope_parameters.factor: found 8.0, the layout does not know this field",
          "quantization_config.kv_cache_scheme: found {\"num_bits\":8}, the layout says nothing",
          "config.json: tie_word_embeddings: found true, the layout says false",
          "quantization.kv_cache_quant_algo: found \"FP8\", the layout says nothing",
          "quantization.pre_quant_scale: found true, the layout does not know this field",
          "quantization.exclude_modules: found \"*.layers.1.mlp*\", which means "
          "\"model.language_model.layers.1.mlp.experts\"; the layout has it not there");
}

Test(checkpoint_check, fields_that_change_nothing_pass) {
    edit("config.json", "\"head_dim\": 32",
         "\"head_dim\": 32, \"attention_bias\": false, \"swiglu_limit\": null, \"n_group\": 1, "
         "\"hidden_act\": \"silu\", \"rope_scaling\": null, \"num_kv_shared_layers\": 0, "
         "\"initializer_range\": 0.02, \"model_type\": \"muse_spark_text\", \"bos_token_id\": 1, "
         "\"max_position_embeddings\": 1048576, \"_attn_implementation\": \"sdpa\"");
    edit("config.json", "\"torch_dtype\"",
         "\"vision_config\": {\"layers\": 50}, \"quantization_config\": {\"quant_algo\": "
         "\"NVFP4\"}, \"torch_dtype\"");
    edit("config.json", "   0.0,\n", "   null,\n");
    edit("hf_quant_config.json", "\"lm_head\",",
         "\"lm_head*\", \"model.language_model.layers.1.self_attn*\", \"vision_tower*\",");
    edit("hf_quant_config.json", "\"model.language_model.layers.3.mlp.experts*\"",
         "\"layers.3.mlp.experts.*\", \"layers.3.\"");
    cr_assert_eq(check(), LATHE_OK, "%s", message);
}

Test(checkpoint_check, lists_differ_by_length_too) {
    edit("config.json", "\"layer_rope_theta\": [", "\"layer_rope_theta\": [500000.0,");
    edit("config.json", "\"mlp_layer_types\": [", "\"mlp_layer_types\": 4, \"layer_types\": [");
    cr_assert_eq(check(), LATHE_INVALID);
    cr_assert(strstr(message, "duplicate"), "%s", message);
    edit("config.json", "\"mlp_layer_types\": 4, \"layer_types\": [", "\"mlp_layer_types\": [");
    WRONG(1, "text_config.layer_rope_theta: found a list of 5, the layout says one of 4");
}

Test(checkpoint_check, what_is_no_object_or_list_is_one_line) {
    edit("config.json", "\"text_config\": {", "\"text_config\": 5, \"was\": {");
    edit("hf_quant_config.json", "\"exclude_modules\": [",
         "\"exclude_modules\": \"lm_head\", \"a\\nb\": [");
    WRONG(3, "config.json: text_config: found 5, the layout says an object",
          "quantization.exclude_modules: found \"lm_head\", the layout says a list",
          "quantization.a?b: found [\"lm_head\",");
    cr_assert_eq(lathe_file_write(in_folder("config.json"), "[1]", 3), 0);
    cr_assert_eq(check(), LATHE_INVALID);
    cr_assert(strstr(message, "\nconfig.json: found [1], the layout says an object\n"), "%s",
              message);
}

Test(checkpoint_check, a_record_must_be_there_and_be_json) {
    unlink(in_folder("config.json"));
    edit("hf_quant_config.json", "\"producer\"", "\"quantization\": 1, \"producer\"");
    WRONG(2, "config.json: No such file", "hf_quant_config.json:", "duplicate");
}

Test(checkpoint_check, missing_and_unexpected_tensors_are_all_listed) {
    static const char *const pairs[][2] = {{"layers.0.mlp.gate.weight", "layers.9.mlp.gate.weight"},
                                           {"lm_head.weight", "lm_head.weighs"}};
    for (int i = 0; i < 2; ++i) {
        const bool first = system("grep -q lm_head " GOLDEN "/" FIRST) == 0 || i == 0;
        edit(first ? FIRST : "model-00002-of-00002.safetensors", pairs[i][0], pairs[i][1]);
        edit("model.safetensors.index.json", pairs[i][0], pairs[i][1]);
    }
    WRONG(4, "missing: model.language_model.layers.0.mlp.gate.weight", "missing: lm_head.weight",
          "unexpected: model.language_model.layers.9.mlp.gate.weight",
          "unexpected: lm_head.weighs");
}

Test(checkpoint_check, tensors_of_other_parts_are_no_concern) {
    edit("model.safetensors.index.json", "\"weight_map\": {",
         "\"weight_map\": {\"model.vision.w\": \"vision.safetensors\",");
    FILE *f = fopen(in_folder("vision.safetensors"), "wb");
    const char header[] = "{\"model.vision.w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":"
                          "[0,1]}}";
    fwrite((const char[8]){(char)(sizeof header - 1)}, 1, 8, f);
    fprintf(f, "%s!", header);
    fclose(f);
    cr_assert_eq(check(), LATHE_OK, "%s", message);
}

/* Overwrites the first bytes of a tensor's data in the copy. */
static void spoil(const char *name, const void *bytes, size_t count) {
    lathe_safetensors *c;
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_OK);
    const lathe_safetensor *t = lathe_safetensors_find(c, name);
    cr_assert_not_null(t, "%s", name);
    FILE *f = fopen(t->file, "r+b");
    cr_assert_not_null(f);
    uint64_t header = 0, before = 0;
    cr_assert_eq(fread(&header, sizeof header, 1, f), 1);
    for (size_t i = 0; i < lathe_safetensors_count(c); ++i) {
        const lathe_safetensor *o = lathe_safetensors_at(c, i);
        if (o->file == t->file && o->data < t->data)
            before += o->bytes;
    }
    cr_assert_eq(fseek(f, (long)(8 + header + before), SEEK_SET), 0);
    cr_assert_eq(fwrite(bytes, 1, count, f), count);
    fclose(f);
    lathe_safetensors_close(c);
}

Test(checkpoint_check, scales_that_are_nan_are_named) {
    const unsigned char block[] = {0x38, 0xff};
    const uint32_t global = 0x7fc00000;
    spoil("model.language_model.layers.1.mlp.experts.down_proj_weight_scale", block, 2);
    spoil("model.language_model.layers.2.mlp.experts.gate_up_proj_weight_scale_2", &global, 4);
    WRONG(2,
          "layers.1.mlp.experts.down_proj_weight_scale' is not finite and without a sign at "
          "element 1",
          "layers.2.mlp.experts.gate_up_proj_weight_scale_2' is not finite and greater than zero "
          "at element 0");
}

Test(checkpoint_check, scales_are_greater_than_zero_but_for_a_block_and_all_else_is_finite) {
    const unsigned char minus_zero[] = {0x38, 0x00, 0x80}, negative[] = {0xb8};
    const float global[] = {1, -1}, input = 0;
    const uint16_t infinite[] = {0x3f80, 0x3f80, 0x7f80}, nan[] = {0xffc1};
    spoil("model.language_model.layers.1.mlp.experts.down_proj_weight_scale", minus_zero, 3);
    spoil("model.language_model.layers.2.mlp.experts.gate_up_proj_weight_scale", negative, 1);
    spoil("model.language_model.layers.2.mlp.experts.gate_up_proj_weight_scale_2", global, 8);
    spoil("model.language_model.layers.1.mlp.experts.down_proj_input_scale", &input, 4);
    spoil("model.language_model.layers.0.input_layernorm.weight", infinite, 6);
    spoil("model.language_model.layers.3.self_attn.k_proj.weight", nan, 2);
    spoil("model.language_model.layers.3.mlp.gate.weight", &(const float){(float)INFINITY}, 4);
    WRONG(7,
          "layers.1.mlp.experts.down_proj_weight_scale' is not finite and without a sign at "
          "element 2",
          "layers.2.mlp.experts.gate_up_proj_weight_scale' is not finite and without a sign at "
          "element 0",
          "layers.2.mlp.experts.gate_up_proj_weight_scale_2' is not finite and greater than zero "
          "at element 1",
          "layers.1.mlp.experts.down_proj_input_scale' is not finite and greater than zero at "
          "element 0",
          "layers.0.input_layernorm.weight' is not finite at element 2",
          "layers.3.self_attn.k_proj.weight' is not finite at element 0",
          "layers.3.mlp.gate.weight' is not finite at element 0");
}

Test(checkpoint_check, another_dtype_or_shape_is_named) {
    edit(FIRST, "\"dtype\":\"BF16\"", "\"dtype\":\"F16\" ");
    cr_assert_eq(check(), LATHE_INVALID);
    cr_assert(strstr(message, " is F16 [") && strstr(message, "step.json says BF16 ["), "%s",
              message);
}

Test(checkpoint_check, a_truncated_file_is_refused) {
    cr_assert_eq(truncate(in_folder(FIRST), 600000), 0);
    cr_assert_eq(check(), LATHE_INVALID);
    cr_assert(strstr(message, FIRST) && strstr(message, "not within the file's"), "%s", message);
}

Test(checkpoint_check, records_come_first) {
    edit("model-00002-of-00002.safetensors", "\"dtype\":\"BF16\"", "\"dtype\":\"F16\" ");
    edit("config.json", "\"head_dim\": 32", "\"head_dim\": 33");
    cr_assert_eq(check(), LATHE_INVALID);
    const char *second = strchr(message, '\n');
    cr_assert(second && strncmp(second, "\nconfig.json: text_config.head_dim", 33) == 0, "%s",
              message);
    cr_assert(strstr(message, "\nmodel-00002-of-00002.safetensors: tensor '"), "%s", message);
}

/* What does not fit is counted. */
Test(checkpoint_check, a_short_message_says_how_much_it_leaves_out) {
    lathe_safetensors *c;
    edit("config.json", "size", "sise");
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_OK);
    cr_assert_eq(lathe_checkpoint_check(table, c, message, 200), LATHE_INVALID);
    cr_assert(strstr(message, "more)") && strlen(message) < 200, "%s", message);
    lathe_safetensors_close(c);
}
