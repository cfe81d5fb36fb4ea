/* SPDX-License-Identifier: Apache-2.0
 * Reference of boundary/exchange_residual_norm: every rank's row is the sum of all branches, or
 * their columns side by side. The sum over ranks is fp32 by definition, from +0 and ranks
 * ascending, so it is formed in fp32 here too. */
#include "boundary/residual.ref.h"

#include <stdlib.h>

void lathe_ref_boundary_exchange_residual_norm(lathe_ref *r);

/* Element `column` of row `row` after the exchange. */
static double exchanged(lathe_ref *r, int64_t row, int64_t column, int64_t hidden,
                        int64_t columns) {
    const int64_t elements = lathe_ref_int(r, "kRows") * columns;
    if (columns < hidden)
        return lathe_residual_branch(r, (int)(column / columns), row * columns + column % columns,
                                     elements);
    float sum = 0.0f;
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
        sum += (float)lathe_residual_branch(r, rank, row * columns + column, elements);
    return lathe_bf16_round((double)sum);
}

static void all_ranks(lathe_ref *r, double *branch, int64_t rows, int64_t hidden, int64_t columns) {
    for (int64_t i = 0; i < rows * hidden; i++)
        branch[i] = exchanged(r, i / hidden, i % hidden, hidden, columns);
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        lathe_residual_row row = lathe_residual_first_row(r, rank);
        for (int64_t i = 0; i < rows; i++) {
            lathe_residual_compute(&row, branch + i * hidden);
            lathe_residual_next_row(&row);
        }
    }
}

void lathe_ref_boundary_exchange_residual_norm(lathe_ref *r) {
    const int64_t rows = lathe_ref_int(r, "kRows"), hidden = lathe_ref_int(r, "kHidden");
    const int64_t columns = lathe_ref_int(r, "kColumns");
    if (columns < 1 || (columns < hidden && columns * lathe_ref_ranks(r) != hidden)) {
        lathe_ref_fail(r,
                       "boundary/exchange_residual_norm: the ranks' columns do not make the width");
        return;
    }
    double *branch = calloc((size_t)(rows * hidden), sizeof *branch);
    if (!branch) {
        lathe_ref_fail(r, "boundary/exchange_residual_norm: no memory for the branch");
        return;
    }
    all_ranks(r, branch, rows, hidden, columns);
    free(branch);
}
