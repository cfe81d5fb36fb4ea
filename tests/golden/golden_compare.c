/* SPDX-License-Identifier: Apache-2.0
 * The rules are those of tools/compare.c; lines are those of design.md, "What a number may be off
 * by". */
#include "golden_compare.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "named.h"
#include "reference.h"

static char message[1024];

static lathe_npy read_dump(const char *dump, const char *name) {
    lathe_npy a;
    cr_assert_eq(lathe_named_read(dump, name, &a, message, sizeof message), LATHE_OK, "%s",
                 message);
    return a;
}

static lathe_scalar find_scalar(const char *value, const lathe_npy *a) {
    switch (a->type) {
    case LATHE_NPY_U16:
        return LATHE_SCALAR_BF16;
    case LATHE_NPY_F32:
        return LATHE_SCALAR_F32;
    case LATHE_NPY_I32:
        return LATHE_SCALAR_I32;
    default:
        return strstr(value, "scales") ? LATHE_SCALAR_E4M3 : LATHE_SCALAR_U8;
    }
}

/* fp32 values of which the launch had every bf16 input at hand (line 1); the others cross a fused
 * boundary. */
static bool is_fused(const char *value) {
    return strcmp(value, "moe.logits") != 0;
}

/* Sums fp32 partial sums over k into the bf16 that the case recorded. */
static void add_partials(lathe_npy *a, int64_t count) {
    uint16_t *sums = malloc((size_t)count * sizeof *sums);
    cr_assert(sums && a->count % count == 0);
    for (int64_t i = 0; i < count; ++i) {
        double sum = 0;
        for (int64_t k = i; k < a->count; k += count)
            sum += (double)((const float *)a->data)[k];
        sums[i] = lathe_bf16_bits(sum);
    }
    free(a->data);
    a->data = sums;
    a->type = LATHE_NPY_U16;
    a->count = count;
}

/* From permuted rows back to routes, by the metadata that the step wrote. A route whose expert is
 * elsewhere has no row here: the case's stands in. */
static void gather_routes(const char *dump, int layer, const lathe_npy *expected, int64_t routes,
                          lathe_npy *a) {
    char name[64];
    lathe_named_format("meta.expanded_to_permuted", layer, name, sizeof name);
    lathe_npy meta = read_dump(dump, name);
    const size_t row = (size_t)(expected->count / routes) * lathe_npy_item_bytes(a->type);
    char *rows = malloc((size_t)routes * row);
    cr_assert(rows && meta.data && meta.count == routes);
    for (int64_t x = 0; x < routes; ++x) {
        const int32_t at = ((const int32_t *)meta.data)[x];
        cr_assert((size_t)(at + 1) * row <= (size_t)a->count * lathe_npy_item_bytes(a->type));
        const char *from = at < 0 ? expected->data : a->data;
        memcpy(rows + (size_t)x * row, from + (size_t)(at < 0 ? x : at) * row, row);
    }
    lathe_npy_destroy(&meta);
    free(a->data);
    a->data = rows;
    a->count = expected->count;
}

static double *make_expected(lathe_scalar dtype, const lathe_npy *a) {
    double *values = malloc((size_t)a->count * sizeof *values);
    cr_assert_not_null(values);
    for (int64_t i = 0; i < a->count; ++i)
        values[i] = lathe_compare_value(dtype, a->data, i);
    return values;
}

/* The step's value in the trace's shape; data NULL where the step does not write it. */
static lathe_npy read_value(const golden_case *c, const golden_split *s, const char *dump,
                            int layer, const golden_trace *t, const lathe_npy *expected) {
    char name[64];
    lathe_named_format(t->value, layer, name, sizeof name);
    lathe_npy a = read_dump(dump, name);
    if (!a.data)
        return a;
    if (t->index == GOLDEN_BY_ROUTE)
        gather_routes(dump, layer, expected, s->rows * c->top_k, &a);
    if (a.type == LATHE_NPY_F32 && expected->type == LATHE_NPY_U16)
        add_partials(&a, expected->count);
    cr_assert(a.type == expected->type && a.count == expected->count,
              "%s: %lld elements of %s, the case has %lld of %s", name, (long long)a.count,
              lathe_npy_type_name(a.type), (long long)expected->count,
              lathe_npy_type_name(expected->type));
    return a;
}

