/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/tail: each route's row scaled, normed and weighted in double, one rounding to
 * bf16. */
#include <math.h>

#include "reference.h"

typedef struct {
    int64_t rows, width, top_k;
    const uint16_t *expert_rows, *gain;
    const int32_t *permuted;
    const float *weights;
    double eps, center;
    double *m;
} tail_job;

static double scaled(const tail_job *job, int64_t row, int64_t i) {
    return (job->center + lathe_bf16_value(job->gain[i])) *
           lathe_bf16_value(job->expert_rows[row * job->width + i]);
}

/* Adds one route to a token's sums. */
static void add_route(const tail_job *job, int64_t row, double weight, double *sum) {
    double squares = 0;
    for (int64_t i = 0; i < job->width; ++i)
        squares += scaled(job, row, i) * scaled(job, row, i);
    const double inverse = 1 / sqrt(squares / (double)job->width + job->eps);
    for (int64_t i = 0; i < job->width; ++i)
        sum[i] += weight * (scaled(job, row, i) * inverse);
}

static void tail_token(void *context, int64_t t) {
    const tail_job *job = context;
    double *m = job->m + t * job->width;
    for (int64_t i = 0; i < job->width; ++i)
        m[i] = 0;
    for (int64_t k = 0; k < job->top_k; ++k) {
        const int32_t row = job->permuted[t * job->top_k + k];
        if (row >= 0)
            add_route(job, row, (double)job->weights[t * job->top_k + k], m);
    }
    for (int64_t i = 0; i < job->width; ++i)
        m[i] = lathe_bf16_round(m[i]);
}

void lathe_ref_moe_tail(lathe_ref *r);
void lathe_ref_moe_tail(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        tail_job job = {.rows = lathe_ref_int(r, "kRows"),
                        .width = lathe_ref_int(r, "kWidth"),
                        .top_k = lathe_ref_int(r, "kTopK"),
                        .expert_rows = lathe_ref_data(r, rank, "rows"),
                        .gain = lathe_ref_data(r, rank, "gain"),
                        .permuted = lathe_ref_data(r, rank, "expanded_to_permuted"),
                        .weights = lathe_ref_data(r, rank, "weights"),
                        .eps = lathe_ref_real(r, "kEps"),
                        .center = (double)lathe_ref_int(r, "kCenter"),
                        .m = lathe_ref_out(r, rank, "m")};
        lathe_ref_parallel(r, job.rows, tail_token, &job);
    }
}
