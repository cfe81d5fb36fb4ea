/* SPDX-License-Identifier: Apache-2.0
 * Reference of boundary/residual_norm: every rank by itself, so a sum over ranks must have one rank
 * only. */
#include "boundary/residual.ref.h"

#include <stdlib.h>

void lathe_ref_boundary_residual_norm(lathe_ref *r);

static void one_rank(lathe_ref *r, int rank, double *branch) {
    const int64_t rows = lathe_ref_int(r, "kRows");
    lathe_residual_row row = lathe_residual_first_row(r, rank);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < row.hidden; j++)
            branch[j] = lathe_residual_branch(r, rank, i * row.hidden + j, rows * row.hidden);
        lathe_residual_compute(&row, branch);
        lathe_residual_next_row(&row);
    }
}

void lathe_ref_boundary_residual_norm(lathe_ref *r) {
    if (lathe_ref_ranks(r) > 1) {
        lathe_ref_fail(r, "boundary/residual_norm serves one rank: more need an exchange");
        return;
    }
    double *branch = calloc((size_t)lathe_ref_int(r, "kHidden"), sizeof *branch);
    if (!branch) {
        lathe_ref_fail(r, "boundary/residual_norm: no memory for a row");
        return;
    }
    one_rank(r, 0, branch);
    free(branch);
}
