/* SPDX-License-Identifier: Apache-2.0
 * Reference of boundary/residual_norm: every rank by itself. */
#include "boundary/residual.ref.h"

#include <stdlib.h>

void lathe_ref_boundary_residual_norm(lathe_ref *r);

/* Element of the branch; gathered columns lie as [ranks][rows][columns]. */
static double branch_value(lathe_ref *r, int rank, int64_t row, int64_t column) {
    const int64_t rows = lathe_ref_int(r, "kRows"), hidden = lathe_ref_int(r, "kHidden");
    const int64_t columns = lathe_ref_int(r, "kColumns");
    if (columns == 0)
        return lathe_residual_branch(r, rank, row * hidden + column, rows * hidden);
    const uint16_t *gathered = lathe_ref_data(r, rank, "branch_columns");
    return lathe_bf16_value(gathered[(column / columns * rows + row) * columns + column % columns]);
}

static void one_rank(lathe_ref *r, int rank, double *branch) {
    const int64_t rows = lathe_ref_int(r, "kRows");
    lathe_residual_row row = lathe_residual_first_row(r, rank);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < row.hidden; j++)
            branch[j] = branch_value(r, rank, i, j);
        lathe_residual_compute(&row, branch);
        lathe_residual_next_row(&row);
    }
}

void lathe_ref_boundary_residual_norm(lathe_ref *r) {
    double *branch = calloc((size_t)lathe_ref_int(r, "kHidden"), sizeof *branch);
    if (!branch) {
        lathe_ref_fail(r, "boundary/residual_norm: no memory for a row");
        return;
    }
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
        one_rank(r, rank, branch);
    free(branch);
}
