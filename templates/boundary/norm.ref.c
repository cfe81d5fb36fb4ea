/* SPDX-License-Identifier: Apache-2.0
 * Reference of boundary/norm: x = r16(rms(s, eps) (center + gain)) (sections 2 and 3 of the
 * mathematics). */
#include "reference.h"

#include <math.h>

void lathe_ref_boundary_norm(lathe_ref *r);

static void row_norm(const float *s, const uint16_t *gain, double *x, int64_t n, double eps,
                     double center) {
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        squares += (double)s[i] * (double)s[i];
    const double scale = 1.0 / sqrt(squares / (double)n + eps);
    for (int64_t i = 0; i < n; i++)
        x[i] = lathe_bf16_round((double)s[i] * scale * (center + lathe_bf16_value(gain[i])));
}

void lathe_ref_boundary_norm(lathe_ref *r) {
    const int64_t rows = lathe_ref_int(r, "kRows"), hidden = lathe_ref_int(r, "kHidden");
    const double eps = lathe_ref_real(r, "kEps"), center = (double)lathe_ref_int(r, "kCenter");
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        const float *s = lathe_ref_data(r, rank, "s");
        const uint16_t *gain = lathe_ref_data(r, rank, "gain");
        double *x = lathe_ref_out(r, rank, "x");
        for (int64_t row = 0; row < rows; row++)
            row_norm(s + row * hidden, gain, x + row * hidden, hidden, eps, center);
    }
}
