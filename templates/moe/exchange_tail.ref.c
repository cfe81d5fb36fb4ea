/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/exchange_tail: every rank's partial as on one rank, rounded to bf16. The sum
 * over ranks is fp32 by definition, from +0 and ranks ascending, so it is formed in fp32 here too.
 */
#include "moe/tail.ref.h"

static void tail_token(void *context, int64_t token) {
    const lathe_tail *t = context;
    const int ranks = lathe_ref_ranks(t->r);
    double *y = lathe_tail_memory(t, 3);
    if (y == NULL)
        return;
    double *partial = y + t->width, *sum = partial + t->width;
    for (int rank = 0; rank < ranks; ++rank) {
        lathe_tail_partial(t, rank, token, y, partial);
        lathe_tail_gather(t, rank, partial, sum);
    }
    for (int rank = 0; rank < ranks; ++rank) {
        double *m = lathe_ref_out(t->r, rank, "m") + token * t->width;
        for (int64_t i = 0; i < t->width; ++i)
            m[i] = lathe_bf16_round(sum[i]);
    }
    free(y);
}

void lathe_ref_moe_exchange_tail(lathe_ref *r);
void lathe_ref_moe_exchange_tail(lathe_ref *r) {
    lathe_tail t = lathe_tail_of(r);
    lathe_ref_parallel(r, t.rows, tail_token, &t);
}
