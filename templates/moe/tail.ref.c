/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/tail: each rank by itself. */
#include "moe/tail.ref.h"

static void tail_token(void *context, int64_t token) {
    const lathe_tail *t = context;
    double *y = lathe_tail_memory(t, 1);
    for (int rank = 0; y != NULL && rank < lathe_ref_ranks(t->r); ++rank)
        lathe_tail_partial(t, rank, token, y, lathe_ref_out(t->r, rank, "m") + token * t->width);
    free(y);
}

void lathe_ref_moe_tail(lathe_ref *r);
void lathe_ref_moe_tail(lathe_ref *r) {
    lathe_tail t = lathe_tail_of(r);
    lathe_ref_parallel(r, t.rows, tail_token, &t);
}
