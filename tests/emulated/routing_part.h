// SPDX-License-Identifier: Apache-2.0
// The constants and arguments of routing, for tests of every launch that has it as a part: ties,
// NaN tokens and NaN logits, an expert that all take, experts that none takes, padded tokens.
#ifndef LATHE_EMULATED_ROUTING_PART_H
#define LATHE_EMULATED_ROUTING_PART_H

#include "harness.h"

#include <cmath>

constexpr int routing_max_ctas(int rows, int experts, int top_k, int tile) {
    const int routes = rows * top_k, filled = routes < experts ? routes : experts;
    return filled + (routes - filled) / tile;
}

// `splits`: partial sums of the logits; 0: they come whole.
template <int rows, int experts, int top_k, int local, int tile, int bf16_weights, int padded,
          int splits>
struct Routed {
    static constexpr int kExperts = experts, kTopK = top_k, kRoutes = rows * top_k;
    static constexpr int kMaxCtas = routing_max_ctas(rows, experts, top_k, tile);
    static constexpr int kPermuted = kMaxCtas * tile + 1;
    static constexpr int kHistogram = experts > 256 ? 2 * experts : 512;
    static constexpr int kLocal = local, kTile = tile, kBf16Weights = bf16_weights;
    static constexpr int kPadded = padded, kLogitSplits = splits;
    static constexpr double kScale = 0.17677669529663687, kEpsilon = 1e-15;
    static constexpr int kRoutingBytes = 4 * (2 * kLocal + kRoutes + kMaxCtas + 2 + kExperts);
};

struct NotRouted {
    static constexpr int kRoutes = 0, kRoutingBytes = 0;
};

// Few distinct values, so that keys tie; expert 3 is dear to every token; a NaN token and a NaN
// logit.
template <class C>
static double routing_logit(int64_t i) {
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

// The first of the partial sums is the logit and what the others take away.
template <class C>
static double routing_partial(int64_t i) {
    const int64_t n = int64_t{C::kRows} * C::kExperts, split = i / n;
    return split == 0 ? routing_logit<C>(i) + 0.5 * (C::kLogitSplits - 1) : -0.5;
}

template <class C>
static void add_logits(Kernel &k) {
    if (C::kLogitSplits == 0)
        k.in("logits", {C::kRows, C::kExperts})
            .each([](int, int64_t i) { return routing_logit<C>(i); })
            .late();
    else
        k.in("logits", {C::kLogitSplits, C::kRows, C::kExperts})
            .each([](int, int64_t i) { return routing_partial<C>(i); })
            .late();
}

// All arguments of routing in their order.
template <class C>
static void add_routing(Kernel &k, int ranks) {
    if constexpr (C::kRoutes == 0) {
        k.constant("kRoutes", 0, true);
        for (const char *name : {"logits", "bias", "rank", "slots", "ids", "weights",
                                 "total_padded", "expanded_to_permuted", "permuted_to_token",
                                 "histogram", "counts", "cta_expert", "cta_limit", "ctas"})
            k.null(name);
    } else {
        LATHE_CONSTANTS(k, C, kExperts, kTopK, kRoutes, kPermuted, kHistogram, kMaxCtas, kLocal,
                        kTile);
        LATHE_CONSTANTS(k, C, kLogitSplits, kBf16Weights, kScale, kEpsilon);
        add_logits<C>(k);
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
        for (const char *name :
             {"ids", "weights", "total_padded", "expanded_to_permuted", "permuted_to_token",
              "histogram", "counts", "cta_expert", "cta_limit", "ctas"})
            k.ahead(name);
    }
}

#endif
