/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/nvfp4_gemm1: rows as the checkpoint has them. */
#include "moe/nvfp4_gemm1.ref.h"

typedef struct {
    lathe_gemm1 gemm;
    const uint8_t *w13, *w13_scales;
} plain_gemm1;

static void weights(const lathe_gemm1 *gemm, int64_t row, double *out) {
    const plain_gemm1 *job = (const plain_gemm1 *)gemm;
    lathe_nvfp4_row(job->w13, job->w13_scales, row, gemm->width, out);
}

void lathe_ref_moe_nvfp4_gemm1(lathe_ref *r);
void lathe_ref_moe_nvfp4_gemm1(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        plain_gemm1 job = {.gemm.weights = weights,
                           .w13 = lathe_ref_data(r, rank, "w13"),
                           .w13_scales = lathe_ref_data(r, rank, "w13_scales")};
        lathe_gemm1_run(&job.gemm, r, rank);
    }
}
