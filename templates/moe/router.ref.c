/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/router: logits as plain sums in double. */
#include "reference.h"

typedef struct {
    const uint16_t *x;
    const float *w;
    double *logits;
    const lathe_ref *r;
    int64_t rows, hidden, experts;
} router_job;

static void router_expert(void *context, int64_t expert) {
    const router_job *job = context;
    if (!lathe_ref_column(job->r, expert))
        return;
    for (int64_t row = 0; row < job->rows; ++row) {
        double sum = 0;
        for (int64_t k = 0; k < job->hidden; ++k)
            sum += lathe_bf16_value(job->x[row * job->hidden + k]) *
                   (double)job->w[expert * job->hidden + k];
        job->logits[row * job->experts + expert] = sum;
    }
}

void lathe_ref_moe_router(lathe_ref *r);
void lathe_ref_moe_router(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        router_job job = {.x = lathe_ref_data(r, rank, "x"),
                          .w = lathe_ref_data(r, rank, "w"),
                          .logits = lathe_ref_out(r, rank, "logits"),
                          .r = r,
                          .rows = lathe_ref_int(r, "kRows"),
                          .hidden = lathe_ref_int(r, "kHidden"),
                          .experts = lathe_ref_int(r, "kExperts")};
        lathe_ref_parallel(r, job.experts, router_expert, &job);
    }
}
