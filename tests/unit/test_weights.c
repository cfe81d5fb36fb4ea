/* SPDX-License-Identifier: Apache-2.0
 * Sharding and joining against an element-by-element rule, the checkpoint of the mini case, and
 * synthetic weights. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint_check.h"
#include "synthetic.h"
#include "weights.h"

static char message[4096];

/* A reader whose element is its own number in the whole tensor, plus 1000 for tensors "b...". */
static lathe_status read_numbers(void *context, const lathe_step_source *source, const char *name,
                                 int64_t offset, int64_t count, void *to, char *text, size_t size) {
    (void)context;
    (void)source;
    (void)text;
    (void)size;
    for (int64_t i = 0; i < count; ++i)
        ((int32_t *)to)[i] = (int32_t)(offset + i) + (name[0] == 'b' ? 1000 : 0);
    return LATHE_OK;
}

typedef struct {
    lathe_step_buffer buffer;
    lathe_step_source sources[2];
    lathe_step_weight weight;
    lathe_step_table table;
    lathe_weights weights;
} fixture;

static void set_up(fixture *f, int tp, int rank) {
    memset(f, 0, sizeof *f);
    f->buffer = (lathe_step_buffer){.name = "w", .dtype = LATHE_SCALAR_I32};
    f->weight = (lathe_step_weight){.source_count = 1, .sources = f->sources};
    for (int i = 0; i < 2; ++i)
        f->sources[i] = (lathe_step_source){.tensor = i ? "b.{l}" : "a.{l}",
                                            .dtype = LATHE_SCALAR_I32,
                                            .shard_axis = -1,
                                            .shard_groups = 1};
    f->table = (lathe_step_table){.tp = tp,
                                  .buffer_count = 1,
                                  .buffers = &f->buffer,
                                  .weight_count = 1,
                                  .weights = &f->weight};
    f->weights = (lathe_weights){&f->table, rank, {read_numbers, NULL, NULL}};
}

static void set_shape(lathe_step_shape *s, int count, int64_t a, int64_t b, int64_t c) {
    *s = (lathe_step_shape){count, {a, b, c}};
}

static void finish(fixture *f) {
    f->buffer.fixed_bytes = 4;
    for (int d = 0; d < f->buffer.shape.count; ++d)
        f->buffer.fixed_bytes *= f->buffer.shape.dim[d];
}

static lathe_status fill(fixture *f, int32_t *to) {
    return lathe_weights_fill(&f->weights, 0, 3, to, (size_t)f->buffer.fixed_bytes, message,
                              sizeof message);
}

Test(weights, a_replicated_tensor_is_copied) {
    fixture f;
    int32_t w[24];
    set_up(&f, 4, 2);
    set_shape(&f.sources[0].shape, 3, 2, 3, 4);
    f.buffer.shape = f.sources[0].shape;
    finish(&f);
    cr_assert_eq(fill(&f, w), LATHE_OK, "%s", message);
    for (int i = 0; i < 24; ++i)
        cr_assert_eq(w[i], i);
}

Test(weights, every_axis_and_group_is_sharded_by_the_rule) {
    for (int axis = 0; axis < 3; ++axis)
        for (int groups = 1; groups <= 2; ++groups)
            for (int rank = 0; rank < 2; ++rank) {
                fixture f;
                int32_t w[256];
                int64_t local[3] = {4, 8, 4};
                set_up(&f, 2, rank);
                set_shape(&f.sources[0].shape, 3, 4, 8, 4);
                f.sources[0].shard_axis = axis;
                f.sources[0].shard_groups = groups;
                const int64_t group = local[axis] / groups;
                local[axis] /= 2;
                set_shape(&f.buffer.shape, 3, local[0], local[1], local[2]);
                finish(&f);
                cr_assert_eq(fill(&f, w), LATHE_OK, "%s", message);
                for (int i = 0; i < 64; ++i) {
                    int64_t at[3] = {i / (local[1] * local[2]), i / local[2] % local[1],
                                     i % local[2]};
                    const int64_t share = group / 2;
                    at[axis] = at[axis] / share * group + rank * share + at[axis] % share;
                    cr_assert_eq(w[i], (at[0] * 8 + at[1]) * 4 + at[2]);
                }
            }
}

