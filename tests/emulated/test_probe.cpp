// SPDX-License-Identifier: Apache-2.0
// probe/: rows of about unit RMS, the same on every rank; routes that are distinct within a row and
// spread over all experts, fewer and more than there are experts.
#include "harness.h"
#include "probe/routes.cuh"
#include "probe/rows.cuh"

#include <cmath>
#include <set>

extern "C" {
void lathe_ref_probe_rows(lathe_ref *r);
void lathe_ref_probe_routes(lathe_ref *r);
}

template <int rows, int width, int quantised>
struct Rows {
    static constexpr int kRows = rows, kQuantised = quantised;
    static constexpr int kBlocks = quantised ? width / 16 : 0, kCodeBytes = kBlocks * 8;
    static constexpr int kWidth = quantised ? 0 : width;
};

template <class C>
static void launch_rows(Kernel &k) {
    LATHE_CONSTANTS(k, C, kRows, kQuantised, kBlocks, kCodeBytes, kWidth);
    k.launch({(C::kBlocks + C::kWidth / 16 + 127) / 128, C::kRows}, 128, 0);
    k.run();
}

template <class C>
static void check_rows(const char *name) {
    Kernel k(name, probe_rows<C>, lathe_ref_probe_rows);
    k.null("input_gscale");
    k.null("codes");
    k.null("scales");
    k.out("h1", {C::kRows, C::kWidth});
    k.allow("h1", 0, "defined to the bit: an integer times a constant, two roundings");
    launch_rows<C>(k);
    const bf16 *h1 = static_cast<const bf16 *>(k.result("h1"));
    double sum = 0, squares = 0;
    for (int i = 0; i < C::kRows * C::kWidth; i++) {
        const double v = static_cast<double>(bf16_to_float(h1[i]));
        sum += v;
        squares += v * v;
    }
    const double n = C::kRows * C::kWidth;
    require(std::fabs(std::sqrt(squares / n) - 1) < 3 / std::sqrt(n) &&
                std::fabs(sum / n) < 4 / std::sqrt(n),
            "RMS %.4f, mean %.4f of %g values", std::sqrt(squares / n), sum / n, n);
}

template <class C>
static void check_codes(const char *name) {
    Kernel k(name, probe_rows<C>, lathe_ref_probe_rows);
    k.in("input_gscale", {1}).fill(37.5);
    k.out("codes", {C::kRows, C::kCodeBytes});
    k.out("scales", {C::kRows, C::kBlocks});
    k.null("h1");
    launch_rows<C>(k);
}

template <int tokens, int top_k, int experts, int ranks, int tile>
struct Routes {
    static constexpr int kRoutes = tokens * top_k, kTopK = top_k, kExperts = experts;
    static constexpr int kLocal = experts / ranks, kTile = tile, kRanks = ranks;
    static constexpr int kFilled = kRoutes < kExperts ? kRoutes : kExperts;
    static constexpr int kMaxCtas = kFilled + (kRoutes - kFilled) / tile;
    static constexpr int kPermuted = kMaxCtas * tile + 1;
};

// Every row has top_k experts of its own; the experts taken are spread evenly.
template <class C>
static void check_spread(const Kernel &k) {
    const int *tokens = static_cast<const int *>(k.result("permuted_to_token"));
    const int *expert = static_cast<const int *>(k.result("cta_expert"));
    const int *limit = static_cast<const int *>(k.result("cta_limit"));
    const int ctas = static_cast<const int *>(k.result("ctas"))[0];
    std::set<std::pair<int, int>> routes;
    std::set<int> taken;
    require(ctas >= 1 && ctas <= C::kMaxCtas, "%d tiles", ctas);
    for (int t = 0; t < ctas; t++)
        for (int row = t * C::kTile; row < limit[t]; row++) {
            taken.insert(expert[t]);
            routes.insert({tokens[row], expert[t]});
        }
    require(int(routes.size()) == C::kRoutes, "%zu distinct routes of %d", routes.size(),
            C::kRoutes);
    require(int(taken.size()) == C::kFilled && *taken.begin() == 0 &&
                *taken.rbegin() >= C::kExperts - (C::kExperts + C::kFilled - 1) / C::kFilled,
            "%zu experts from %d to %d", taken.size(), *taken.begin(), *taken.rbegin());
}

template <class C>
static void check_routes(const char *name) {
    Kernel k(name, probe_routes<C>, lathe_ref_probe_routes);
    LATHE_CONSTANTS(k, C, kRoutes, kTopK, kExperts, kLocal, kTile, kPermuted, kMaxCtas);
    k.ranks(C::kRanks);
    k.in("rank", {2}).per_rank().each([](int rank, int64_t i) {
        return i == 0 ? rank : C::kRanks;
    });
    k.out("permuted_to_token", {C::kPermuted});
    for (const char *tiles : {"cta_expert", "cta_limit"})
        k.out(tiles, {C::kMaxCtas});
    k.out("ctas", {1});
    for (const char *tiles : {"own_expert", "own_limit"})
        k.out(tiles, {C::kMaxCtas});
    k.launch({(C::kExperts + 31) / 32}, 32, 0);
    k.run();
    check_spread<C>(k);
}

int main() {
    check_rows<Rows<1, 16, 0>>("one block");
    check_rows<Rows<8, 4096, 0>>("real rows");
    check_codes<Rows<3, 48, 1>>("few codes");
    check_codes<Rows<8, 4096, 1>>("real codes");
    check_routes<Routes<8, 4, 32, 2, 8>>("one route an expert, two ranks");
    check_routes<Routes<8, 8, 256, 4, 8>>("fewer routes than experts");
    check_routes<Routes<5, 3, 38, 2, 8>>("uneven steps between the experts");
    check_routes<Routes<32, 4, 32, 2, 8>>("each expert four times");
    check_routes<Routes<32, 3, 7, 1, 4>>("several tiles an expert");
    check_routes<Routes<32, 8, 256, 16, 8>>("real routes of 16 ranks");
    return finish("probe");
}
