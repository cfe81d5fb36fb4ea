/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/bf16_gemm2, live rows only: sums in double, one rounding to bf16. */
#include "reference.h"

typedef struct {
    lathe_ref *r;
    int64_t ctas, tile, width, columns;
    const uint16_t *act, *w2;
    const int32_t *expert, *limit;
    double *rows;
} gemm2_job;

static double dot(const uint16_t *a, const uint16_t *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
        sum += lathe_bf16_value(a[i]) * lathe_bf16_value(b[i]);
    return sum;
}

/* A task is one column of one tile. */
static void gemm2_task(void *context, int64_t task) {
    const gemm2_job *job = context;
    const int64_t tile = task / job->columns, column = task % job->columns;
    if (!lathe_ref_column(job->r, column))
        return;
    const uint16_t *w = job->w2 + (job->expert[tile] * job->columns + column) * job->width;
    for (int64_t row = tile * job->tile; row < job->limit[tile]; ++row) {
        const int64_t at = row * job->columns + column;
        const double raw =
            lathe_ref_jitter(job->r, dot(job->act + row * job->width, w, job->width), (uint64_t)at);
        job->rows[at] = lathe_bf16_round(raw);
    }
}

void lathe_ref_moe_bf16_gemm2(lathe_ref *r);
void lathe_ref_moe_bf16_gemm2(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        gemm2_job job = {.r = r,
                         .ctas = *(const int32_t *)lathe_ref_data(r, rank, "ctas"),
                         .tile = lathe_ref_int(r, "kTile"),
                         .width = lathe_ref_int(r, "kWidth"),
                         .columns = lathe_ref_int(r, "kColumns"),
                         .act = lathe_ref_data(r, rank, "act"),
                         .w2 = lathe_ref_data(r, rank, "w2"),
                         .expert = lathe_ref_data(r, rank, "cta_expert"),
                         .limit = lathe_ref_data(r, rank, "cta_limit"),
                         .rows = lathe_ref_out(r, rank, "rows")};
        lathe_ref_parallel(r, job.ctas * job.columns, gemm2_task, &job);
    }
}