Test(weights, sources_are_joined_along_the_axis) {
    for (int axis = 0; axis < 2; ++axis) {
        fixture f;
        int32_t w[24];
        set_up(&f, 2, 1);
        f.weight.source_count = 2;
        f.weight.axis = axis;
        set_shape(&f.sources[0].shape, 2, 4, 4, 0);
        set_shape(&f.sources[1].shape, 2, axis ? 4 : 8, axis ? 8 : 4, 0);
        f.sources[0].shard_axis = f.sources[1].shard_axis = axis;
        set_shape(&f.buffer.shape, 2, axis ? 4 : 6, axis ? 6 : 4, 0);
        finish(&f);
        cr_assert_eq(fill(&f, w), LATHE_OK, "%s", message);
        for (int i = 0; i < 24; ++i) {
            const int wide = axis ? 6 : 4;
            const int at = axis ? i % wide : i / wide;
            const int other = axis ? i / wide : i % wide;
            const int g = at < 2 ? at + 2 : at - 2 + 4;
            const int width = axis ? (at < 2 ? 4 : 8) : 4;
            const int element = axis ? other * width + g : g * width + other;
            cr_assert_eq(w[i], element + (at < 2 ? 0 : 1000), "axis %d element %d", axis, i);
        }
    }
}

Test(weights, shapes_that_do_not_meet_are_refused) {
    fixture f;
    int32_t w[64];
    set_up(&f, 3, 0);
    set_shape(&f.sources[0].shape, 1, 8, 0, 0);
    f.sources[0].shard_axis = 0;
    f.buffer.shape = f.sources[0].shape;
    finish(&f);
    cr_assert_eq(fill(&f, w), LATHE_INVALID);
    cr_assert(strstr(message, "cannot be split over 3"));
    f.table.tp = 2;
    cr_assert_eq(fill(&f, w), LATHE_INVALID);
    cr_assert(strstr(message, "fill 4 of 8"));
    set_shape(&f.buffer.shape, 1, 3, 0, 0);
    finish(&f);
    cr_assert_eq(fill(&f, w), LATHE_INVALID);
    cr_assert(strstr(message, "does not fit"));
}

Test(weights, all_that_a_checkpoint_lacks_is_listed) {
    fixture f;
    lathe_safetensors *c;
    static const int layers[] = {0, 1};
    cr_assert_eq(lathe_safetensors_open(LATHE_SOURCE_DIR "/tests/golden/mini/checkpoint", &c,
                                        message, sizeof message),
                 LATHE_OK, "%s", message);
    set_up(&f, 1, 0);
    f.buffer.per_layer = true;
    f.buffer.layer_count = 2;
    f.buffer.layers = layers;
    f.weight.source_count = 2;
    f.sources[0].tensor = "model.language_model.layers.{l}.input_layernorm.weight";
    f.sources[0].dtype = LATHE_SCALAR_BF16;
    set_shape(&f.sources[0].shape, 1, 128, 0, 0);
    cr_assert_eq(lathe_checkpoint_check(&f.table, c, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "golden/mini/checkpoint is not the checkpoint that step.json "
                              "describes:\nmissing: b.0\nmissing: b.1"),
              "%s", message);
    f.weight.source_count = 1;
    cr_assert_eq(lathe_checkpoint_check(&f.table, c, message, sizeof message), LATHE_OK, "%s",
                 message);
    set_shape(&f.sources[0].shape, 2, 64, 2, 0);
    cr_assert_eq(lathe_checkpoint_check(&f.table, c, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "BF16 [128], step.json says BF16 [64, 2]"), "%s", message);
    lathe_safetensors_close(c);
}

Test(weights, a_checkpoint_gives_its_bytes) {
    fixture f;
    lathe_safetensors *c;
    cr_assert_eq(lathe_safetensors_open(LATHE_SOURCE_DIR "/tests/golden/mini/checkpoint", &c,
                                        message, sizeof message),
                 LATHE_OK, "%s", message);
    set_up(&f, 2, 1);
    f.weights.reader = lathe_weights_checkpoint(c);
    f.sources[0].tensor = "lm_head.weight";
    f.sources[0].dtype = f.buffer.dtype = LATHE_SCALAR_BF16;
    f.sources[0].shard_axis = 0;
    set_shape(&f.sources[0].shape, 2, 128, 128, 0);
    set_shape(&f.buffer.shape, 2, 64, 128, 0);
    f.buffer.fixed_bytes = 64 * 128 * 2;
    unsigned char *w = malloc(64 * 128 * 2);
    cr_assert_eq(fill(&f, (int32_t *)(void *)w), LATHE_OK, "%s", message);
    cr_assert_eq(
        memcmp(w, lathe_safetensors_find(c, "lm_head.weight")->data + 64 * 128 * 2, 64 * 128 * 2),
        0);
    free(w);
    lathe_safetensors_close(c);
}

