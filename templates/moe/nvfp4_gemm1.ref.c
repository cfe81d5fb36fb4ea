/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/nvfp4_gemm1, live rows only: sums, SwiGLU and the block maximum in double; v is
 * rounded to fp32 before it is requantised, as the format prescribes. Rows that no route fills stay
 * unset. */
#include <math.h>
#include <stdlib.h>

#include "reference.h"

typedef struct {
    lathe_ref *r;
    int64_t ctas, tile, width, columns; /* width: expert input; columns: intermediate */
    const uint8_t *codes, *scales, *w13, *w13_scales;
    const int32_t *token, *expert, *limit;
    const float *gate_alpha, *up_alpha;
    double *codes2, *scales2;
} gemm1_job;

static double e4m3_value(unsigned code) {
    const int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
    if ((code & 127) == 127)
        return (double)NAN;
    const double magnitude =
        exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    return code & 128 ? -magnitude : magnitude;
}

static const double e2m1_values[16] = {0,    0.5,  1,  1.5,  2,  3,  4,  6,
                                       -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

/* Nearest e4m3 of a number that is not negative, ties to the even code, saturating. */
static double e4m3_round(double v) {
    unsigned best = 0;
    if (isnan(v))
        return v;
    v = fmin(v, 448);
    for (unsigned code = 1; code < 127; ++code) {
        const double here = fabs(e4m3_value(code) - v), there = fabs(e4m3_value(best) - v);
        if (here < there || (here == there && code % 2 == 0))
            best = code;
    }
    return e4m3_value(best);
}

/* Nearest e2m1, ties to the even code, saturating; NaN gives 7. */
static unsigned e2m1_code(double v) {
    const double size = fmin(fabs(v), 6);
    unsigned best = 0;
    if (isnan(v))
        return 7;
    for (unsigned code = 1; code < 8; ++code) {
        const double here = fabs(e2m1_values[code] - size), there = fabs(e2m1_values[best] - size);
        if (here < there || (here == there && code % 2 == 0))
            best = code;
    }
    return best | (signbit(v) ? 8u : 0u);
}

/* A row of packed codes with its scales, as numbers. */
static void dequantise(const uint8_t *codes, const uint8_t *scales, int64_t width, double *out) {
    for (int64_t b = 0; b < width / 16; ++b) {
        const double scale = e4m3_value(scales[b]);
        for (int64_t i = b * 16; i < b * 16 + 16; ++i)
            out[i] = scale * e2m1_values[codes[i / 2] >> (i % 2 * 4) & 15];
    }
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
        sum += a[i] * b[i];
    return sum;
}

/* v of one intermediate column for each of `count` tokens x, 16 apart in `v`. */
static void column_values(const gemm1_job *job, int64_t tile, int64_t column, const double *x,
                          int64_t count, double *w, double *v) {
    const int64_t e = job->expert[tile];
    for (int half = 0; half < 2; ++half) {
        const int64_t row = (2 * e + half) * job->columns + column;
        dequantise(job->w13 + row * (job->width / 2), job->w13_scales + row * (job->width / 16),
                   job->width, w);
        for (int64_t t = 0; t < count; ++t) {
            const uint64_t index =
                (uint64_t)(((tile * job->tile + t) * 2 + half) * job->columns + column);
            const double raw =
                lathe_ref_jitter(job->r, dot(x + t * job->width, w, job->width), index);
            const double gate = raw * (double)job->gate_alpha[e];
            if (half == 0)
                v[t * 16] = gate / (1 + exp(-gate));
            else
                v[t * 16] = v[t * 16] * raw * (double)job->up_alpha[e];
        }
    }
}

/* Quantises 16 values of one row. */
static void requantise(const gemm1_job *job, int64_t row, int64_t block, double *v) {
    double most = 0;
    double *codes = job->codes2 + row * (job->columns / 2) + block * 8;
    for (int i = 0; i < 16; ++i) {
        v[i] = (double)(float)v[i];
        most = isnan(v[i]) || isnan(most) ? (double)NAN : fmax(most, fabs(v[i]));
    }
    const double scale = e4m3_round((double)((float)most / 6.0f));
    for (int i = 0; i < 16; i += 2) {
        unsigned low = 0, high = 0;
        if (scale != 0 || most == 0) {
            const double divisor = most == 0 ? 1 : scale;
            low = e2m1_code((double)((float)v[i] / (float)divisor));
            high = e2m1_code((double)((float)v[i + 1] / (float)divisor));
        }
        codes[i / 2] = (double)(low | high << 4);
    }
    job->scales2[row * (job->columns / 16) + block] = scale;
}

/* Tasks are blocks of columns within tiles, so that each weight is read once. */
static void gemm1_task(void *context, int64_t task) {
    const gemm1_job *job = context;
    const int64_t blocks = job->columns / 16, tile = task / blocks, block = task % blocks;
    const int64_t first = tile * job->tile, count = job->limit[tile] - first;
    double *x = malloc(sizeof *x * (size_t)((count + 1) * job->width + count * 16));
    if (x == NULL) {
        lathe_ref_fail(job->r, "nvfp4_gemm1: no memory");
        return;
    }
    double *w = x + count * job->width, *v = w + job->width;
    for (int64_t t = 0; t < count; ++t) {
        const int64_t token = job->token[first + t];
        dequantise(job->codes + token * (job->width / 2), job->scales + token * (job->width / 16),
                   job->width, x + t * job->width);
    }
    for (int i = 0; i < 16; ++i)
        column_values(job, tile, block * 16 + i, x, count, w, v + i);
    for (int64_t t = 0; t < count; ++t)
        requantise(job, first + t, block, v + t * 16);
    free(x);
}

/* Columns are sampled by whole blocks, since a code cannot be had without its block: where one
 * column in n is wanted, so is one block in n. */
static void gemm1_wanted(void *context, int64_t task) {
    const gemm1_job *job = context;
    if (lathe_ref_column(job->r, task % (job->columns / 16)))
        gemm1_task(context, task);
}

void lathe_ref_moe_nvfp4_gemm1(lathe_ref *r);
void lathe_ref_moe_nvfp4_gemm1(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        gemm1_job job = {.r = r,
                         .ctas = *(const int32_t *)lathe_ref_data(r, rank, "ctas"),
                         .tile = lathe_ref_int(r, "kTile"),
                         .width = lathe_ref_int(r, "kBlocks") * 16,
                         .columns = lathe_ref_int(r, "kOutBlocks") * 16,
                         .codes = lathe_ref_data(r, rank, "codes"),
                         .scales = lathe_ref_data(r, rank, "scales"),
                         .w13 = lathe_ref_data(r, rank, "w13"),
                         .w13_scales = lathe_ref_data(r, rank, "w13_scales"),
                         .token = lathe_ref_data(r, rank, "permuted_to_token"),
                         .expert = lathe_ref_data(r, rank, "cta_expert"),
                         .limit = lathe_ref_data(r, rank, "cta_limit"),
                         .gate_alpha = lathe_ref_data(r, rank, "gate_alpha"),
                         .up_alpha = lathe_ref_data(r, rank, "up_alpha"),
                         .codes2 = lathe_ref_out(r, rank, "codes2"),
                         .scales2 = lathe_ref_out(r, rank, "scales2")};
        lathe_ref_parallel(r, job.ctas * (job.columns / 16), gemm1_wanted, &job);
    }
}
