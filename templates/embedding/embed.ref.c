/* SPDX-License-Identifier: Apache-2.0
 * Reference of embedding/embed: s = r16(rms(e, eps)) of the token's row (section 2 of the
 * mathematics). */
#include "reference.h"

#include <math.h>

void lathe_ref_embedding_embed(lathe_ref *r);

static void row_embed(const uint16_t *e, double *s, int64_t n, double eps) {
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        squares += lathe_bf16_value(e[i]) * lathe_bf16_value(e[i]);
    const double scale = 1.0 / sqrt(squares / (double)n + eps);
    for (int64_t i = 0; i < n; i++)
        s[i] = lathe_bf16_round(lathe_bf16_value(e[i]) * scale);
}

static void one_rank(lathe_ref *r, int rank) {
    const int64_t rows = lathe_ref_int(r, "kRows"), vocab = lathe_ref_int(r, "kVocab");
    const int64_t hidden = lathe_ref_int(r, "kHidden");
    const int32_t *tokens = lathe_ref_data(r, rank, "tokens"),
                  *faults = lathe_ref_data(r, rank, "faults");
    const uint16_t *table = lathe_ref_data(r, rank, "table");
    double *s = lathe_ref_out(r, rank, "s"), *faults_out = lathe_ref_out(r, rank, "faults");
    for (int64_t row = 0; row < rows; row++) {
        double *to = s + row * hidden;
        if (tokens[row] >= 0 && tokens[row] < vocab) {
            row_embed(table + tokens[row] * hidden, to, hidden, lathe_ref_real(r, "kEps"));
            continue;
        }
        for (int64_t i = 0; i < hidden; i++)
            to[i] = 0.0;
        faults_out[0] = (double)(faults[0] | 1);
    }
}

void lathe_ref_embedding_embed(lathe_ref *r) {
    if (lathe_ref_ranks(r) > 1) {
        lathe_ref_fail(r, "embedding/embed serves one rank: more need an exchange");
        return;
    }
    one_rank(r, 0);
}
