/* SPDX-License-Identifier: Apache-2.0
 * Reference of gemm/skinny: y = x w^T from bf16 inputs in double; y rounded to bf16, partials to
 * fp32. */
#include "reference.h"

void lathe_ref_gemm_skinny(lathe_ref *r);

typedef struct {
    lathe_ref *r;
    const uint16_t *x, *w;
    double *y, *partials; /* one of them */
    int64_t rows, n, k, splits, slice;
} product;

static double dot(const product *p, int64_t row, int64_t column, int64_t from, int64_t to) {
    const uint16_t *x = p->x + row * p->k, *w = p->w + column * p->k;
    double sum = 0.0;
    for (int64_t i = from; i < to; i++)
        sum += lathe_bf16_value(x[i]) * lathe_bf16_value(w[i]);
    return sum;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void compute_column(void *context, int64_t column) {
    const product *p = context;
    if (!lathe_ref_column(p->r, column))
        return;
    for (int64_t row = 0; row < p->rows; row++) {
        const int64_t at = row * p->n + column;
        if (p->y)
            p->y[at] = lathe_bf16_round(
                lathe_ref_jitter(p->r, dot(p, row, column, 0, p->k), (uint64_t)at));
        for (int64_t s = 0; p->partials && s < p->splits; s++) {
            const double part =
                dot(p, row, column, least(s * p->slice, p->k), least((s + 1) * p->slice, p->k));
            const int64_t to = s * p->rows * p->n + at;
            p->partials[to] = (double)(float)lathe_ref_jitter(p->r, part, (uint64_t)to);
        }
    }
}

void lathe_ref_gemm_skinny(lathe_ref *r) {
    product p = {.r = r,
                 .rows = lathe_ref_int(r, "kRows"),
                 .n = lathe_ref_int(r, "kN"),
                 .k = lathe_ref_int(r, "kK"),
                 .splits = lathe_ref_int(r, "kSplits")};
    if (p.splits < 1) {
        lathe_ref_fail(r, "gemm/skinny: kSplits must be at least 1");
        return;
    }
    const int64_t steps = (p.k + 31) / 32;
    p.slice = (steps + p.splits - 1) / p.splits * 32;
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        p.x = lathe_ref_data(r, rank, "x");
        p.w = lathe_ref_data(r, rank, "w");
        p.y = lathe_ref_out(r, rank, "y");
        p.partials = lathe_ref_out(r, rank, "y_partials");
        lathe_ref_parallel(r, p.n, compute_column, &p);
    }
}
