// SPDX-License-Identifier: Apache-2.0
// moe/pool_router: both forms of the pooler, weights to registers or through a ring, ragged tiles
// and slices, tokens and experts of very different size, infinite and subnormal weights.
#include "harness.h"
#include "moe/pool_router.cuh"

#include <cmath>

extern "C" void lathe_ref_moe_pool_router(lathe_ref *r);

struct Tiny {
    static constexpr int kRows = 3, kN = 32, kK = 128, kExperts = 8, kPartials = 0, kSplits = 1,
                         kRouterSplits = 1, kTiles = 1, kWarps = 2, kSteps = 1, kStages = 0;
};
struct Odd { // an idle warp, a slice that is empty, half a tile of experts, two token tiles
    static constexpr int kRows = 11, kN = 48, kK = 80, kExperts = 20, kPartials = 1, kSplits = 2,
                         kRouterSplits = 3, kTiles = 2, kWarps = 3, kSteps = 1, kStages = 0;
};
struct Around { // the router's blocks go round more often than the pooler's
    static constexpr int kRows = 8, kN = 64, kK = 256, kExperts = 32, kPartials = 1, kSplits = 4,
                         kRouterSplits = 2, kTiles = 2, kWarps = 2, kSteps = 1, kStages = 2;
};
struct Real {
    static constexpr int kRows = 8, kN = 16, kK = 8192, kExperts = 16, kPartials = 1, kSplits = 4,
                         kRouterSplits = 8, kTiles = 1, kWarps = 8, kSteps = 2, kStages = 4;
};
struct Many {
    static constexpr int kRows = 32, kN = 32, kK = 128, kExperts = 16, kPartials = 0, kSplits = 1,
                         kRouterSplits = 2, kTiles = 1, kWarps = 2, kSteps = 1, kStages = 3;
};

template <class C>
static double expert_weight(int64_t i) {
    const int64_t expert = i / C::kK;
    if (expert == 2 && i % 7 == 0)
        return std::ldexp(1.0, -140); // subnormal
    if (expert == 5 && i % C::kK == 3)
        return INFINITY;
    const double size = std::ldexp(1.0, static_cast<int>(expert % 5) * 3 - 6);
    return size * std::cos(static_cast<double>(i) * 1.3);
}

template <class C>
static void check(const char *name) {
    using S =
        Stream<C::kRows, C::kN, C::kK, C::kSplits, C::kTiles, C::kWarps, C::kSteps, C::kStages>;
    Kernel k(name, pool_router<C>, lathe_ref_moe_pool_router);
    LATHE_CONSTANTS(k, C, kRows, kN, kK, kExperts, kPartials, kSplits, kRouterSplits);
    k.in("x", {C::kRows, C::kK}).normal(0.1, 2).late();
    k.in("w", {C::kN, C::kK}).normal(0, 0.3);
    k.in("router_x", {C::kRows, C::kK})
        .each([](int, int64_t i) {
            const double size = i / C::kK == 1 ? 1e-4 : 1; // a small token
            return size * std::sin(static_cast<double>(i) * 0.7 + 0.3);
        })
        .late();
    k.in("router_w", {C::kExperts, C::kK}).each([](int, int64_t i) { return expert_weight<C>(i); });
    if (C::kPartials == 0) {
        k.out("y", {C::kRows, C::kN});
        k.null("y_partials");
    } else {
        k.null("y");
        k.out("y_partials", {C::kSplits, C::kRows, C::kN});
    }
    k.out("logits", {C::kRouterSplits, C::kRows, C::kExperts});
    const int blocks = (C::kN + S::kBlockRows - 1) / S::kBlockRows * C::kSplits +
                       (C::kExperts + 15) / 16 * C::kRouterSplits;
    k.launch({blocks}, S::kThreads,
             S::kPartBytes + C::kStages * (16 * (C::kWarps * C::kSteps * 64 + 64) + 16));
    k.run();
}

int main() {
    check<Tiny>("tiny");
    check<Odd>("odd");
    check<Around>("a ring");
    check<Real>("real");
    check<Many>("many rows");
    return finish("moe/pool_router");
}
