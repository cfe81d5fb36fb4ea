/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/exchange_expert_norm: columns of all ranks, the norm in double, rounded to bf16
 * once. */
#include "moe/pooled.ref.h"
#include "moe/routing.ref.h"

void lathe_ref_moe_exchange_expert_norm(lathe_ref *r);
void lathe_ref_moe_exchange_expert_norm(lathe_ref *r) {
    lathe_ref_route(r);
    lathe_pooled p;
    if (!lathe_pooled_gathered(r, &p))
        return;
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        double *h1 = lathe_pooled_norm(r, &p, rank);
        if (h1 == NULL)
            return;
        lathe_pooled_write(r, &p, rank, h1);
        free(h1);
    }
}
