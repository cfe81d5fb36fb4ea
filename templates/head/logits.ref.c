/* SPDX-License-Identifier: Apache-2.0
 * Reference of head/logits: z = multiplier (x w^T), logits = cap tanh(z / cap) (section 2 of the
 * mathematics). */
#include "reference.h"

#include <math.h>

void lathe_ref_head_logits(lathe_ref *r);

typedef struct {
    lathe_ref *r;
    const uint16_t *x, *w;
    double *logits;
    int64_t rows, n, k;
    double multiplier, cap;
} head;

static void compute_column(void *context, int64_t column) {
    const head *h = context;
    if (!lathe_ref_column(h->r, column))
        return;
    const uint16_t *w = h->w + column * h->k;
    for (int64_t row = 0; row < h->rows; row++) {
        const uint16_t *x = h->x + row * h->k;
        double sum = 0.0;
        for (int64_t i = 0; i < h->k; i++)
            sum += lathe_bf16_value(x[i]) * lathe_bf16_value(w[i]);
        const int64_t at = row * h->n + column;
        const double z = lathe_ref_jitter(h->r, sum, (uint64_t)at) * h->multiplier;
        h->logits[at] = (double)(float)(h->cap * tanh(z / h->cap));
    }
}

void lathe_ref_head_logits(lathe_ref *r) {
    head h = {.r = r,
              .rows = lathe_ref_int(r, "kRows"),
              .n = lathe_ref_int(r, "kN"),
              .k = lathe_ref_int(r, "kK"),
              .multiplier = lathe_ref_real(r, "kMultiplier"),
              .cap = lathe_ref_real(r, "kCap")};
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        h.x = lathe_ref_data(r, rank, "x");
        h.w = lathe_ref_data(r, rank, "w");
        h.logits = lathe_ref_out(r, rank, "logits");
        lathe_ref_parallel(r, h.n, compute_column, &h);
    }
}
