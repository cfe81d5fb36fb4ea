/* SPDX-License-Identifier: Apache-2.0
 * Reference of the second routed GEMM on NVFP4, however its weights lie; live rows only: exact
 * operands, sums in double, one rounding to bf16. */
#ifndef LATHE_MOE_NVFP4_GEMM2_REF_H
#define LATHE_MOE_NVFP4_GEMM2_REF_H

#include <math.h>
#include <stdlib.h>

#include "moe/nvfp4.ref.h"
#include "reference.h"

typedef struct lathe_gemm2 lathe_gemm2;
struct lathe_gemm2 {
    lathe_ref *r;
    /* Row `row` of all experts' rows, without the global scale. */
    void (*weights)(const lathe_gemm2 *job, int64_t row, double *out);
    int64_t ctas, tile, width, columns; /* width: intermediate; columns: expert output */
    const uint8_t *codes2, *scales2;
    const int32_t *expert, *limit;
    const float *alpha;
    double *rows;
};

static inline double lathe_gemm_dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
        sum += a[i] * b[i];
    return sum;
}

static inline void lathe_gemm2_column(const lathe_gemm2 *job, int64_t tile, int64_t column,
                                      const double *x, double *w) {
    const int64_t e = job->expert[tile], row = e * job->columns + column;
    const int64_t first = tile * job->tile;
    job->weights(job, row, w);
    for (int64_t t = first; t < job->limit[tile]; ++t) {
        const uint64_t index = (uint64_t)(t * job->columns + column);
        const double raw = lathe_ref_jitter(
            job->r, lathe_gemm_dot(x + (t - first) * job->width, w, job->width), index);
        job->rows[t * job->columns + column] = lathe_bf16_round(raw * (double)job->alpha[e]);
    }
}

/* A task is 64 columns of a tile. */
static inline void lathe_gemm2_task(void *context, int64_t task) {
    const lathe_gemm2 *job = context;
    const int64_t parts = (job->columns + 63) / 64, tile = task / parts;
    const int64_t first = tile * job->tile, count = job->limit[tile] - first;
    double *x = malloc(sizeof *x * (size_t)((count + 1) * job->width));
    if (x == NULL) {
        lathe_ref_fail(job->r, "second routed GEMM: no memory");
        return;
    }
    for (int64_t t = 0; t < count; ++t)
        lathe_nvfp4_row(job->codes2, job->scales2, first + t, job->width, x + t * job->width);
    for (int64_t i = task % parts * 64; i < task % parts * 64 + 64 && i < job->columns; ++i)
        if (lathe_ref_column(job->r, i))
            lathe_gemm2_column(job, tile, i, x, x + count * job->width);
    free(x);
}

/* All that does not depend on how weights lie. */
static inline void lathe_gemm2_run(lathe_gemm2 *job, lathe_ref *r, int rank) {
    job->r = r;
    job->ctas = *(const int32_t *)lathe_ref_data(r, rank, "ctas");
    job->tile = lathe_ref_int(r, "kTile");
    job->width = lathe_ref_int(r, "kBlocks") * 16;
    job->columns = lathe_ref_int(r, "kWidth");
    job->codes2 = lathe_ref_data(r, rank, "codes2");
    job->scales2 = lathe_ref_data(r, rank, "scales2");
    job->expert = lathe_ref_data(r, rank, "cta_expert");
    job->limit = lathe_ref_data(r, rank, "cta_limit");
    job->alpha = lathe_ref_data(r, rank, "alpha");
    job->rows = lathe_ref_out(r, rank, "rows");
    lathe_ref_parallel(r, job->ctas * ((job->columns + 63) / 64), lathe_gemm2_task, job);
}

#endif
