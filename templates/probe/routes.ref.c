/* SPDX-License-Identifier: Apache-2.0
 * Reference of probe/routes: every route is dealt to its expert, then tiles are cut. What no tile
 * needs stays unset. */
#include "reference.h"

void lathe_ref_probe_routes(lathe_ref *r);

typedef struct {
    int64_t routes, top_k, experts, local, tile;
} sizes;

static int64_t expert_of(const sizes *s, int64_t route) {
    return s->routes > s->experts ? route % s->experts : route * s->experts / s->routes;
}

static void one_rank(lathe_ref *r, const sizes *s, int rank) {
    const int32_t *place = lathe_ref_data(r, rank, "rank");
    double *token = lathe_ref_out(r, rank, "permuted_to_token");
    double *expert = lathe_ref_out(r, rank, "cta_expert"),
           *limit = lathe_ref_out(r, rank, "cta_limit");
    double *own_expert = lathe_ref_out(r, rank, "own_expert"),
           *own_limit = lathe_ref_out(r, rank, "own_limit");
    int64_t tile = -1, row = 0;
    for (int64_t e = 0; e < s->experts; e++) {
        const bool own = e / s->local == place[0];
        bool open = false;
        for (int64_t n = 0; n < s->routes; n++) {
            if (expert_of(s, n) != e)
                continue;
            if (!open || row == (tile + 1) * s->tile) {
                row = ++tile * s->tile;
                expert[tile] = (double)e;
                own_expert[tile] = own ? (double)(e % s->local) : 0;
                own_limit[tile] = (double)row;
                open = true;
            }
            token[row++] = (double)(n / s->top_k);
            limit[tile] = (double)row;
            if (own)
                own_limit[tile] = (double)row;
        }
    }
    lathe_ref_out(r, rank, "ctas")[0] = (double)(tile + 1);
}

void lathe_ref_probe_routes(lathe_ref *r) {
    const sizes s = {lathe_ref_int(r, "kRoutes"), lathe_ref_int(r, "kTopK"),
                     lathe_ref_int(r, "kExperts"), lathe_ref_int(r, "kLocal"),
                     lathe_ref_int(r, "kTile")};
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
        one_rank(r, &s, rank);
}
