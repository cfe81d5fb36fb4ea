/* SPDX-License-Identifier: Apache-2.0
 * Reference of embedding/exchange_embed: s = r16(rms(e, eps)) of the token's row of the whole
 * table, the ranks' shards in ascending order (section 2 of the mathematics). Adding the other
 * ranks' zeros changes nothing but the sign of a zero, which no comparison sees. */
#include "reference.h"

#include <math.h>

void lathe_ref_embedding_exchange_embed(lathe_ref *r);

static void row_embed(const uint16_t *e, double *s, int64_t n, double eps) {
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        squares += lathe_bf16_value(e[i]) * lathe_bf16_value(e[i]);
    const double scale = 1.0 / sqrt(squares / (double)n + eps);
    for (int64_t i = 0; i < n; i++)
        s[i] = lathe_bf16_round(lathe_bf16_value(e[i]) * scale);
}

/* Row of the whole table; NULL where the token has none. */
static const uint16_t *find_row(lathe_ref *r, int64_t token) {
    const int64_t vocab = lathe_ref_int(r, "kVocab"), hidden = lathe_ref_int(r, "kHidden");
    if (vocab < 1 || token < 0 || token >= vocab * lathe_ref_ranks(r))
        return NULL;
    const uint16_t *table = lathe_ref_data(r, (int)(token / vocab), "table");
    return table + token % vocab * hidden;
}

static void one_rank(lathe_ref *r, int rank) {
    const int64_t rows = lathe_ref_int(r, "kRows"), hidden = lathe_ref_int(r, "kHidden");
    const int32_t *tokens = lathe_ref_data(r, rank, "tokens"),
                  *faults = lathe_ref_data(r, rank, "faults");
    double *s = lathe_ref_out(r, rank, "s"), *faults_out = lathe_ref_out(r, rank, "faults");
    for (int64_t row = 0; row < rows; row++) {
        const uint16_t *e = find_row(r, tokens[row]);
        double *to = s + row * hidden;
        if (e) {
            row_embed(e, to, hidden, lathe_ref_real(r, "kEps"));
            continue;
        }
        for (int64_t i = 0; i < hidden; i++)
            to[i] = 0.0;
        faults_out[0] = (double)(faults[0] | 1);
    }
}

void lathe_ref_embedding_exchange_embed(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
        one_rank(r, rank);
}
