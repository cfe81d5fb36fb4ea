/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/unit_gemm2: rows out of packed units. */
#include "moe/nvfp4_gemm2.ref.h"
#include "moe/unit.ref.h"

typedef struct {
    lathe_gemm2 gemm;
    lathe_unit_shape shape;
    const uint8_t *units;
} unit_gemm2;

static void weights(const lathe_gemm2 *gemm, int64_t row, double *out) {
    const unit_gemm2 *job = (const unit_gemm2 *)gemm;
    lathe_unit_row(&job->shape, job->units, row, out);
}

void lathe_ref_moe_unit_gemm2(lathe_ref *r);
void lathe_ref_moe_unit_gemm2(lathe_ref *r) {
    const int64_t chunks = lathe_ref_int(r, "kUnitBytes") / 576;
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        unit_gemm2 job = {.gemm.weights = weights,
                          .shape = {.chunks = chunks,
                                    .steps = lathe_ref_int(r, "kBlocks") / (chunks * 4),
                                    .rows = lathe_ref_int(r, "kWidth"),
                                    .paired = 0},
                          .units = lathe_ref_data(r, rank, "units")};
        lathe_gemm2_run(&job.gemm, r, rank);
    }
}
