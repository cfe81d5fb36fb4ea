/* SPDX-License-Identifier: Apache-2.0
 * Properties that any right implementation has (section 13 of the mathematics), on the step of the
 * mini case. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "golden_step.h"
#include "named.h"
#include "reference.h"
#include "step_inputs.h"

static char message[1024];
static golden_step step;

static void set_up(void) {
    cr_assert(golden_step_open(&step, "mini"));
}

static void tear_down(void) {
    golden_step_close(&step);
}

TestSuite(self_checks, .init = set_up, .fini = tear_down);

static lathe_npy read_dump(const char *dump, const char *value, int layer) {
    char name[64];
    lathe_npy a;
    lathe_named_format(value, layer, name, sizeof name);
    cr_assert_eq(lathe_named_read(dump, name, &a, message, sizeof message), LATHE_OK, "%s",
                 message);
    cr_assert(a.data && a.type == LATHE_NPY_F32, "%s", name);
    return a;
}

static void run_step(char *dump, size_t size) {
    char inputs[128];
    golden_step_folder(&step, "inputs", 0, inputs, sizeof inputs);
    golden_step_folder(&step, "dump", 0, dump, size);
    golden_case_write_inputs(&step.c, &step.splits[0], inputs);
    cr_assert_eq(golden_step_check(&step, inputs, dump, false).failed, 0);
}

/* 1. The gate keeps the norm wherever its clamp is idle. */
static void expect_norm_kept(const char *dump, const char *alpha_name, const char *beta_name) {
    for (int l = 0; l < step.c.layers; ++l) {
        lathe_npy alpha = read_dump(dump, alpha_name, l);
        lathe_npy beta = read_dump(dump, beta_name, l);
        for (int64_t i = 0; i < alpha.count; ++i) {
            const double a = (double)((const float *)alpha.data)[i];
            const double b = (double)((const float *)beta.data)[i];
            if (1 - b * b > 1e-3)
                cr_assert_float_eq(a * a + b * b, 1, 1e-6);
            else
                cr_assert_float_eq(a * a, 1e-3, 1e-8);
        }
        lathe_npy_destroy(&alpha);
        lathe_npy_destroy(&beta);
    }
}

/* 2. Branches of unit size leave the stream's mean square near 1. */
static void expect_stream_near_one(const char *dump, const char *value) {
    for (int l = 0; l < step.c.layers; ++l) {
        lathe_npy s = read_dump(dump, value, l);
        const int64_t width = s.count / step.c.rows;
        for (int64_t row = 0; row < step.c.rows; ++row) {
            double sum = 0;
            for (int64_t i = 0; i < width; ++i)
                sum += pow((double)((const float *)s.data)[row * width + i], 2);
            cr_assert_float_eq(sum / (double)width, 1, 0.5, "L%02d %s", l, value);
        }
        lathe_npy_destroy(&s);
    }
}

/* 3. Route weights sum to 1; where they are bf16, up to their rounding. */
static void expect_weights_of_one(const char *dump) {
    for (int l = 0; l < step.c.layers; ++l) {
        lathe_npy w = read_dump(dump, "moe.weights", l);
        for (int64_t row = 0; row < step.c.rows; ++row) {
            double sum = 0;
            for (int64_t k = 0; k < step.c.top_k; ++k)
                sum += (double)((const float *)w.data)[row * step.c.top_k + k];
            cr_assert_float_eq(sum, 1, l == 0 || l == 3 ? 0x1p-8 : 1e-6, "L%02d", l);
        }
        lathe_npy_destroy(&w);
    }
}

Test(self_checks, gate_stream_and_route_weights) {
    char dump[128];
    run_step(dump, sizeof dump);
    expect_norm_kept(dump, "attn.alpha", "attn.beta");
    expect_norm_kept(dump, "ffn.alpha", "ffn.beta");
    expect_stream_near_one(dump, "in.s");
    expect_stream_near_one(dump, "mid.s");
    expect_weights_of_one(dump);
}

enum { LAST = 3, CONTEXT = 40, Q = 8, WINDOW = 24, UNIT = 16 };

