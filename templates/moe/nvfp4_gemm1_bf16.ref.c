/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/nvfp4_gemm1_bf16, live rows only: gate and up in double, unrounded; act rounded
 * to bf16 once. */
#include "moe/nvfp4.ref.h"

typedef struct {
    lathe_ref *r;
    int64_t ctas, tile, width, columns; /* width: expert input; columns: intermediate */
    const uint16_t *h1;
    const uint8_t *w13, *w13_scales;
    const int32_t *token, *expert, *limit;
    const float *gate_alpha, *up_alpha;
    double *act;
} gemm1_job;

/* One column of one tile; w holds its gate row and its up row. */
static void act_column(const gemm1_job *job, int64_t tile, int64_t column, const double *w) {
    const int64_t e = job->expert[tile];
    for (int64_t row = tile * job->tile; row < job->limit[tile]; ++row) {
        const uint16_t *x = job->h1 + job->token[row] * job->width;
        double raw[2];
        for (int half = 0; half < 2; ++half) {
            const uint64_t index = (uint64_t)((row * 2 + half) * job->columns + column);
            raw[half] = lathe_ref_jitter(
                job->r, lathe_nvfp4_dot(w + half * job->width, x, job->width), index);
        }
        const double gate = raw[0] * (double)job->gate_alpha[e];
        const double up = raw[1] * (double)job->up_alpha[e];
        job->act[row * job->columns + column] = lathe_bf16_round(gate / (1 + exp(-gate)) * up);
    }
}

/* A task is one column of one tile. */
static void gemm1_task(void *context, int64_t task) {
    const gemm1_job *job = context;
    const int64_t tile = task / job->columns, column = task % job->columns;
    if (!lathe_ref_column(job->r, column))
        return;
    double *w = malloc(sizeof *w * (size_t)(2 * job->width));
    if (w == NULL) {
        lathe_ref_fail(job->r, "nvfp4_gemm1_bf16: no memory");
        return;
    }
    for (int half = 0; half < 2; ++half)
        lathe_nvfp4_row(job->w13, job->w13_scales,
                        (2 * job->expert[tile] + half) * job->columns + column, job->width,
                        w + half * job->width);
    act_column(job, tile, column, w);
    free(w);
}

void lathe_ref_moe_nvfp4_gemm1_bf16(lathe_ref *r);
void lathe_ref_moe_nvfp4_gemm1_bf16(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        gemm1_job job = {.r = r,
                         .ctas = *(const int32_t *)lathe_ref_data(r, rank, "ctas"),
                         .tile = lathe_ref_int(r, "kTile"),
                         .width = lathe_ref_int(r, "kWidth"),
                         .columns = lathe_ref_int(r, "kColumns"),
                         .h1 = lathe_ref_data(r, rank, "h1"),
                         .w13 = lathe_ref_data(r, rank, "w13"),
                         .w13_scales = lathe_ref_data(r, rank, "w13_scales"),
                         .token = lathe_ref_data(r, rank, "permuted_to_token"),
                         .expert = lathe_ref_data(r, rank, "cta_expert"),
                         .limit = lathe_ref_data(r, rank, "cta_limit"),
                         .gate_alpha = lathe_ref_data(r, rank, "gate_alpha"),
                         .up_alpha = lathe_ref_data(r, rank, "up_alpha"),
                         .act = lathe_ref_out(r, rank, "act")};
        lathe_ref_parallel(r, job.ctas * job.columns, gemm1_task, &job);
    }
}
