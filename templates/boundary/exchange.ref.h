/* SPDX-License-Identifier: Apache-2.0
 * Reference of what the ranks' branches become: their sum, in one of the two known orders, or their
 * columns side by side; and of the rows that every rank makes of it. */
#ifndef LATHE_BOUNDARY_EXCHANGE_REF_H
#define LATHE_BOUNDARY_EXCHANGE_REF_H

#include "boundary/residual.ref.h"

#include <stdlib.h>

/* Element `at` of what rank `rank` sends, [rows][columns]. */
typedef double lathe_sent_value(lathe_ref *r, int rank, int64_t at);

/* Both orders are definitions in fp32, so the sum is formed in fp32 here too. */
static inline double lathe_exchange_sum(lathe_ref *r, lathe_sent_value *sent, int64_t at) {
    const bool each = lathe_ref_int(r, "kBf16Each") == 1;
    float sum = each ? (float)sent(r, 0, at) : 0.0f;
    for (int rank = each ? 1 : 0; rank < lathe_ref_ranks(r); rank++) {
        sum += (float)sent(r, rank, at);
        if (each)
            sum = (float)lathe_bf16_round((double)sum);
    }
    return lathe_bf16_round((double)sum);
}

/* All rows of the branch after the exchange. */
static inline void lathe_exchange_branch(lathe_ref *r, lathe_sent_value *sent, int64_t columns,
                                         double *branch) {
    const int64_t rows = lathe_ref_int(r, "kRows"), hidden = lathe_ref_int(r, "kHidden");
    for (int64_t i = 0; i < rows * hidden; i++) {
        const int64_t row = i / hidden, column = i % hidden;
        branch[i] = columns < hidden
                        ? sent(r, (int)(column / columns), row * columns + column % columns)
                        : lathe_exchange_sum(r, sent, i);
    }
}

/* The whole launch. `columns`: those of one rank; the whole width: the ranks are summed. */
static inline void lathe_exchange_residual(lathe_ref *r, lathe_sent_value *sent, int64_t columns) {
    const int64_t rows = lathe_ref_int(r, "kRows"), hidden = lathe_ref_int(r, "kHidden");
    if (columns < 1 || (columns < hidden && columns * lathe_ref_ranks(r) != hidden)) {
        lathe_ref_fail(r, "the ranks' columns of the branch do not make the width");
        return;
    }
    double *branch = calloc((size_t)(rows * hidden), sizeof *branch);
    if (!branch) {
        lathe_ref_fail(r, "no memory for the branch");
        return;
    }
    lathe_exchange_branch(r, sent, columns, branch);
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        lathe_residual_row row = lathe_residual_first_row(r, rank);
        for (int64_t i = 0; i < rows; i++) {
            lathe_residual_compute(&row, branch + i * hidden);
            lathe_residual_next_row(&row);
        }
    }
    free(branch);
}

#endif
