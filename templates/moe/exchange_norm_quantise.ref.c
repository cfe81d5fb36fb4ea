/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/exchange_norm_quantise: columns of all ranks, the norm in double, rounded to
 * bf16 once, then the quantiser. */
#include "moe/pooled.ref.h"
#include "moe/quantise.ref.h"
#include "moe/routing.ref.h"

void lathe_ref_moe_exchange_norm_quantise(lathe_ref *r);
void lathe_ref_moe_exchange_norm_quantise(lathe_ref *r) {
    lathe_ref_route(r);
    lathe_pooled p;
    if (!lathe_pooled_gathered(r, &p))
        return;
    if (p.width % 16 != 0) {
        lathe_ref_fail(r, "exchange_norm_quantise: the width must be a multiple of 16");
        return;
    }
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        double *h1 = lathe_pooled_norm(r, &p, rank);
        if (h1 == NULL)
            return;
        lathe_quantise_rows(r, rank, h1);
        free(h1);
    }
}
