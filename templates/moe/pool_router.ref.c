/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/pool_router: both products in double; y rounded to bf16, partial sums to fp32.
 * Slice s of the pooler holds k in [s L, (s + 1) L) with L = 32 ceil(ceil(K / 32) / kSplits), one of
 * the router likewise with 16 for 32. */
#include "reference.h"

typedef struct {
    lathe_ref *r;
    const uint16_t *x, *w, *router_x;
    const float *router_w;
    double *y, *partials, *logits;
    int64_t rows, n, experts, k, splits, slice, router_splits, router_slice;
} pooling;

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static double pool_dot(const pooling *p, int64_t row, int64_t column, int64_t from, int64_t to) {
    double sum = 0.0;
    for (int64_t i = from; i < to; i++)
        sum += lathe_bf16_value(p->x[row * p->k + i]) * lathe_bf16_value(p->w[column * p->k + i]);
    return sum;
}

static void pool_column(void *context, int64_t column) {
    const pooling *p = context;
    if (!lathe_ref_column(p->r, column))
        return;
    for (int64_t row = 0; row < p->rows; row++) {
        const int64_t at = row * p->n + column;
        if (p->y)
            p->y[at] = lathe_bf16_round(
                lathe_ref_jitter(p->r, pool_dot(p, row, column, 0, p->k), (uint64_t)at));
        for (int64_t s = 0; p->partials && s < p->splits; s++) {
            const double part = pool_dot(p, row, column, least(s * p->slice, p->k),
                                         least((s + 1) * p->slice, p->k));
            const int64_t to = s * p->rows * p->n + at;
            p->partials[to] = (double)(float)lathe_ref_jitter(p->r, part, (uint64_t)to);
        }
    }
}

static void route_expert(void *context, int64_t expert) {
    const pooling *p = context;
    if (!lathe_ref_column(p->r, expert))
        return;
    for (int64_t row = 0; row < p->rows; row++)
        for (int64_t s = 0; s < p->router_splits; s++) {
            const int64_t end = least((s + 1) * p->router_slice, p->k);
            double sum = 0.0;
            for (int64_t i = least(s * p->router_slice, p->k); i < end; i++)
                sum += lathe_bf16_value(p->router_x[row * p->k + i]) *
                       (double)p->router_w[expert * p->k + i];
            p->logits[(s * p->rows + row) * p->experts + expert] = (double)(float)sum;
        }
}

static int64_t slice_of(int64_t k, int64_t step, int64_t splits) {
    return ((k + step - 1) / step + splits - 1) / splits * step;
}

void lathe_ref_moe_pool_router(lathe_ref *r);
void lathe_ref_moe_pool_router(lathe_ref *r) {
    pooling p = {.r = r,
                 .rows = lathe_ref_int(r, "kRows"),
                 .n = lathe_ref_int(r, "kN"),
                 .experts = lathe_ref_int(r, "kExperts"),
                 .k = lathe_ref_int(r, "kK"),
                 .splits = lathe_ref_int(r, "kSplits"),
                 .router_splits = lathe_ref_int(r, "kRouterSplits")};
    if (p.splits < 1 || p.router_splits < 1) {
        lathe_ref_fail(r, "moe/pool_router: kSplits and kRouterSplits must be at least 1");
        return;
    }
    p.slice = slice_of(p.k, 32, p.splits);
    p.router_slice = slice_of(p.k, 16, p.router_splits);
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        p.x = lathe_ref_data(r, rank, "x");
        p.w = lathe_ref_data(r, rank, "w");
        p.router_x = lathe_ref_data(r, rank, "router_x");
        p.router_w = lathe_ref_data(r, rank, "router_w");
        p.y = lathe_ref_out(r, rank, "y");
        p.partials = lathe_ref_out(r, rank, "y_partials");
        p.logits = lathe_ref_out(r, rank, "logits");
        lathe_ref_parallel(r, p.n, pool_column, &p);
        lathe_ref_parallel(r, p.experts, route_expert, &p);
    }
}
