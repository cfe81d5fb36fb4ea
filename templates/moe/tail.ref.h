/* SPDX-License-Identifier: Apache-2.0
 * Reference of the tails of the experts, shared by the references of the three providers: each
 * route's row scaled, normed and weighted in double. */
#ifndef LATHE_MOE_TAIL_REF_H
#define LATHE_MOE_TAIL_REF_H

#include <math.h>
#include <stdlib.h>

#include "reference.h"

typedef struct {
    lathe_ref *r;
    int64_t rows, width, top_k;
    double eps, center;
} lathe_tail;

static inline lathe_tail lathe_tail_of(lathe_ref *r) {
    return (lathe_tail){.r = r,
                        .rows = lathe_ref_int(r, "kRows"),
                        .width = lathe_ref_int(r, "kWidth"),
                        .top_k = lathe_ref_int(r, "kTopK"),
                        .eps = lathe_ref_real(r, "kEps"),
                        .center = (double)lathe_ref_int(r, "kCenter")};
}

/* Row of route `k` of a token in the permuted space of a rank; negative where it has none. */
static inline int64_t lathe_tail_row(const lathe_tail *t, int rank, int64_t token, int64_t k) {
    const int32_t *permuted = lathe_ref_data(t->r, rank, "expanded_to_permuted");
    return permuted[token * t->top_k + k];
}

/* The row as numbers. */
static inline void lathe_tail_read(const lathe_tail *t, int rank, int64_t row, double *y) {
    const uint16_t *rows = lathe_ref_data(t->r, rank, "rows");
    for (int64_t i = 0; i < t->width; ++i)
        y[i] = lathe_bf16_value(rows[row * t->width + i]);
}

/* Adds route `k` of a token, whose row is y, to the token's sums; y is overwritten. */
static inline void lathe_tail_add(const lathe_tail *t, int rank, int64_t token, int64_t k,
                                  double *y, double *sum) {
    const uint16_t *gain = lathe_ref_data(t->r, rank, "gain");
    const float *weights = lathe_ref_data(t->r, rank, "weights");
    const double weight = (double)weights[token * t->top_k + k];
    double squares = 0;
    for (int64_t i = 0; i < t->width; ++i) {
        y[i] *= t->center + lathe_bf16_value(gain[i]);
        squares += y[i] * y[i];
    }
    const double inverse = 1 / sqrt(squares / (double)t->width + t->eps);
    for (int64_t i = 0; i < t->width; ++i)
        sum[i] += weight * (y[i] * inverse);
}

/* The token's weighted sum of the routes that a rank has, rounded to bf16. */
static inline void lathe_tail_partial(const lathe_tail *t, int rank, int64_t token, double *y,
                                      double *sum) {
    for (int64_t i = 0; i < t->width; ++i)
        sum[i] = 0;
    for (int64_t k = 0; k < t->top_k; ++k) {
        const int64_t row = lathe_tail_row(t, rank, token, k);
        if (row < 0)
            continue;
        lathe_tail_read(t, rank, row, y);
        lathe_tail_add(t, rank, token, k, y, sum);
    }
    for (int64_t i = 0; i < t->width; ++i)
        sum[i] = lathe_bf16_round(sum[i]);
}

/* Adds rank `rank`'s values to the sum over the ranks before it. Both orders are definitions in
 * fp32, so the sum is formed in fp32 here too; the last rounding is the caller's. */
static inline void lathe_tail_gather(const lathe_tail *t, int rank, const double *part,
                                     double *sum) {
    const bool each = lathe_ref_int(t->r, "kBf16Each") == 1;
    for (int64_t i = 0; i < t->width; ++i) {
        if (each && rank == 0)
            sum[i] = part[i];
        else
            sum[i] = (double)((float)sum[i] + (float)part[i]);
        if (each)
            sum[i] = lathe_bf16_round(sum[i]);
    }
}

/* `count` rows of numbers that the caller frees; NULL after a failure. */
static inline double *lathe_tail_memory(const lathe_tail *t, int64_t count) {
    double *memory = calloc((size_t)(count * t->width), sizeof *memory);
    if (memory == NULL)
        lathe_ref_fail(t->r, "tail of the experts: no memory");
    return memory;
}

#endif
