/* SPDX-License-Identifier: Apache-2.0
 * Reference of the first routed GEMM on NVFP4, however its weights lie; live rows only: sums,
 * SwiGLU and the block maximum in double; v is rounded to fp32 before it is requantised, as the
 * format prescribes. Rows that no route fills stay unset. */
#ifndef LATHE_MOE_NVFP4_GEMM1_REF_H
#define LATHE_MOE_NVFP4_GEMM1_REF_H

#include <math.h>
#include <stdlib.h>

#include "moe/nvfp4.ref.h"
#include "reference.h"

typedef struct lathe_gemm1 lathe_gemm1;
struct lathe_gemm1 {
    lathe_ref *r;
    /* Row `row` of all experts' rows, without the global scale. */
    void (*weights)(const lathe_gemm1 *job, int64_t row, double *out);
    int64_t ctas, tile, width, columns; /* width: expert input; columns: intermediate */
    const uint8_t *codes, *scales;
    const int32_t *token, *expert, *limit;
    const float *gate_alpha, *up_alpha;
    double *codes2, *scales2;
};

static inline double lathe_gemm_dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
        sum += a[i] * b[i];
    return sum;
}

/* v of one intermediate column for each of `count` tokens x, 16 apart in `v`. */
static inline void lathe_gemm1_column(const lathe_gemm1 *job, int64_t tile, int64_t column,
                                      const double *x, int64_t count, double *w, double *v) {
    const int64_t e = job->expert[tile];
    for (int half = 0; half < 2; ++half) {
        const int64_t row = (2 * e + half) * job->columns + column;
        job->weights(job, row, w);
        for (int64_t t = 0; t < count; ++t) {
            const uint64_t index =
                (uint64_t)(((tile * job->tile + t) * 2 + half) * job->columns + column);
            const double raw =
                lathe_ref_jitter(job->r, lathe_gemm_dot(x + t * job->width, w, job->width), index);
            const double gate = raw * (double)job->gate_alpha[e];
            if (half == 0)
                v[t * 16] = gate / (1 + exp(-gate));
            else
                v[t * 16] = v[t * 16] * raw * (double)job->up_alpha[e];
        }
    }
}

/* Quantises 16 values of one row. */
static inline void lathe_gemm1_requantise(const lathe_gemm1 *job, int64_t row, int64_t block,
                                          double *v) {
    double most = 0;
    double *codes = job->codes2 + row * (job->columns / 2) + block * 8;
    for (int i = 0; i < 16; ++i) {
        v[i] = (double)(float)v[i];
        most = isnan(v[i]) || isnan(most) ? (double)NAN : fmax(most, fabs(v[i]));
    }
    const double scale = lathe_e4m3_value(lathe_e4m3_code((double)((float)most / 6.0f)));
    for (int i = 0; i < 16; i += 2) {
        unsigned low = 0, high = 0;
        if (scale != 0 || most == 0) {
            const double divisor = most == 0 ? 1 : scale;
            low = lathe_e2m1_code((double)((float)v[i] / (float)divisor));
            high = lathe_e2m1_code((double)((float)v[i + 1] / (float)divisor));
        }
        codes[i / 2] = (double)(low | high << 4);
    }
    job->scales2[row * (job->columns / 16) + block] = scale;
}

/* Tasks are blocks of columns within tiles, so that each weight is read once. */
static inline void lathe_gemm1_task(void *context, int64_t task) {
    const lathe_gemm1 *job = context;
    const int64_t blocks = job->columns / 16, tile = task / blocks, block = task % blocks;
    const int64_t first = tile * job->tile, count = job->limit[tile] - first;
    double *x = malloc(sizeof *x * (size_t)((count + 1) * job->width + count * 16));
    if (x == NULL) {
        lathe_ref_fail(job->r, "first routed GEMM: no memory");
        return;
    }
    double *w = x + count * job->width, *v = w + job->width;
    for (int64_t t = 0; t < count; ++t) {
        const int64_t token = job->token[first + t];
        lathe_nvfp4_row(job->codes, job->scales, token, job->width, x + t * job->width);
    }
    for (int i = 0; i < 16; ++i)
        lathe_gemm1_column(job, tile, block * 16 + i, x, count, w, v + i);
    for (int64_t t = 0; t < count; ++t)
        lathe_gemm1_requantise(job, first + t, block, v + t * 16);
    free(x);
}

/* Columns are sampled by whole blocks, since a code cannot be had without its block: where one
 * column in n is wanted, so is one block in n. */
static inline void lathe_gemm1_wanted(void *context, int64_t task) {
    const lathe_gemm1 *job = context;
    if (lathe_ref_column(job->r, task % (job->columns / 16)))
        lathe_gemm1_task(context, task);
}

/* All that does not depend on how weights lie. */
static inline void lathe_gemm1_run(lathe_gemm1 *job, lathe_ref *r, int rank) {
    job->r = r;
    job->ctas = *(const int32_t *)lathe_ref_data(r, rank, "ctas");
    job->tile = lathe_ref_int(r, "kTile");
    job->width = lathe_ref_int(r, "kBlocks") * 16;
    job->columns = lathe_ref_int(r, "kOutBlocks") * 16;
    job->codes = lathe_ref_data(r, rank, "codes");
    job->scales = lathe_ref_data(r, rank, "scales");
    job->token = lathe_ref_data(r, rank, "permuted_to_token");
    job->expert = lathe_ref_data(r, rank, "cta_expert");
    job->limit = lathe_ref_data(r, rank, "cta_limit");
    job->gate_alpha = lathe_ref_data(r, rank, "gate_alpha");
    job->up_alpha = lathe_ref_data(r, rank, "up_alpha");
    job->codes2 = lathe_ref_out(r, rank, "codes2");
    job->scales2 = lathe_ref_out(r, rank, "scales2");
    lathe_ref_parallel(r, job->ctas * (job->columns / 16), lathe_gemm1_wanted, job);
}

#endif
