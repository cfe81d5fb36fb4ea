/* SPDX-License-Identifier: Apache-2.0
 * Reference of attention/front_paged: queries, gate and the step's keys from the product, rounded
 * to bf16; then attention over them and over what former steps left in the cache. */
#include "attention/front.ref.h"
#include "attention/paged.ref.h"

/* A head of the product as bf16, normed and rotated or as it is. */
static void round_head(const lathe_front *f, int rank, int64_t row, int64_t head, bool turned,
                       uint16_t *to) {
    double values[128];
    lathe_front_head(f, rank, row, head, values);
    if (turned)
        lathe_front_rotate(f, rank, row, values);
    for (int64_t d = 0; d < f->dim; d++)
        to[d] = lathe_bf16_bits(values[d]);
}

static void round_row(const lathe_front *f, int rank, int64_t row, uint16_t *q, uint16_t *gate,
                      uint16_t *fresh) {
    for (int64_t h = 0; h < f->heads; h++) {
        const int64_t at = (row * f->heads + h) * f->dim;
        round_head(f, rank, row, h, true, q + at);
        round_head(f, rank, row, f->heads + 2 * f->kv_heads + h, false, gate + at);
    }
    for (int64_t h = 0; h < f->kv_heads; h++) {
        uint16_t *to = fresh + (row * f->kv_heads + h) * 2 * f->dim;
        round_head(f, rank, row, f->heads + h, true, to);
        round_head(f, rank, row, f->heads + f->kv_heads + h, false, to + f->dim);
    }
}

static void attend_rank(const lathe_front *f, int rank, uint16_t *q, uint16_t *gate,
                        uint16_t *fresh) {
    lathe_front_keep(f, rank);
    for (int64_t row = 0; row < f->rows; row++) {
        round_row(f, rank, row, q, gate, fresh);
        lathe_front_insert(f, rank, row);
    }
    lathe_paged p = lathe_paged_read(f->ref, rank);
    p.q = q;
    p.gate = gate;
    p.fresh = fresh;
    lathe_ref_parallel(f->ref, p.rows * p.heads, lathe_paged_row, &p);
}

void lathe_ref_attention_front_paged(lathe_ref *r);
void lathe_ref_attention_front_paged(lathe_ref *r) {
    const lathe_front f = lathe_front_read(r, "kProductSplits", "kQkEps");
    const size_t n = (size_t)(f.rows * f.dim);
    uint16_t *q = calloc(n * (size_t)f.heads, sizeof *q);
    uint16_t *gate = calloc(n * (size_t)f.heads, sizeof *gate);
    uint16_t *fresh = calloc(2 * n * (size_t)f.kv_heads, sizeof *fresh);
    if (f.dim > 128 || q == NULL || gate == NULL || fresh == NULL)
        lathe_ref_fail(r, "attention/front_paged: no memory, or heads wider than 128");
    for (int rank = 0; f.dim <= 128 && q && gate && fresh && rank < lathe_ref_ranks(r); rank++)
        attend_rank(&f, rank, q, gate, fresh);
    free(q);
    free(gate);
    free(fresh);
}
