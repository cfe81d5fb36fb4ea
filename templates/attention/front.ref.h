/* SPDX-License-Identifier: Apache-2.0
 * Reference of what stands between the QKV product and attention: QK norm per head, RoPE on
 * split-half pairs, insertion into the packed cache. Every cache row that no slot names is expected
 * as it was. */
#ifndef LATHE_ATTENTION_FRONT_REF_H
#define LATHE_ATTENTION_FRONT_REF_H

#include "reference.h"

#include <math.h>

typedef struct {
    lathe_ref *ref;
    int64_t rows, heads, kv_heads, dim, splits, page_tokens, positions;
    bool rope;
    double eps;
} lathe_front;

/* `splits`, `eps`: the constants that hold the slices of the product and the QK norm's epsilon. */
static inline lathe_front lathe_front_read(lathe_ref *r, const char *splits, const char *eps) {
    return (lathe_front){
        .ref = r,
        .rows = lathe_ref_int(r, "kRows"),
        .heads = lathe_ref_int(r, "kHeads"),
        .kv_heads = lathe_ref_int(r, "kKvHeads"),
        .dim = lathe_ref_int(r, "kDim"),
        .splits = lathe_ref_int(r, splits),
        .page_tokens = lathe_ref_int(r, "kPageTokens"),
        .positions = lathe_ref_int(r, "kPositions"),
        .rope = lathe_ref_has(r, "rope"),
        .eps = lathe_ref_real(r, eps),
    };
}

/* Element of qkvg: bf16 as it came, or the sum of the partials rounded as the GEMM would have. */
static inline double lathe_front_value(const lathe_front *f, int rank, int64_t row,
                                       int64_t column) {
    const int64_t width = 2 * (f->heads + f->kv_heads) * f->dim;
    if (f->splits == 0) {
        const uint16_t *whole = lathe_ref_data(f->ref, rank, "qkvg");
        return lathe_bf16_value(whole[row * width + column]);
    }
    const float *partials = lathe_ref_data(f->ref, rank, "qkvg_partials");
    double sum = 0;
    for (int64_t s = 0; s < f->splits; s++)
        sum += (double)partials[(s * f->rows + row) * width + column];
    return lathe_ref_round(f->ref, sum);
}

/* head = bf16(rms(head)), then bf16(rope(head)) where the layer has RoPE. */
static inline void lathe_front_rotate(const lathe_front *f, int rank, int64_t row, double *head) {
    double square = 0;
    for (int64_t d = 0; d < f->dim; d++)
        square += head[d] * head[d];
    const double rms = sqrt(square / (double)f->dim + f->eps);
    for (int64_t d = 0; d < f->dim; d++)
        head[d] = lathe_ref_round(f->ref, head[d] / rms);
    if (!f->rope)
        return;
    const float *table = lathe_ref_data(f->ref, rank, "rope");
    int64_t position = ((const int64_t *)lathe_ref_data(f->ref, rank, "positions"))[row];
    if (position >= f->positions)
        position = f->positions - 1;
    if (position < 0)
        position = 0;
    const float *cosines = table + position * f->dim;
    const float *sines = cosines + f->dim / 2;
    for (int64_t j = 0; j < f->dim / 2; j++) {
        const double a = head[j];
        const double b = head[j + f->dim / 2];
        head[j] = lathe_ref_round(f->ref, a * (double)cosines[j] - b * (double)sines[j]);
        head[j + f->dim / 2] =
            lathe_ref_round(f->ref, a * (double)sines[j] + b * (double)cosines[j]);
    }
}

static inline void lathe_front_keep(const lathe_front *f, int rank) {
    const uint16_t *before = lathe_ref_data(f->ref, rank, "cache");
    double *cache = lathe_ref_out(f->ref, rank, "cache");
    const int64_t elements =
        lathe_ref_dim(f->ref, "cache", 0) * f->kv_heads * f->page_tokens * 2 * f->dim;
    for (int64_t i = 0; i < elements; i++)
        cache[i] = lathe_bf16_value(before[i]);
}

static inline void lathe_front_head(const lathe_front *f, int rank, int64_t row, int64_t head,
                                    double *values) {
    for (int64_t d = 0; d < f->dim; d++)
        values[d] = lathe_front_value(f, rank, row, head * f->dim + d);
}

static inline void lathe_front_insert(const lathe_front *f, int rank, int64_t row) {
    const int64_t slot = ((const int64_t *)lathe_ref_data(f->ref, rank, "slots"))[row];
    if (slot < 0)
        return;
    double *cache = lathe_ref_out(f->ref, rank, "cache");
    const int64_t page = slot / f->page_tokens;
    const int64_t token = slot % f->page_tokens;
    for (int64_t h = 0; h < f->kv_heads; h++) {
        double *to = cache + ((page * f->kv_heads + h) * f->page_tokens + token) * 2 * f->dim;
        lathe_front_head(f, rank, row, f->heads + h, to);
        lathe_front_rotate(f, rank, row, to);
        lathe_front_head(f, rank, row, f->heads + f->kv_heads + h, to + f->dim);
    }
}

#endif
