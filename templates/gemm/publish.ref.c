/* SPDX-License-Identifier: Apache-2.0
 * Reference of gemm/publish: what each rank publishes, y = x w^T from bf16 inputs in double,
 * rounded to bf16. */
#include "reference.h"

void lathe_ref_gemm_publish(lathe_ref *r);

typedef struct {
    lathe_ref *r;
    const uint16_t *x, *w;
    double *y;
    int64_t rows, n, k;
} product;

static void compute_column(void *context, int64_t column) {
    const product *p = context;
    if (!lathe_ref_column(p->r, column))
        return;
    const uint16_t *w = p->w + column * p->k;
    for (int64_t row = 0; row < p->rows; row++) {
        const uint16_t *x = p->x + row * p->k;
        double sum = 0.0;
        for (int64_t i = 0; i < p->k; i++)
            sum += lathe_bf16_value(x[i]) * lathe_bf16_value(w[i]);
        const int64_t at = row * p->n + column;
        p->y[at] = lathe_bf16_round(lathe_ref_jitter(p->r, sum, (uint64_t)at));
    }
}

void lathe_ref_gemm_publish(lathe_ref *r) {
    product p = {.r = r,
                 .rows = lathe_ref_int(r, "kRows"),
                 .n = lathe_ref_int(r, "kN"),
                 .k = lathe_ref_int(r, "kK")};
    const char *y = lathe_ref_int(r, "kColumns") == 1 ? "y_columns" : "y_parts";
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        p.x = lathe_ref_data(r, rank, "x");
        p.w = lathe_ref_data(r, rank, "w");
        p.y = lathe_ref_out(r, rank, y);
        if (!p.y) {
            lathe_ref_fail(r, "gemm/publish: nothing receives the value");
            return;
        }
        lathe_ref_parallel(r, p.n, compute_column, &p);
    }
}
