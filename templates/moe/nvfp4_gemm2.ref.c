/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/nvfp4_gemm2: rows as the checkpoint has them. */
#include "moe/nvfp4_gemm2.ref.h"

typedef struct {
    lathe_gemm2 gemm;
    const uint8_t *w2, *w2_scales;
} plain_gemm2;

static void weights(const lathe_gemm2 *gemm, int64_t row, double *out) {
    const plain_gemm2 *job = (const plain_gemm2 *)gemm;
    lathe_nvfp4_row(job->w2, job->w2_scales, row, gemm->width, out);
}

void lathe_ref_moe_nvfp4_gemm2(lathe_ref *r);
void lathe_ref_moe_nvfp4_gemm2(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        plain_gemm2 job = {.gemm.weights = weights,
                           .w2 = lathe_ref_data(r, rank, "w2"),
                           .w2_scales = lathe_ref_data(r, rank, "w2_scales")};
        lathe_gemm2_run(&job.gemm, r, rank);
    }
}
