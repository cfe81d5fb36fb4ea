/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/unit_gemm1: rows out of packed units. */
#include "moe/nvfp4_gemm1.ref.h"
#include "moe/unit.ref.h"

typedef struct {
    lathe_gemm1 gemm;
    lathe_unit_shape shape;
    const uint8_t *units;
} unit_gemm1;

static void weights(const lathe_gemm1 *gemm, int64_t row, double *out) {
    const unit_gemm1 *job = (const unit_gemm1 *)gemm;
    lathe_unit_row(&job->shape, job->units, row, out);
}

void lathe_ref_moe_unit_gemm1(lathe_ref *r);
void lathe_ref_moe_unit_gemm1(lathe_ref *r) {
    const int64_t chunks = lathe_ref_int(r, "kUnitBytes") / 576;
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        unit_gemm1 job = {.gemm.weights = weights,
                          .shape = {.chunks = chunks,
                                    .steps = lathe_ref_int(r, "kBlocks") / (chunks * 4),
                                    .rows = lathe_ref_int(r, "kOutBlocks") * 32,
                                    .paired = 1},
                          .units = lathe_ref_data(r, rank, "units")};
        lathe_gemm1_run(&job.gemm, r, rank);
    }
}
