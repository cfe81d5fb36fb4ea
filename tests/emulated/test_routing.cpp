// SPDX-License-Identifier: Apache-2.0
// moe/routing: ties, NaN tokens and NaN logits, an expert that all take, experts that none takes,
// padded tokens, a rank's share of the experts, and every element of the metadata.
#include "harness.h"
#include "moe/routing.cuh"

#include <cmath>

extern "C" void lathe_ref_moe_routing(lathe_ref *r);

constexpr int max_ctas(int rows, int experts, int top_k, int tile) {
    const int routes = rows * top_k, filled = routes < experts ? routes : experts;
    return filled + (routes - filled) / tile;
}

template <int rows, int experts, int top_k, int local, int tile, int bf16_weights, int padded,
          int warps>
struct Config {
    static constexpr int kRows = rows, kExperts = experts, kTopK = top_k, kRoutes = rows * top_k;
    static constexpr int kMaxCtas = max_ctas(rows, experts, top_k, tile);
    static constexpr int kPermuted = kMaxCtas * tile + 1;
    static constexpr int kHistogram = experts > 256 ? 2 * experts : 512;
    static constexpr int kLocal = local, kTile = tile, kBf16Weights = bf16_weights;
    static constexpr int kPadded = padded, kWarps = warps;
    static constexpr double kScale = 0.17677669529663687, kEpsilon = 1e-15;
};
using Tiny = Config<3, 8, 2, 8, 8, 0, 0, 3>;
using One = Config<1, 8, 8, 8, 8, 0, 0, 1>;
using Odd = Config<5, 40, 3, 20, 4, 1, 1, 2>;
using Real = Config<32, 256, 8, 256, 8, 0, 1, 8>;
using Ranks = Config<8, 64, 4, 16, 16, 1, 1, 4>;

// Few distinct values, so that keys tie; expert 3 is dear to every token; a NaN token and a NaN
// logit.
template <class C>
static double logit(int64_t i) {
    const int64_t t = i / C::kExperts, e = i % C::kExperts;
    if (C::kRows > 2 && t == 2)
        return e % 2 == 0 ? NAN : 1.0;
    if (C::kRows > 4 && t == 4)
        return NAN;
    if (C::kRows > 1 && t == 1 && e == 5)
        return NAN;
    if (e == 3)
        return 20;
    return static_cast<double>((t * 31 + e * 17) % 7) * 2 - 6;
}

template <class C>
static void describe(Kernel &k, int ranks) {
    LATHE_CONSTANTS(k, C, kRows, kExperts, kTopK, kRoutes, kPermuted, kHistogram, kMaxCtas, kLocal,
                    kTile);
    LATHE_CONSTANTS(k, C, kBf16Weights, kScale, kEpsilon);
    k.in("logits", {C::kRows, C::kExperts}).each([](int, int64_t i) { return logit<C>(i); }).late();
    k.in("bias", {C::kExperts}).each([](int, int64_t e) {
        return e % 3 == 1 ? 0.25 : 0.0; // an even number of ties is left
    });
    k.in("rank", {2}).per_rank().each([ranks](int rank, int64_t i) {
        return i == 0 ? rank : ranks;
    });
    k.in("slots", {C::kRows}).each([](int, int64_t t) {
        return C::kPadded && t % 4 == 3 ? -1.0 : static_cast<double>(t) * 1e10;
    });
    k.out("ids", {C::kRows, C::kTopK});
    k.out("weights", {C::kRows, C::kTopK});
    k.out("total_padded", {1});
    k.out("expanded_to_permuted", {C::kRoutes});
    k.out("permuted_to_token", {C::kPermuted});
    k.out("histogram", {C::kHistogram});
    k.out("counts", {C::kExperts});
    k.out("cta_expert", {C::kMaxCtas});
    k.out("cta_limit", {C::kMaxCtas});
    k.out("ctas", {1});
    k.launch({1}, C::kWarps * 32, 4 * (2 * C::kLocal + C::kRoutes + C::kMaxCtas + 1));
}

template <class C>
static void check(const char *name) {
    const int ranks = C::kExperts / C::kLocal;
    Kernel k(name, routing<C>, lathe_ref_moe_routing);
    describe<C>(k, ranks);
    k.ranks(ranks);
    k.run();
}

// What the specification says in words, without the reference.
static void check_rules() {
    using C = Real;
    Kernel k("rules", routing<C>, nullptr);
    describe<C>(k, 1);
    k.run();
    const int *ids = static_cast<const int *>(k.result("ids"));
    const float *weights = static_cast<const float *>(k.result("weights"));
    const int *rows = static_cast<const int *>(k.result("expanded_to_permuted"));
    const int *tokens = static_cast<const int *>(k.result("permuted_to_token"));
    for (int i = 0; i < C::kTopK; i++) {
        require(ids[4 * C::kTopK + i] == i, "a NaN token takes experts 0 to K-1");
        require(std::isnan(weights[4 * C::kTopK + i]), "with NaN weights");
        require(ids[3 * C::kTopK + i] == -1, "a padded token takes none");
        require(!(weights[3 * C::kTopK + i] != 0), "and weighs nothing");
        require(rows[3 * C::kTopK + i] == -1, "and has no row");
    }
    float sum = 0;
    for (int i = 0; i < C::kTopK; i++)
        sum += weights[i];
    require(std::fabs(sum - 1) < 1e-6f, "weights sum to 1, not %g", static_cast<double>(sum));
    for (int x = 0; x < C::kRoutes; x++)
        require(rows[x] < 0 || tokens[rows[x]] == x / C::kTopK, "rows and tokens agree");
    require(tokens[C::kPermuted - 1] == -1, "the guard element stays -1");
}

int main() {
    check<Tiny>("tiny");
    check<One>("one token takes all");
    check<Odd>("odd");
    check<Real>("real");
    check<Ranks>("four ranks");
    check_rules();
    return finish("moe/routing");
}
