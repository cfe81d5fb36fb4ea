/* SPDX-License-Identifier: Apache-2.0
 * Reference of head/argmax: lowest id among equals, NaN skipped, a row of NaN gives 0. */
#include "reference.h"

void lathe_ref_head_argmax(lathe_ref *r);

static int64_t greatest(const float *row, int64_t n) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (row[i] == row[i] && (best < 0 || row[i] > row[best]))
            best = i;
    return best < 0 ? 0 : best;
}

void lathe_ref_head_argmax(lathe_ref *r) {
    const int64_t rows = lathe_ref_int(r, "kRows"), vocab = lathe_ref_int(r, "kVocab");
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        const float *logits = lathe_ref_data(r, rank, "logits");
        double *token = lathe_ref_out(r, rank, "token");
        for (int64_t row = 0; row < rows; row++)
            token[row] = (double)greatest(logits + row * vocab, vocab);
    }
}
