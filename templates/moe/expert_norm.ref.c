/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/expert_norm: the norm in double, rounded to bf16 once. */
#include "moe/pooled.ref.h"
#include "moe/routing.ref.h"

void lathe_ref_moe_expert_norm(lathe_ref *r);
void lathe_ref_moe_expert_norm(lathe_ref *r) {
    lathe_ref_route(r);
    const lathe_pooled p = lathe_pooled_local(r);
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        double *h1 = lathe_pooled_norm(r, &p, rank);
        if (h1 == NULL)
            return;
        lathe_pooled_write(r, &p, rank, h1);
        free(h1);
    }
}
