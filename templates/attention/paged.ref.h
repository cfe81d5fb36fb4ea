/* SPDX-License-Identifier: Apache-2.0
 * Reference of attention over the paged cache: every query row on its own, softmax over the visible
 * keys in double, o-norm, gate, one rounding. A row that sees no key is zero. */
#ifndef LATHE_ATTENTION_PAGED_REF_H
#define LATHE_ATTENTION_PAGED_REF_H

#include "reference.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    lathe_ref *ref;
    int rank;
    int64_t rows, requests, heads, kv_heads, dim, page_tokens, table_width, window;
    double scale, eps;
    const uint16_t *q, *cache, *gate;
    const uint16_t *fresh; /* [rows, kv_heads, 2 dim]: keys and values of the step; NULL: they stand
                              in the cache */
    const int32_t *tables, *lengths;
    double *y;
} lathe_paged;

static inline lathe_paged lathe_paged_read(lathe_ref *r, int rank) {
    return (lathe_paged){
        .ref = r,
        .rank = rank,
        .rows = lathe_ref_int(r, "kRows"),
        .requests = lathe_ref_int(r, "kRequests"),
        .heads = lathe_ref_int(r, "kHeads"),
        .kv_heads = lathe_ref_int(r, "kKvHeads"),
        .dim = lathe_ref_int(r, "kDim"),
        .page_tokens = lathe_ref_int(r, "kPageTokens"),
        .table_width = lathe_ref_int(r, "kTableWidth"),
        .window = lathe_ref_int(r, "kWindow"),
        .scale = lathe_ref_real(r, "kScale"),
        .eps = lathe_ref_real(r, "kEps"),
        .cache = lathe_ref_data(r, rank, "cache"),
        .tables = lathe_ref_data(r, rank, "block_tables"),
        .lengths = lathe_ref_data(r, rank, "seq_lens"),
        .y = lathe_ref_out(r, rank, "y"),
    };
}

/* Cache row of the key at `position` of a request: k, then v. */
static inline const uint16_t *lathe_paged_key(const lathe_paged *p, int64_t request,
                                              int64_t kv_head, int64_t position) {
    const int64_t q = p->rows / p->requests, number = position - (p->lengths[request] - q);
    if (p->fresh != NULL && number >= 0)
        return p->fresh + ((request * q + number) * p->kv_heads + kv_head) * 2 * p->dim;
    const int64_t page = p->tables[request * p->table_width + position / p->page_tokens];
    const int64_t line =
        (page * p->kv_heads + kv_head) * p->page_tokens + position % p->page_tokens;
    return p->cache + line * 2 * p->dim;
}

/* o = softmax(scale q k) v over keys [first, last]; `weights` has room for them. `index` numbers
 * the products. */
static inline void lathe_paged_attend(const lathe_paged *p, int64_t index, int64_t request,
                                      int64_t kv_head, int64_t first, int64_t last, double *weights,
                                      double *o) {
    const uint16_t *q = p->q + index * p->dim;
    double top = -INFINITY;
    for (int64_t key = first; key <= last; key++) {
        const uint16_t *k = lathe_paged_key(p, request, kv_head, key);
        double dot = 0;
        for (int64_t d = 0; d < p->dim; d++)
            dot += lathe_bf16_value(q[d]) * lathe_bf16_value(k[d]);
        dot = p->scale * lathe_ref_jitter(p->ref, dot, (uint64_t)(index << 21 | key) << 1);
        weights[key - first] = dot;
        top = fmax(top, dot);
    }
    double sum = 0;
    for (int64_t key = first; key <= last; key++) {
        const double weight = exp(weights[key - first] - top);
        const uint16_t *v = lathe_paged_key(p, request, kv_head, key) + p->dim;
        for (int64_t d = 0; d < p->dim; d++)
            o[d] += weight * lathe_bf16_value(v[d]);
        sum += weight;
    }
    for (int64_t d = 0; d < p->dim; d++)
        o[d] = lathe_ref_jitter(p->ref, o[d] / sum, (uint64_t)(index * p->dim + d) << 1 | 1);
}

static inline void lathe_paged_gate(const lathe_paged *p, int64_t index, const double *o) {
    double square = 0;
    for (int64_t d = 0; d < p->dim; d++)
        square += o[d] * o[d];
    const double rms = sqrt(square / (double)p->dim + p->eps);
    for (int64_t d = 0; d < p->dim; d++) {
        const double gate = lathe_bf16_value(p->gate[index * p->dim + d]);
        p->y[index * p->dim + d] = lathe_bf16_round(o[d] / rms / (1 + exp(-gate)));
    }
}

/* One head of one row; `index` is row * heads + head. */
static inline void lathe_paged_row(void *context, int64_t index) {
    const lathe_paged *p = context;
    const int64_t row = index / p->heads;
    const int64_t kv_head = index % p->heads / (p->heads / p->kv_heads);
    const int64_t q = p->rows / p->requests;
    const int64_t request = row / q;
    const int64_t last = p->lengths[request] - q + row % q;
    int64_t first = p->window > 0 ? last - p->window + 1 : 0;
    if (first < 0)
        first = 0;
    if (last < first) {
        for (int64_t d = 0; d < p->dim; d++)
            p->y[index * p->dim + d] = 0;
        return;
    }
    double *o = calloc((size_t)(p->dim + last - first + 1), sizeof *o);
    if (o == NULL) {
        lathe_ref_fail(p->ref, "attention: no memory for the scores of a row");
        return;
    }
    lathe_paged_attend(p, index, request, kv_head, first, last, o + p->dim, o);
    lathe_paged_gate(p, index, o);
    free(o);
}

#endif
