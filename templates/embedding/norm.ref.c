/* SPDX-License-Identifier: Apache-2.0
 * Reference of embedding/norm: s = r16(rms(e, eps)) (section 2 of the mathematics). */
#include "reference.h"

#include <math.h>

void lathe_ref_embedding_norm(lathe_ref *r);

static void one_row(const uint16_t *e, double *s, int64_t n, double eps) {
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        squares += lathe_bf16_value(e[i]) * lathe_bf16_value(e[i]);
    const double scale = 1.0 / sqrt(squares / (double)n + eps);
    for (int64_t i = 0; i < n; i++)
        s[i] = lathe_bf16_round(lathe_bf16_value(e[i]) * scale);
}

void lathe_ref_embedding_norm(lathe_ref *r) {
    const int64_t rows = lathe_ref_int(r, "kRows"), hidden = lathe_ref_int(r, "kHidden");
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        const uint16_t *e = lathe_ref_data(r, rank, "e");
        double *s = lathe_ref_out(r, rank, "s");
        for (int64_t row = 0; row < rows; row++)
            one_row(e + row * hidden, s + row * hidden, hidden, lathe_ref_real(r, "kEps"));
    }
}
