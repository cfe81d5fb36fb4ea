/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/bf16_gemm1, live rows only: gate and up in double, unrounded; act rounded to
 * bf16 once. */
#include <math.h>

#include "reference.h"

typedef struct {
    lathe_ref *r;
    int64_t ctas, tile, width, columns;
    const uint16_t *h1, *w13;
    const int32_t *token, *expert, *limit;
    double *act;
} gemm1_job;

static double dot(const uint16_t *a, const uint16_t *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
        sum += lathe_bf16_value(a[i]) * lathe_bf16_value(b[i]);
    return sum;
}

static double act_value(const gemm1_job *job, int64_t e, int64_t row, int64_t column) {
    const uint16_t *x = job->h1 + job->token[row] * job->width;
    double raw[2];
    for (int half = 0; half < 2; ++half) {
        const int64_t weight = (2 * e + half) * job->columns + column;
        const uint64_t index = (uint64_t)((row * 2 + half) * job->columns + column);
        raw[half] =
            lathe_ref_jitter(job->r, dot(x, job->w13 + weight * job->width, job->width), index);
    }
    return raw[0] / (1 + exp(-raw[0])) * raw[1];
}

/* A task is one column of one tile. */
static void gemm1_task(void *context, int64_t task) {
    const gemm1_job *job = context;
    const int64_t tile = task / job->columns, column = task % job->columns;
    if (!lathe_ref_column(job->r, column))
        return;
    for (int64_t row = tile * job->tile; row < job->limit[tile]; ++row)
        job->act[row * job->columns + column] =
            lathe_bf16_round(act_value(job, job->expert[tile], row, column));
}

void lathe_ref_moe_bf16_gemm1(lathe_ref *r);
void lathe_ref_moe_bf16_gemm1(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        gemm1_job job = {.r = r,
                         .ctas = *(const int32_t *)lathe_ref_data(r, rank, "ctas"),
                         .tile = lathe_ref_int(r, "kTile"),
                         .width = lathe_ref_int(r, "kWidth"),
                         .columns = lathe_ref_int(r, "kColumns"),
                         .h1 = lathe_ref_data(r, rank, "h1"),
                         .w13 = lathe_ref_data(r, rank, "w13"),
                         .token = lathe_ref_data(r, rank, "permuted_to_token"),
                         .expert = lathe_ref_data(r, rank, "cta_expert"),
                         .limit = lathe_ref_data(r, rank, "cta_limit"),
                         .act = lathe_ref_out(r, rank, "act")};
        lathe_ref_parallel(r, job.ctas * job.columns, gemm1_task, &job);
    }
}