static lathe_status generate(lathe_synthetic *s, lathe_scalar dtype, const char *init,
                             const char *name, int64_t rows, int64_t columns, int64_t offset,
                             int64_t count, void *to) {
    const lathe_step_source source = {
        .tensor = name, .init = init, .dtype = dtype, .shape = {2, {rows, columns}}};
    const lathe_weight_reader r = lathe_synthetic_reader(s);
    return r.read(r.context, &source, name, offset, count, to, message, sizeof message);
}

Test(synthetic, an_element_depends_on_seed_name_and_index_only) {
    lathe_synthetic s = {false, 7};
    static float whole[4 * 1024 * 1024], part[1000];
    const int64_t n = 4 * 1024 * 1024;
    cr_assert_eq(generate(&s, LATHE_SCALAR_F32, NULL, "w", 4096, 1024, 0, n, whole), LATHE_OK);
    cr_assert_eq(generate(&s, LATHE_SCALAR_F32, NULL, "w", 4096, 1024, 99999, 1000, part),
                 LATHE_OK);
    cr_assert_eq(memcmp(part, whole + 99999, sizeof part), 0);
    cr_assert_eq(generate(&s, LATHE_SCALAR_F32, NULL, "v", 4096, 1024, 99999, 1000, part),
                 LATHE_OK);
    cr_assert_neq(memcmp(part, whole + 99999, sizeof part), 0);
    s.seed = 8;
    cr_assert_eq(generate(&s, LATHE_SCALAR_F32, NULL, "w", 4096, 1024, 99999, 1000, part),
                 LATHE_OK);
    cr_assert_neq(memcmp(part, whole + 99999, sizeof part), 0);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) {
        sum += (double)whole[i];
        squares += (double)whole[i] * (double)whole[i];
    }
    cr_assert_float_eq(sum / (double)n, 0, 1e-4);
    cr_assert_float_eq(squares / (double)n * 1024, 1, 1e-2);
}

/* Fixed values: another generator (on a GPU) is checked against the same. */
Test(synthetic, the_hash_is_pinned) {
    const uint64_t key = lathe_synthetic_key(7, "layers.0.w");
    cr_assert_eq(key, 0x8ac38e502e59a8abull);
    cr_assert_eq(lathe_synthetic_bits(key, 12345), 0x358e8db5e6d2d3fdull);
}

Test(synthetic, every_kind_gives_numbers) {
    static const char *kinds[] = {"weight", "embedding", "gain",         "offset",      "gate",
                                  "router", "bias",      "global_scale", "input_scale", "head"};
    for (int unkind = 0; unkind < 2; ++unkind)
        for (size_t k = 0; k < 10; ++k) {
            lathe_synthetic s = {unkind == 1, 3};
            float v[512];
            cr_assert_eq(generate(&s, LATHE_SCALAR_F32, kinds[k], "t", 16, 32, 0, 512, v),
                         LATHE_OK);
            for (int i = 0; i < 512; ++i)
                cr_assert(isfinite(v[i]) && fabsf(v[i]) < 1e4f);
        }
}

/* The head's row of the token that follows t is what a stream like t's embedding calls for. */
Test(synthetic, a_head_answers_its_embedding) {
    lathe_synthetic s = {false, 3};
    static float embedding[16 * 512], head[16 * 512];
    cr_assert_eq(generate(&s, LATHE_SCALAR_F32, "embedding", "e", 16, 512, 0, 16 * 512, embedding),
                 LATHE_OK);
    cr_assert_eq(generate(&s, LATHE_SCALAR_F32, "head:e", "h", 16, 512, 0, 16 * 512, head),
                 LATHE_OK);
    for (int t = 0; t < 16; ++t)
        for (int row = 0; row < 16; ++row) {
            double logit = 0;
            for (int i = 0; i < 512; ++i)
                logit += 16 * (double)embedding[t * 512 + i] * (double)head[row * 512 + i];
            cr_assert((row == (t + 4) % 16) == (logit > 5), "%d %d %g", t, row, logit);
        }
}

