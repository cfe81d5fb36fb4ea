/* SPDX-License-Identifier: Apache-2.0
 * Reference of embedding/lookup: each rank's share of the sum that is the token's row. */
#include "reference.h"

void lathe_ref_embedding_lookup(lathe_ref *r);

static void one_rank(lathe_ref *r, int rank, int64_t ranks) {
    const int64_t rows = lathe_ref_int(r, "kRows"), vocab = lathe_ref_int(r, "kVocab");
    const int64_t hidden = lathe_ref_int(r, "kHidden");
    const int32_t *tokens = lathe_ref_data(r, rank, "tokens"),
                  *faults = lathe_ref_data(r, rank, "faults");
    const uint16_t *table = lathe_ref_data(r, rank, "table");
    double *partial = lathe_ref_out(r, rank, "partial"),
           *faults_out = lathe_ref_out(r, rank, "faults");
    for (int64_t row = 0; row < rows; row++) {
        const int64_t token = tokens[row], here = token - rank * vocab;
        for (int64_t i = 0; i < hidden; i++)
            partial[row * hidden + i] =
                here >= 0 && here < vocab ? lathe_bf16_value(table[here * hidden + i]) : 0.0;
        if (token < 0 || token >= vocab * ranks)
            faults_out[0] = (double)(faults[0] | 1);
    }
}

void lathe_ref_embedding_lookup(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
        one_rank(r, rank, lathe_ref_ranks(r));
}
