/* SPDX-License-Identifier: Apache-2.0
 * Reference of head/exchange_argmax: over the ranks' shards in ascending order, lowest id among
 * equals, NaN skipped, a row of NaN gives 0. */
#include "reference.h"

void lathe_ref_head_exchange_argmax(lathe_ref *r);

static int64_t greatest(lathe_ref *r, int64_t row, int64_t vocab) {
    int64_t id = -1;
    float best = 0.0f;
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        const float *logits = (const float *)lathe_ref_data(r, rank, "logits") + row * vocab;
        for (int64_t i = 0; i < vocab; i++)
            if (logits[i] == logits[i] && (id < 0 || logits[i] > best)) {
                best = logits[i];
                id = rank * vocab + i;
            }
    }
    return id < 0 ? 0 : id;
}

void lathe_ref_head_exchange_argmax(lathe_ref *r) {
    const int64_t rows = lathe_ref_int(r, "kRows"), vocab = lathe_ref_int(r, "kVocab");
    for (int64_t row = 0; row < rows; row++) {
        const double token = (double)greatest(r, row, vocab);
        for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
            lathe_ref_out(r, rank, "token")[row] = token;
    }
}