/* The gated attention output of the last layer, a sliding one, after a step. */
static void run_attention(uint16_t *y, size_t bytes) {
    cr_assert_eq(lathe_engine_launch_all(step.engine, 0), LATHE_OK);
    cr_assert_eq(lathe_engine_synchronize(step.engine), LATHE_OK, "%s", lathe_message(step.engine));
    cr_assert_eq(lathe_engine_read(step.engine, "attn.y", -1, 0, y, bytes), LATHE_OK);
}

/* Puts another key and value at a position of the last layer's cache. */
static void change_key(int64_t position) {
    int32_t table[8];
    uint16_t row[64];
    cr_assert_eq(lathe_engine_read(step.engine, "block_tables.sliding", -1, 0, table, 4 * 4),
                 LATHE_OK);
    for (size_t i = 0; i < 64; ++i)
        row[i] = (uint16_t)(0x3f80 + i);
    const int64_t width = 2 * step.c.head_dim;
    cr_assert_eq(width, 64);
    for (int64_t h = 0; h < step.c.kv_heads; ++h) {
        const int64_t at = (table[position / UNIT] * step.c.kv_heads + h) * UNIT + position % UNIT;
        cr_assert_eq(lathe_engine_write(step.engine, "kv.sliding", LAST,
                                        (size_t)(at * width) * sizeof *row, row, sizeof row),
                     LATHE_OK);
    }
}

/* 6. A query at t sees the key at t - W + 1 and not the one at t - W; of the queries of one step
 * each has its own edge. */
Test(self_checks, the_window_ends_where_it_should) {
    enum { WIDTH = 128 };
    static uint16_t before[Q * WIDTH], after[Q * WIDTH];
    const lathe_step_inputs inputs = {.seed = 3, .context = CONTEXT};
    for (int64_t i = 0; i < Q; ++i) {
        const int64_t t = CONTEXT - Q + i;
        cr_assert_eq(lathe_step_inputs_write(step.engine, 0, &inputs, message, sizeof message),
                     LATHE_OK, "%s", message);
        run_attention(before, sizeof before);
        change_key(t - WINDOW + 1);
        run_attention(after, sizeof after);
        for (int64_t row = 0; row < Q; ++row) {
            const bool same =
                memcmp(before + row * WIDTH, after + row * WIDTH, WIDTH * sizeof *before) == 0;
            cr_assert_eq(same, row > i, "query %lld, key of query %lld's edge", (long long)row,
                         (long long)i);
        }
    }
}

enum { ROPE_HEADS = 4, ROPE_KV_HEADS = 2, ROPE_DIM = 32, ROPE_WIDTH = 2 * (4 + 2) * 32 };
#define ROPE_THETA 500000.0

/* Queries and keys of the step's tokens, and the scores of every query with every key. */
typedef struct {
    double q[Q][ROPE_HEADS][ROPE_DIM];
    double k[Q][ROPE_KV_HEADS][ROPE_DIM];
    double scores[Q][ROPE_HEADS][Q];
} rotated;

static void compute_scores(rotated *r) {
    for (int row = 0; row < Q; ++row)
        for (int h = 0; h < ROPE_HEADS; ++h)
            for (int key = 0; key < Q; ++key) {
                double sum = 0;
                for (int d = 0; d < ROPE_DIM; ++d)
                    sum += r->q[row][h][d] * r->k[key][h * ROPE_KV_HEADS / ROPE_HEADS][d];
                r->scores[row][h][key] = sum;
            }
}

/* What the kernel left in attn.q and in the last layer's cache. */
static void read_rotated(rotated *r) {
    uint16_t q[Q][ROPE_HEADS][ROPE_DIM], row[2 * ROPE_DIM];
    int64_t slots[Q];
    cr_assert_eq(lathe_engine_read(step.engine, "attn.q", -1, 0, q, sizeof q), LATHE_OK);
    cr_assert_eq(lathe_engine_read(step.engine, "slot_mapping.sliding", -1, 0, slots, sizeof slots),
                 LATHE_OK);
    for (int i = 0; i < Q; ++i) {
        for (int h = 0; h < ROPE_HEADS; ++h)
            for (int d = 0; d < ROPE_DIM; ++d)
                r->q[i][h][d] = lathe_bf16_value(q[i][h][d]);
        for (int h = 0; h < ROPE_KV_HEADS; ++h) {
            const int64_t at = (slots[i] / UNIT * ROPE_KV_HEADS + h) * UNIT + slots[i] % UNIT;
            cr_assert_eq(lathe_engine_read(step.engine, "kv.sliding", LAST, (size_t)at * sizeof row,
                                           row, sizeof row),
                         LATHE_OK);
            for (int d = 0; d < ROPE_DIM; ++d)
                r->k[i][h][d] = lathe_bf16_value(row[d]);
        }
    }
    compute_scores(r);
}

