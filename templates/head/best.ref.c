/* SPDX-License-Identifier: Apache-2.0
 * Reference of head/best: of each row the bits of the greatest logit and its lowest id, NaN
 * skipped; (-inf, -1) where all are NaN. */
#include "reference.h"

#include <math.h>
#include <string.h>

void lathe_ref_head_best(lathe_ref *r);

static void one_row(const float *row, int64_t n, double *best) {
    float value = -INFINITY;
    int32_t bits;
    int64_t id = -1;
    for (int64_t i = 0; i < n; i++)
        if (row[i] == row[i] && (id < 0 || row[i] > value)) {
            value = row[i];
            id = i;
        }
    memcpy(&bits, &value, sizeof bits);
    best[0] = bits;
    best[1] = (double)id;
}

void lathe_ref_head_best(lathe_ref *r) {
    const int64_t rows = lathe_ref_int(r, "kRows"), vocab = lathe_ref_int(r, "kVocab");
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        const float *logits = lathe_ref_data(r, rank, "logits");
        for (int64_t row = 0; row < rows; row++)
            one_row(logits + row * vocab, vocab, lathe_ref_out(r, rank, "best") + 2 * row);
    }
}
