/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/nvfp4_gemm2_bf16, live rows only: sums in double, one rounding to bf16. */
#include "moe/nvfp4.ref.h"

typedef struct {
    lathe_ref *r;
    int64_t ctas, tile, width, columns; /* width: intermediate; columns: expert output */
    const uint16_t *act;
    const uint8_t *w2, *w2_scales;
    const int32_t *expert, *limit;
    const float *alpha;
    double *rows;
} gemm2_job;

/* A task is one column of one tile. */
static void gemm2_task(void *context, int64_t task) {
    const gemm2_job *job = context;
    const int64_t tile = task / job->columns, column = task % job->columns;
    const int64_t e = job->expert[tile];
    if (!lathe_ref_column(job->r, column))
        return;
    double *w = malloc(sizeof *w * (size_t)job->width);
    if (w == NULL) {
        lathe_ref_fail(job->r, "nvfp4_gemm2_bf16: no memory");
        return;
    }
    lathe_nvfp4_row(job->w2, job->w2_scales, e * job->columns + column, job->width, w);
    for (int64_t row = tile * job->tile; row < job->limit[tile]; ++row) {
        const double raw = lathe_nvfp4_dot(w, job->act + row * job->width, job->width);
        const uint64_t index = (uint64_t)(row * job->columns + column);
        job->rows[row * job->columns + column] =
            lathe_bf16_round(lathe_ref_jitter(job->r, raw, index) * (double)job->alpha[e]);
    }
    free(w);
}

void lathe_ref_moe_nvfp4_gemm2_bf16(lathe_ref *r);
void lathe_ref_moe_nvfp4_gemm2_bf16(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        gemm2_job job = {.r = r,
                         .ctas = *(const int32_t *)lathe_ref_data(r, rank, "ctas"),
                         .tile = lathe_ref_int(r, "kTile"),
                         .width = lathe_ref_int(r, "kInner"),
                         .columns = lathe_ref_int(r, "kWidth"),
                         .act = lathe_ref_data(r, rank, "act"),
                         .w2 = lathe_ref_data(r, rank, "w2"),
                         .w2_scales = lathe_ref_data(r, rank, "w2_scales"),
                         .expert = lathe_ref_data(r, rank, "cta_expert"),
                         .limit = lathe_ref_data(r, rank, "cta_limit"),
                         .alpha = lathe_ref_data(r, rank, "alpha"),
                         .rows = lathe_ref_out(r, rank, "rows")};
        lathe_ref_parallel(r, job.ctas * job.columns, gemm2_task, &job);
    }
}