Test(synthetic, unkind_experts_tie_and_idle) {
    lathe_synthetic s = {true, 11};
    static float router[64 * 32], bias[64];
    cr_assert_eq(generate(&s, LATHE_SCALAR_F32, "router", "r", 64, 32, 0, 64 * 32, router),
                 LATHE_OK);
    cr_assert_eq(generate(&s, LATHE_SCALAR_F32, "bias", "b", 64, 1, 0, 64, bias), LATHE_OK);
    int ties = 0, idle = 0;
    for (int e = 0; e < 64; e += 2) {
        const bool same = memcmp(router + e * 32, router + (e + 1) * 32, 128) == 0;
        ties += same && bias[e] == bias[e + 1] && bias[e] > -10;
        idle += bias[e] <= -10;
        cr_assert(!same || bias[e] == bias[e + 1]);
    }
    cr_assert_geq(ties, 4);
    cr_assert_geq(idle, 2);
}

Test(synthetic, unkind_global_scales_lie_apart_in_both_directions) {
    lathe_synthetic s = {true, 11};
    float v[64 * 2];
    cr_assert_eq(generate(&s, LATHE_SCALAR_F32, "global_scale", "g", 64, 2, 0, 128, v), LATHE_OK);
    int gate = 0, up = 0;
    for (int e = 0; e < 64; ++e) {
        const float ratio = v[2 * e] / v[2 * e + 1];
        gate += ratio > 4;
        up += ratio < 0.25f;
    }
    cr_assert_eq(gate + up, 64);
    cr_assert_geq(gate, 16);
    cr_assert_geq(up, 16);
}

static double decode_e4m3(uint8_t b) {
    const int e = b >> 3 & 15;
    const double m = e ? 8 + (b & 7) : b & 7;
    return (b & 0x80 ? -1 : 1) * ldexp(m, (e ? e : 1) - 10);
}

Test(synthetic, e4m3_rounds_to_nearest_even_and_saturates) {
    for (int b = 0; b < 0x7f; ++b) {
        cr_assert_eq(lathe_synthetic_e4m3(decode_e4m3((uint8_t)b)), b);
        cr_assert_eq(lathe_synthetic_e4m3(-decode_e4m3((uint8_t)b)), b | 0x80);
        if (b < 0x7e) {
            const double tie = (decode_e4m3((uint8_t)b) + decode_e4m3((uint8_t)(b + 1))) / 2;
            cr_assert_eq(lathe_synthetic_e4m3(tie), b + (b & 1));
            cr_assert_eq(lathe_synthetic_e4m3(nextafter(tie, 0)), b);
            cr_assert_eq(lathe_synthetic_e4m3(nextafter(tie, 1e9)), b + 1);
        }
    }
    cr_assert_eq(lathe_synthetic_e4m3(1e9), 0x7e);
    cr_assert_eq(lathe_synthetic_e4m3((double)NAN), 0x7f);
}

Test(synthetic, a_name_is_a_kind_and_a_seed) {
    lathe_synthetic s;
    cr_assert(lathe_synthetic_parse("calm:12", &s));
    cr_assert(!s.unkind && s.seed == 12);
    cr_assert(lathe_synthetic_parse("unkind:0", &s));
    cr_assert(s.unkind && s.seed == 0);
    cr_assert(!lathe_synthetic_parse("calm:", &s));
    cr_assert(!lathe_synthetic_parse("calm:-1", &s));
    cr_assert(!lathe_synthetic_parse("calm:1x", &s));
    cr_assert(!lathe_synthetic_parse("models/calm", &s));
}

Test(synthetic, an_unknown_init_is_refused) {
    lathe_synthetic s = {false, 1};
    float v[4];
    cr_assert_eq(generate(&s, LATHE_SCALAR_F32, "brightness", "t", 2, 2, 0, 4, v), LATHE_INVALID);
    cr_assert(strstr(message, "'brightness'"));
    cr_assert_eq(generate(&s, LATHE_SCALAR_I64, NULL, "t", 2, 2, 0, 4, v), LATHE_UNSUPPORTED);
}