/* Row i * D/2 + j of every head of q and k becomes row 2j + i. */
static void interleave_weights(void) {
    lathe_engine_memory m;
    cr_assert_eq(lathe_engine_find(step.engine, "attn.qkvg.w", LAST, &m), LATHE_OK);
    cr_assert_eq(m.shape.dim[0], ROPE_WIDTH);
    const size_t row = m.bytes / ROPE_WIDTH;
    char *old = malloc(m.bytes);
    char *new = malloc(m.bytes);
    cr_assert(old && new);
    cr_assert_eq(lathe_engine_read(step.engine, "attn.qkvg.w", LAST, 0, old, m.bytes), LATHE_OK);
    memcpy(new, old, m.bytes);
    for (size_t i = 0; i < (ROPE_HEADS + ROPE_KV_HEADS) * ROPE_DIM; ++i) {
        const size_t d = i % ROPE_DIM;
        const size_t to = i - d + 2 * (d % (ROPE_DIM / 2)) + d / (ROPE_DIM / 2);
        memcpy(new + to *row, old + i * row, row);
    }
    cr_assert_eq(lathe_engine_write(step.engine, "attn.qkvg.w", LAST, 0, new, m.bytes), LATHE_OK);
    free(old);
    free(new);
}

/* The last product of x and the fused weight. */
static void read_qkvg(double qkvg[Q][ROPE_WIDTH]) {
    static uint16_t bits[Q][ROPE_WIDTH];
    lathe_engine_memory m;
    cr_assert_eq(lathe_engine_find(step.engine, "attn.qkvg", -1, &m), LATHE_OK);
    cr_assert(m.buffer->dtype == LATHE_SCALAR_BF16 && m.bytes == sizeof bits);
    cr_assert_eq(lathe_engine_read(step.engine, "attn.qkvg", -1, 0, bits, sizeof bits), LATHE_OK);
    for (int row = 0; row < Q; ++row)
        for (int i = 0; i < ROPE_WIDTH; ++i)
            qkvg[row][i] = lathe_bf16_value(bits[row][i]);
}

/* QK norm, then the rotation of neighbours. */
static void rotate_neighbours(const double *from, int64_t position, double *to) {
    double square = 0;
    for (int d = 0; d < ROPE_DIM; ++d)
        square += from[d] * from[d];
    const double rms = sqrt(square / ROPE_DIM + 1e-5);
    for (int j = 0; j < ROPE_DIM / 2; ++j) {
        const double a = lathe_bf16_round(from[2 * j] / rms);
        const double b = lathe_bf16_round(from[2 * j + 1] / rms);
        const double angle = (double)position * pow(ROPE_THETA, -2.0 * j / ROPE_DIM);
        to[2 * j] = lathe_bf16_round(a * cos(angle) - b * sin(angle));
        to[2 * j + 1] = lathe_bf16_round(a * sin(angle) + b * cos(angle));
    }
}

static void rotate_interleaved(rotated *r) {
    static double qkvg[Q][ROPE_WIDTH];
    int64_t positions[Q];
    cr_assert_eq(lathe_engine_read(step.engine, "positions", -1, 0, positions, sizeof positions),
                 LATHE_OK);
    read_qkvg(qkvg);
    for (int i = 0; i < Q; ++i) {
        for (int h = 0; h < ROPE_HEADS; ++h)
            rotate_neighbours(qkvg[i] + h * ROPE_DIM, positions[i], r->q[i][h]);
        for (int h = 0; h < ROPE_KV_HEADS; ++h)
            rotate_neighbours(qkvg[i] + (ROPE_HEADS + h) * ROPE_DIM, positions[i], r->k[i][h]);
    }
    compute_scores(r);
}

