/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/exchange_route_tail: the rows of a route on all ranks, each where that rank's
 * own permutation put it, summed in fp32 from +0 and ranks ascending, as defined, and rounded to
 * bf16; then the tail as on one rank. A rank that has no row for a route sends zeros. */
#include "moe/tail.ref.h"

/* y = sum over ranks of the route's row. */
static void sum_route(const lathe_tail *t, int64_t token, int64_t k, double *y, double *part) {
    for (int64_t i = 0; i < t->width; ++i)
        y[i] = 0;
    for (int rank = 0; rank < lathe_ref_ranks(t->r); ++rank) {
        const int64_t row = lathe_tail_row(t, rank, token, k);
        for (int64_t i = 0; i < t->width; ++i)
            part[i] = 0;
        if (row >= 0)
            lathe_tail_read(t, rank, row, part);
        lathe_tail_gather(t, rank, part, y);
    }
    for (int64_t i = 0; i < t->width; ++i)
        y[i] = lathe_bf16_round(y[i]);
}

static void route_token(const lathe_tail *t, int rank, int64_t token, double *y, double *part) {
    double *m = lathe_ref_out(t->r, rank, "m") + token * t->width;
    for (int64_t i = 0; i < t->width; ++i)
        m[i] = 0;
    for (int64_t k = 0; k < t->top_k; ++k) {
        if (lathe_tail_row(t, rank, token, k) < 0)
            continue;
        sum_route(t, token, k, y, part);
        lathe_tail_add(t, rank, token, k, y, m);
    }
    for (int64_t i = 0; i < t->width; ++i)
        m[i] = lathe_bf16_round(m[i]);
}

static void tail_token(void *context, int64_t token) {
    const lathe_tail *t = context;
    double *y = lathe_tail_memory(t, 2);
    for (int rank = 0; y != NULL && rank < lathe_ref_ranks(t->r); ++rank)
        route_token(t, rank, token, y, y + t->width);
    free(y);
}

void lathe_ref_moe_exchange_route_tail(lathe_ref *r);
void lathe_ref_moe_exchange_route_tail(lathe_ref *r) {
    lathe_tail t = lathe_tail_of(r);
    lathe_ref_parallel(r, t.rows, tail_token, &t);
}
