/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/nvfp4_gemm2, live rows only: exact operands, sums in double, one rounding to
 * bf16. */
#include <math.h>
#include <stdlib.h>

#include "reference.h"

typedef struct {
    lathe_ref *r;
    int64_t ctas, tile, width, columns; /* width: intermediate; columns: expert output */
    const uint8_t *codes2, *scales2, *w2, *w2_scales;
    const int32_t *expert, *limit;
    const float *alpha;
    double *rows;
} gemm2_job;

static double e4m3_value(unsigned code) {
    const int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
    if ((code & 127) == 127)
        return (double)NAN;
    const double magnitude =
        exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    return code & 128 ? -magnitude : magnitude;
}

/* A row of packed codes with its scales, as numbers. */
static void dequantise(const uint8_t *codes, const uint8_t *scales, int64_t width, double *out) {
    static const double e2m1_values[16] = {0,    0.5,  1,  1.5,  2,  3,  4,  6,
                                           -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
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

static void output_column(const gemm2_job *job, int64_t tile, int64_t column, const double *x,
                          double *w) {
    const int64_t e = job->expert[tile], row = e * job->columns + column;
    const int64_t first = tile * job->tile;
    dequantise(job->w2 + row * (job->width / 2), job->w2_scales + row * (job->width / 16),
               job->width, w);
    for (int64_t t = first; t < job->limit[tile]; ++t) {
        const uint64_t index = (uint64_t)(t * job->columns + column);
        const double raw =
            lathe_ref_jitter(job->r, dot(x + (t - first) * job->width, w, job->width), index);
        job->rows[t * job->columns + column] = lathe_bf16_round(raw * (double)job->alpha[e]);
    }
}

/* A task is 64 columns of a tile. */
static void gemm2_task(void *context, int64_t task) {
    const gemm2_job *job = context;
    const int64_t parts = (job->columns + 63) / 64, tile = task / parts;
    const int64_t first = tile * job->tile, count = job->limit[tile] - first;
    double *x = malloc(sizeof *x * (size_t)((count + 1) * job->width));
    if (x == NULL) {
        lathe_ref_fail(job->r, "nvfp4_gemm2: no memory");
        return;
    }
    for (int64_t t = 0; t < count; ++t)
        dequantise(job->codes2 + (first + t) * (job->width / 2),
                   job->scales2 + (first + t) * (job->width / 16), job->width, x + t * job->width);
    for (int64_t i = task % parts * 64; i < task % parts * 64 + 64 && i < job->columns; ++i)
        if (lathe_ref_column(job->r, i))
            output_column(job, tile, i, x, x + count * job->width);
    free(x);
}

void lathe_ref_moe_nvfp4_gemm2(lathe_ref *r);
void lathe_ref_moe_nvfp4_gemm2(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        gemm2_job job = {.r = r,
                         .ctas = *(const int32_t *)lathe_ref_data(r, rank, "ctas"),
                         .tile = lathe_ref_int(r, "kTile"),
                         .width = lathe_ref_int(r, "kBlocks") * 16,
                         .columns = lathe_ref_int(r, "kWidth"),
                         .codes2 = lathe_ref_data(r, rank, "codes2"),
                         .scales2 = lathe_ref_data(r, rank, "scales2"),
                         .w2 = lathe_ref_data(r, rank, "w2"),
                         .w2_scales = lathe_ref_data(r, rank, "w2_scales"),
                         .expert = lathe_ref_data(r, rank, "cta_expert"),
                         .limit = lathe_ref_data(r, rank, "cta_limit"),
                         .alpha = lathe_ref_data(r, rank, "alpha"),
                         .rows = lathe_ref_out(r, rank, "rows")};
        lathe_ref_parallel(r, job.ctas * ((job.columns + 63) / 64), gemm2_task, &job);
    }
}