static double measure_scores(const rotated *a, const rotated *b) {
    double difference = 0, size = 0;
    for (int i = 0; i < Q * ROPE_HEADS * Q; ++i) {
        difference += pow((&a->scores[0][0][0])[i] - (&b->scores[0][0][0])[i], 2);
        size += pow((&a->scores[0][0][0])[i], 2);
    }
    return sqrt(difference / size);
}

/* 5. Rotating stored rows in pairs (j, j + D/2) gives the scores of rows permuted to interleaved
 * order and rotated in pairs (2j, 2j + 1). Without the permutation it does not. */
Test(self_checks, rotation_of_stored_rows) {
    static rotated stored, unpermuted, interleaved;
    const lathe_step_inputs inputs = {.seed = 5, .context = CONTEXT};
    cr_assert_eq(step.c.heads, ROPE_HEADS);
    cr_assert_eq(lathe_step_inputs_write(step.engine, 0, &inputs, message, sizeof message),
                 LATHE_OK, "%s", message);
    cr_assert_eq(lathe_engine_launch_all(step.engine, 0), LATHE_OK);
    cr_assert_eq(lathe_engine_synchronize(step.engine), LATHE_OK);
    read_rotated(&stored);
    rotate_interleaved(&unpermuted);
    interleave_weights();
    cr_assert_eq(lathe_engine_launch_all(step.engine, 0), LATHE_OK);
    cr_assert_eq(lathe_engine_synchronize(step.engine), LATHE_OK);
    rotate_interleaved(&interleaved);
    cr_assert_lt(measure_scores(&stored, &interleaved), 4e-3); /* line 1: two bf16 vectors */
    cr_assert_gt(measure_scores(&stored, &unpermuted), 0.1);
}

enum { EXPERT_LAYERS = 4, POOLED = 64 };

/* The experts' output of every layer, from the same input in both deployments. */
static void run_experts(const char *run, const char *deployment, lathe_npy *m) {
    static const golden_trace trace = {"mid.x", "mid.x", GOLDEN_BY_ROW, GOLDEN_WHOLE};
    golden_step s;
    char inputs[128], dump[128], folder[256], name[64];
    cr_assert(golden_step_open_run(&s, "mini", run, deployment));
    golden_step_folder(&s, "inputs", 0, inputs, sizeof inputs);
    golden_step_folder(&s, "dump", 0, dump, sizeof dump);
    golden_case_write_inputs(&s.c, &s.splits[0], inputs);
    for (int l = 0; l < EXPERT_LAYERS; ++l) {
        lathe_npy x = golden_case_read(&step.c, &step.splits[0], 0, l, &trace);
        lathe_named_format("mid.x", l, name, sizeof name);
        snprintf(folder, sizeof folder, "%s/%s.npy", inputs, name);
        cr_assert_eq(lathe_npy_write(folder, &x, message, sizeof message), LATHE_OK, "%s", message);
        lathe_npy_destroy(&x);
    }
    cr_assert_eq(golden_step_check(&s, inputs, dump, false).failed, 0);
    golden_case_folder(&s.c, dump, 0, folder, sizeof folder);
    for (int l = 0; l < EXPERT_LAYERS; ++l) {
        lathe_named_format("moe.m", l, name, sizeof name);
        cr_assert_eq(lathe_named_read(folder, name, &m[l], message, sizeof message), LATHE_OK);
        cr_assert(m[l].data && m[l].count == Q * POOLED, "%s", name);
    }
    golden_step_close(&s);
}

/* 4. Whole experts by rank and sliced experts agree on the same quantised input (line 4). The edge
 * layers hold whole experts either way. */
Test(self_checks, whole_and_sliced_experts_agree) {
    lathe_npy sliced[EXPERT_LAYERS], whole[EXPERT_LAYERS];
    run_experts("tp2", NULL, sliced);
    run_experts("ep2", "ep", whole);
    for (int l = 0; l < EXPERT_LAYERS; ++l) {
        const double off =
            lathe_compare_arrays(LATHE_SCALAR_BF16, sliced[l].data, whole[l].data, Q * POOLED);
        cr_expect_leq(off, step.c.bf16[l] ? 0 : LATHE_EXPERTS_TOLERANCE, "L%02d: %.3g", l, off);
        cr_expect(step.c.bf16[l] || off > 0, "L%02d: the same order of sums in both", l);
        lathe_npy_destroy(&sliced[l]);
        lathe_npy_destroy(&whole[l]);
    }
}
