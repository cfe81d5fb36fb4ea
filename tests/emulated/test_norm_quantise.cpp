// SPDX-License-Identifier: Apache-2.0
// moe/norm_quantise: exact ties of scale and codes, zero rows and zero blocks, blocks too small for
// their scale, NaN and infinite values, huge and tiny global scales, K-split sums.
#include "harness.h"
#include "moe/norm_quantise.cuh"
#include "routing_part.h"

#include <algorithm>
#include <cmath>

extern "C" void lathe_ref_moe_norm_quantise(lathe_ref *r);

template <int rows, int width, int splits, int warps, int ranks = 0, class Route = NotRouted>
struct Config : Route {
    static constexpr int kRows = rows, kWidth = width, kCodeBytes = width / 2, kBlocks = width / 16;
    static constexpr int kSplits = splits, kCenter = rows % 2, kWarps = warps;
    static constexpr int kRanks = ranks, kColumns = ranks > 0 ? width / ranks : 0;
    static constexpr double kEps = 1e-5;
};
using Tiny = Config<5, 64, 0, 1>;
using Odd = Config<6, 1040, 3, 1>; // 65 blocks: three slots, the last nearly empty
using Real = Config<8, 4096, 2, 8>;

template <class C>
static double pooled(int64_t i) {
    const int64_t row = i / C::kWidth, column = i % C::kWidth, block = column / 16;
    const double v =
        std::sin(static_cast<double>(i) * 0.37) + 0.5 * std::cos(static_cast<double>(i * i % 97));
    if (row == 0)
        return i % 3 == 0 ? -1.0 : 1.0; // all of one size: h1 is the gain, to bf16
    if (row == 1)
        return i % 2 == 0 ? 0.0 : -0.0; // a zero row, with its signs
    if (row == 2 && C::kWidth > 64)
        return column == 20 ? NAN : v;
    if (row == 3)
        return v * 1e-12; // eps rules
    if (row == 4)
        return v * 1e8;
    if (block == 1)
        return 0; // a zero block
    if (block == 2)
        return v * 1e-7; // its scale rounds to zero
    if (block == 4)
        return v * 1e-40; // with the largest global scale the inverse of its step is infinite
    return v;
}

// Block 3: a scale half-way between two, and codes half-way between two under that scale.
template <class C>
static double gain(int64_t i) {
    const double ties[8] = {6.375, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
    return i / 16 == 3 ? ties[i % 8] - C::kCenter : 0.6 * std::cos(static_cast<double>(i) * 0.9);
}

template <class C>
static void check(const char *name, double global) {
    Kernel k(name, norm_quantise<C>, lathe_ref_moe_norm_quantise);
    LATHE_CONSTANTS(k, C, kRows, kWidth, kCodeBytes, kBlocks, kSplits, kCenter, kEps, kRanks,
                    kColumns);
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
    k.in("gain", {C::kWidth}).each([](int, int64_t i) { return gain<C>(i); });
    k.in("input_gscale", {1}).fill(global);
    k.out("codes", {C::kRows, C::kCodeBytes});
    k.out("scales", {C::kRows, C::kBlocks});
    add_routing<C>(k, 1);
    k.launch({C::kRows + (C::kRoutes > 0 ? 1 : 0)}, C::kWarps * 32,
             std::max(C::kWarps * 4, C::kRoutingBytes));
    k.allow("codes", 1e-3, "design.md, what a number may be off by, line 2: rounding ties");
    k.run();
}

int main() {
    for (double global : {1.0, 311.7, 3e38, 1e-30}) {
        check<Tiny>("tiny", global);
        check<Odd>("odd", global);
        check<Real>("real", global);
        check<Config<6, 1088, 0, 2, 4>>("gathered from four ranks", global);
        check<Config<5, 64, 2, 2, 0, Routed<5, 40, 3, 20, 4, 1, 1, 2>>>("with routing", global);
    }
    return finish("moe/norm_quantise");
}
