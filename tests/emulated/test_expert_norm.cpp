// SPDX-License-Identifier: Apache-2.0
// moe/expert_norm: whole rows and K-split sums, a zero row, a NaN row, rows of very different size.
#include "harness.h"
#include "moe/expert_norm.cuh"
#include "routing_part.h"

#include <algorithm>
#include <cmath>

extern "C" void lathe_ref_moe_expert_norm(lathe_ref *r);

template <int rows, int width, int splits, int warps, int ranks = 0, class Route = NotRouted>
struct Config : Route {
    static constexpr int kRows = rows, kWidth = width, kSplits = splits, kCenter = rows % 2,
                         kWarps = warps;
    static constexpr int kRanks = ranks, kColumns = ranks > 0 ? width / ranks : 0;
    static constexpr double kEps = 1e-5;
};
using Tiny = Config<5, 64, 0, 1>;
using Odd = Config<6, 1040, 3, 2>;
using Real = Config<8, 4096, 2, 8>;

template <class C>
static double pooled(int64_t i) {
    const int64_t row = i / C::kWidth;
    if (row == 1)
        return 0;
    if (row == 2 && i % C::kWidth == 20)
        return NAN;
    return std::sin(static_cast<double>(i) * 0.37) *
           std::pow(10.0, static_cast<double>(row * 2 - 6));
}

template <class C>
static void check(const char *name) {
    Kernel k(name, expert_norm<C>, lathe_ref_moe_expert_norm);
    LATHE_CONSTANTS(k, C, kRows, kWidth, kSplits, kCenter, kEps, kRanks, kColumns);
    if (C::kRanks > 0) {
        k.null("columns");
        k.null("partials");
        k.in("gathered", {C::kRanks, C::kRows, C::kColumns})
            .each([](int, int64_t i) {
                const int64_t rank = i / (C::kRows * C::kColumns), row = i / C::kColumns % C::kRows;
                return pooled<C>(row * C::kWidth + rank * C::kColumns + i % C::kColumns);
            })
            .late();
    } else if (C::kSplits == 0) {
        k.in("columns", {C::kRows, C::kWidth})
            .each([](int, int64_t i) { return pooled<C>(i); })
            .late();
        k.null("partials");
    } else {
        constexpr int64_t n = int64_t{C::kRows} * C::kWidth;
        k.null("columns");
        k.in("partials", {C::kSplits, C::kRows, C::kWidth})
            .each([](int, int64_t i) {
                return pooled<C>(i % n) * (i / n == 0 ? 0.75 : i / n == 1 ? 0.5 : -0.25);
            })
            .late();
    }
    if (C::kRanks == 0)
        k.null("gathered");
    k.in("gain", {C::kWidth}).normal(0.2, 0.6);
    k.out("h1", {C::kRows, C::kWidth});
    add_routing<C>(k, 1);
    k.launch({C::kRows + (C::kRoutes > 0 ? 1 : 0)}, C::kWarps * 32,
             std::max(C::kWarps * 4, C::kRoutingBytes));
    k.run();
}

int main() {
    check<Tiny>("tiny");
    check<Odd>("odd");
    check<Real>("real");
    check<Config<6, 1088, 0, 2, 4>>("gathered from four ranks");
    check<Config<3, 512, 0, 1, 16>>("gathered from sixteen ranks");
    check<Config<5, 64, 2, 2, 0, Routed<5, 40, 3, 20, 4, 1, 1, 0>>>("with routing");
    return finish("moe/expert_norm");
}
