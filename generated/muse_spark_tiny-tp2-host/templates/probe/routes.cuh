// SPDX-License-Identifier: Apache-2.0
// Routes of the probe: a thread writes the tiles of one expert. It counts the tiles of the experts
// before by itself, which is quick enough for what happens once.
#ifndef LATHE_PROBE_ROUTES_CUH
#define LATHE_PROBE_ROUTES_CUH

#include "prims.cuh"

// The first route of an expert; the next ones are kExperts further each. Where there are fewer
// routes than experts, the route n with floor(n E / R) = expert, if it exists.
template <class C>
__device__ __forceinline__ int probe_first_route(int expert) {
    return C::kRoutes > C::kExperts ? expert
                                    : (expert * C::kRoutes + C::kExperts - 1) / C::kExperts;
}

template <class C>
__device__ __forceinline__ int probe_route_count(int expert) {
    if (C::kRoutes > C::kExperts)
        return C::kRoutes / C::kExperts + (expert < C::kRoutes % C::kExperts ? 1 : 0);
    const int n = probe_first_route<C>(expert);
    return n < C::kRoutes && n * C::kExperts / C::kRoutes == expert ? 1 : 0;
}

template <class C>
__device__ void probe_routes(const int *rank, int *permuted_to_token, int *cta_expert,
                             int *cta_limit, int *ctas, int *own_expert, int *own_limit) {
    static_assert(C::kPermuted == C::kMaxCtas * C::kTile + 1, "tokens of all tiles");
    static_assert(C::kExperts % C::kLocal == 0, "ranks hold equally many experts");
    const int expert = int(block_id() * block_threads() + thread_id());
    if (expert >= C::kExperts)
        return;
    int tile = 0;
    for (int e = 0; e < expert; ++e)
        tile += (probe_route_count<C>(e) + C::kTile - 1) / C::kTile;
    const int own = expert - rank[0] * C::kLocal;
    const bool here = own >= 0 && own < C::kLocal;
    const int count = probe_route_count<C>(expert);
    for (int i = 0; i < count; ++i)
        permuted_to_token[tile * C::kTile + i] =
            (probe_first_route<C>(expert) + i * C::kExperts) / C::kTopK;
    for (int done = 0; done < count; done += C::kTile, ++tile) {
        const int rows = count - done < C::kTile ? count - done : C::kTile;
        cta_expert[tile] = expert;
        cta_limit[tile] = tile * C::kTile + rows;
        own_expert[tile] = here ? own : 0;
        own_limit[tile] = tile * C::kTile + (here ? rows : 0);
    }
    if (expert == C::kExperts - 1)
        ctas[0] = tile;
}

#endif