static bool compare_value(const golden_case *c, const golden_split *s, const char *dump, int rank,
                          int layer, const golden_trace *t) {
    lathe_npy expected = golden_case_read(c, s, rank, layer, t);
    if (!expected.data)
        return false;
    lathe_npy found = read_value(c, s, dump, layer, t, &expected);
    const bool present = found.data != NULL;
    if (present) {
        const lathe_scalar dtype = find_scalar(t->value, &expected);
        double *values = make_expected(dtype, &expected);
        const lathe_comparison q = lathe_compare(lathe_compare_rule(dtype, is_fused(t->value)),
                                                 dtype, values, found.data, found.count, 0);
        cr_expect(q.pass,
                  "%s, rank %d, L%02d.%s: %.3g, allowed %.3g; element %lld is %.9g, expected %.9g",
                  c->path, rank, layer, t->value, q.relative, q.allowed, (long long)q.worst,
                  q.found_worst, q.expected_worst);
        free(values);
    }
    lathe_npy_destroy(&expected);
    lathe_npy_destroy(&found);
    return present;
}

int golden_compare_values(const golden_case *c, const golden_split *s, const char *dump) {
    int compared = 0;
    for (int rank = 0; rank < c->tp; ++rank) {
        char folder[1200];
        golden_case_folder(c, dump, rank, folder, sizeof folder);
        for (int l = 0; l < c->layers; ++l)
            for (const golden_trace *t = golden_layer_traces; t->value; ++t)
                compared += compare_value(c, s, folder, rank, l, t);
        for (const golden_trace *t = golden_final_traces; t->value; ++t)
            compared += compare_value(c, s, folder, rank, -1, t);
    }
    return compared;
}

/* -1 in the case is undefined; the histogram is scratch. */
static void compare_array(const golden_case *c, const char *dump, int rank, int layer,
                          const char *value, const char *trace) {
    char path[1200];
    char folder[1200];
    char name[64];
    lathe_npy expected;
    golden_case_folder(c, dump, rank, folder, sizeof folder);
    snprintf(path, sizeof path, "%s/expected/%s/step0/L%02d.meta.r%d.%s.npy", c->path, c->run,
             layer, rank, trace);
    cr_assert_eq(lathe_npy_read(path, &expected, message, sizeof message), LATHE_OK, "%s", message);
    lathe_named_format(value, layer, name, sizeof name);
    lathe_npy found = read_dump(folder, name);
    cr_assert(found.data && found.count == expected.count && found.type == expected.type, "%s",
              name);
    for (int64_t i = 0; i < found.count; ++i) {
        const int32_t e = ((const int32_t *)expected.data)[i];
        if (e != -1)
            cr_expect_eq(((const int32_t *)found.data)[i], e, "%s, element %lld", name,
                         (long long)i);
    }
    lathe_npy_destroy(&expected);
    lathe_npy_destroy(&found);
}

void golden_compare_metadata(const golden_case *c, const char *dump) {
    static const char *const arrays[][2] = {
        {"meta.total_padded", "0_total_num_padded_tokens"},
        {"meta.expanded_to_permuted", "1_expanded_idx_to_permuted_idx"},
        {"meta.permuted_to_token", "2_permuted_idx_to_token_idx"},
        {"meta.counts", "5_num_tokens_per_expert"},
        {"meta.cta_expert", "6_cta_idx_xy_to_batch_idx"},
        {"meta.cta_limit", "7_cta_idx_xy_to_mn_limit"},
        {"meta.ctas", "8_num_non_exiting_ctas"},
    };
    for (int rank = 0; rank < c->tp; ++rank)
        for (int l = 0; l < c->layers; ++l)
            for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; ++i)
                compare_array(c, dump, rank, l, arrays[i][0], arrays[i][1]);
}

