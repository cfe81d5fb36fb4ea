/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/expert_norm: the norm in double, rounded to bf16 once. */
#include <math.h>

#include "reference.h"

typedef struct {
    int64_t rows, width, splits;
    const uint16_t *columns, *gain;
    const float *partials;
    double eps, center;
    double *h1;
} norm_job;

/* Pooled value before the norm. */
static double pooled(const norm_job *job, int64_t row, int64_t i) {
    double sum = 0;
    if (job->columns != NULL)
        return lathe_bf16_value(job->columns[row * job->width + i]);
    for (int64_t s = 0; s < job->splits; ++s)
        sum += (double)job->partials[(s * job->rows + row) * job->width + i];
    return lathe_bf16_round(sum);
}

static void normalise(const norm_job *job, int64_t row) {
    double *h1 = job->h1 + row * job->width;
    double squares = 0;
    for (int64_t i = 0; i < job->width; ++i) {
        h1[i] = pooled(job, row, i);
        squares += h1[i] * h1[i];
    }
    const double inverse = 1 / sqrt(squares / (double)job->width + job->eps);
    for (int64_t i = 0; i < job->width; ++i)
        h1[i] = lathe_bf16_round(h1[i] * inverse * (job->center + lathe_bf16_value(job->gain[i])));
}

void lathe_ref_moe_expert_norm(lathe_ref *r);
void lathe_ref_moe_expert_norm(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        norm_job job = {.rows = lathe_ref_int(r, "kRows"),
                        .width = lathe_ref_int(r, "kWidth"),
                        .splits = lathe_ref_int(r, "kSplits"),
                        .columns = lathe_ref_data(r, rank, "columns"),
                        .gain = lathe_ref_data(r, rank, "gain"),
                        .partials = lathe_ref_data(r, rank, "partials"),
                        .eps = lathe_ref_real(r, "kEps"),
                        .center = (double)lathe_ref_int(r, "kCenter"),
                        .h1 = lathe_ref_out(r, rank, "h1")};
        for (int64_t row = 0; row < job.rows; ++row)
            normalise(&job, row);
    }
}
