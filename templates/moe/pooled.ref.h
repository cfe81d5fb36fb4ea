/* SPDX-License-Identifier: Apache-2.0
 * Reference of the norm in front of the experts, shared by the references of its providers: the row
 * of one rank, or the columns of all ranks side by side; the norm in double, rounded to bf16 once.
 */
#ifndef LATHE_MOE_POOLED_REF_H
#define LATHE_MOE_POOLED_REF_H

#include <math.h>
#include <stdlib.h>

#include "reference.h"

typedef struct {
    int64_t rows, width, splits;
    int64_t columns; /* of one rank; `width` where nothing is gathered */
} lathe_pooled;

/* The columns of rank `source` in row `row`, before the norm. */
static inline void lathe_pooled_columns(lathe_ref *r, const lathe_pooled *p, int source,
                                        int64_t row, double *v) {
    const uint16_t *whole = lathe_ref_data(r, source, "columns");
    const float *partials = lathe_ref_data(r, source, "partials");
    const uint16_t *gathered =
        lathe_ref_has(r, "gathered") ? lathe_ref_data(r, source, "gathered") : NULL;
    if (gathered != NULL) {
        const int64_t n = lathe_ref_int(r, "kColumns");
        for (int64_t i = 0; i < p->width; ++i)
            v[i] = lathe_bf16_value(gathered[(i / n * p->rows + row) * n + i % n]);
        return;
    }
    for (int64_t i = 0; i < p->columns; ++i) {
        double sum = 0;
        if (whole != NULL)
            sum = lathe_bf16_value(whole[row * p->columns + i]);
        for (int64_t s = 0; whole == NULL && s < p->splits; ++s)
            sum += (double)partials[(s * p->rows + row) * p->columns + i];
        v[i] = whole != NULL ? sum : lathe_bf16_round(sum);
    }
}

/* h1 of rank `rank`, rows * width values that the caller frees; NULL after a failure. */
static inline double *lathe_pooled_norm(lathe_ref *r, const lathe_pooled *p, int rank) {
    const uint16_t *gain = lathe_ref_data(r, rank, "gain");
    const double eps = lathe_ref_real(r, "kEps"), center = (double)lathe_ref_int(r, "kCenter");
    double *h1 = calloc((size_t)(p->rows * p->width), sizeof *h1);
    if (h1 == NULL) {
        lathe_ref_fail(r, "the norm in front of the experts: no memory");
        return NULL;
    }
    for (int64_t row = 0; row < p->rows; ++row) {
        double *v = h1 + row * p->width, squares = 0;
        for (int64_t first = 0; first < p->width; first += p->columns)
            lathe_pooled_columns(r, p, p->columns == p->width ? rank : (int)(first / p->columns),
                                 row, v + first);
        for (int64_t i = 0; i < p->width; ++i)
            squares += v[i] * v[i];
        const double inverse = 1 / sqrt(squares / (double)p->width + eps);
        for (int64_t i = 0; i < p->width; ++i)
            v[i] = lathe_bf16_round(v[i] * inverse * (center + lathe_bf16_value(gain[i])));
    }
    return h1;
}

/* Shapes of a call on one rank, and of one that gathers; false after a failure. */
static inline lathe_pooled lathe_pooled_local(const lathe_ref *r) {
    const int64_t width = lathe_ref_int(r, "kWidth");
    return (lathe_pooled){lathe_ref_int(r, "kRows"), width, lathe_ref_int(r, "kSplits"), width};
}
static inline bool lathe_pooled_gathered(lathe_ref *r, lathe_pooled *p) {
    *p = lathe_pooled_local(r);
    p->columns = lathe_ref_int(r, "kColumns");
    if (p->columns >= 1 && p->columns * lathe_ref_ranks(r) == p->width)
        return true;
    lathe_ref_fail(r, "the norm in front of the experts: the ranks' columns do not make the width");
    return false;
}

/* Writes h1 where it is wanted. */
static inline void lathe_pooled_write(lathe_ref *r, const lathe_pooled *p, int rank,
                                      const double *h1) {
    double *out = lathe_ref_out(r, rank, "h1");
    if (out != NULL)
        memcpy(out, h1, sizeof *h1 * (size_t)(p->rows * p->width));
}

#endif