static void compare_cache(const golden_case *c, const golden_split *s, const char *dump, int rank,
                          int layer, const lathe_npy *slots) {
    static const golden_trace trace = {"attn.rows", "attn.rows", GOLDEN_BY_ROW, GOLDEN_COLUMNS};
    const int64_t heads = c->kv_heads / c->tp;
    char name[64];
    char folder[1200];
    golden_case_folder(c, dump, rank, folder, sizeof folder);
    lathe_named_format(c->full[layer] ? "kv.full" : "kv.sliding", layer, name, sizeof name);
    lathe_npy cache = read_dump(folder, name);
    lathe_npy rows = golden_case_read(c, s, rank, layer, &trace);
    cr_assert(cache.data && rows.data && cache.rank == 4);
    const int64_t unit = cache.shape[2];
    const int64_t width = cache.shape[3];
    uint16_t *found = malloc((size_t)rows.count * sizeof *found);
    cr_assert_not_null(found);
    for (int64_t i = 0; i < rows.count / width; ++i) {
        const int64_t slot = ((const int64_t *)slots->data)[i / heads];
        const int64_t at = (slot / unit * heads + i % heads) * unit + slot % unit;
        memcpy(found + i * width, (const uint16_t *)cache.data + at * width, (size_t)width * 2);
    }
    double *values = make_expected(LATHE_SCALAR_BF16, &rows);
    const lathe_comparison q =
        lathe_compare(LATHE_RULE_BF16, LATHE_SCALAR_BF16, values, found, rows.count, width);
    cr_expect(q.pass, "%s: %.3g, element %lld", name, q.relative, (long long)q.worst);
    free(values);
    free(found);
    lathe_npy_destroy(&cache);
    lathe_npy_destroy(&rows);
}

void golden_compare_rows(const golden_case *c, const golden_split *s, const char *dump) {
    static const golden_trace trace = {"slots", "attn.slots", GOLDEN_BY_ROW, GOLDEN_WHOLE};
    for (int i = 0; i < c->tp * c->layers; ++i) {
        const int l = i / c->tp;
        lathe_npy slots = golden_case_read(c, s, i % c->tp, l, &trace);
        cr_assert(slots.data && slots.type == LATHE_NPY_I64);
        compare_cache(c, s, dump, i % c->tp, l, &slots);
        lathe_npy_destroy(&slots);
    }
}

/* Line 3. */
static void compare_whole(const golden_case *c, const golden_split *s, const char *dump, int layer,
                          const golden_trace *t, double noise) {
    for (int rank = 0; rank < c->tp; ++rank) {
        char folder[1200];
        golden_case_folder(c, dump, rank, folder, sizeof folder);
        lathe_npy expected = golden_case_read(c, s, rank, layer, t);
        cr_assert_not_null(expected.data, "%s", t->trace);
        lathe_npy found = read_value(c, s, folder, layer, t, &expected);
        cr_assert_not_null(found.data, "%s", t->value);
        const double off = lathe_compare_arrays(find_scalar(t->value, &expected), expected.data,
                                                found.data, expected.count);
        const double allowed = fmax(LATHE_STEP_TOLERANCE, LATHE_STEP_NOISE_FACTOR * noise);
        cr_expect(off <= allowed, "%s, rank %d, L%02d.%s: %.3g, allowed %.3g", c->path, rank, layer,
                  t->value, off, allowed);
        lathe_npy_destroy(&expected);
        lathe_npy_destroy(&found);
    }
}

void golden_compare_step(const golden_case *c, const golden_split *s, const char *dump) {
    static const golden_trace stream = {"in.s", "in.s", GOLDEN_BY_ROW, GOLDEN_WHOLE};
    char folder[1200];
    for (int l = 0; l < c->layers; ++l)
        compare_whole(c, s, dump, l, &stream, c->stream_noise[l]);
    golden_case_folder(c, dump, 0, folder, sizeof folder);
    for (const golden_trace *t = golden_final_traces; t->value; ++t) {
        if (strcmp(t->value, "hidden") == 0)
            compare_whole(c, s, dump, -1, t, c->hidden_noise);
        else if (strcmp(t->value, "logits") == 0)
            compare_whole(c, s, dump, -1, t, c->logits_noise);
        else if (strcmp(t->value, "next_tokens") == 0)
            cr_expect(compare_value(c, s, folder, 0, -1, t), "the step gives no tokens");
    }
}
