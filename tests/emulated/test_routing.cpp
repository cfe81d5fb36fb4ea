// SPDX-License-Identifier: Apache-2.0
// moe/routing: ties, NaN tokens and NaN logits, an expert that all take, experts that none takes,
// padded tokens, a rank's share of the experts, and every element of the metadata.
#include "harness.h"
#include "moe/routing.cuh"
#include "routing_part.h"

#include <cmath>

extern "C" void lathe_ref_moe_routing(lathe_ref *r);

template <int rows, int experts, int top_k, int local, int tile, int bf16_weights, int padded,
          int warps, int splits = 0>
struct Config : Routed<rows, experts, top_k, local, tile, bf16_weights, padded, splits> {
    static constexpr int kRows = rows, kWarps = warps;
};
using Tiny = Config<3, 8, 2, 8, 8, 0, 0, 3>;
using One = Config<1, 8, 8, 8, 8, 0, 0, 1>;
using Odd = Config<5, 40, 3, 20, 4, 1, 1, 2>;
using Real = Config<32, 256, 8, 256, 8, 0, 1, 8>;
using Ranks = Config<8, 64, 4, 16, 16, 1, 1, 4>;
using Partials = Config<5, 40, 3, 40, 8, 0, 1, 2, 3>;

template <class C>
static void describe(Kernel &k, int ranks) {
    k.constant("kRows", C::kRows, true);
    add_routing<C>(k, ranks);
    k.launch({1}, C::kWarps * 32, C::kRoutingBytes);
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
    check<Partials>("partial sums");
    check_rules();
    return finish("moe/routing");
}
