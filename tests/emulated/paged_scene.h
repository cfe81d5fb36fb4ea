// SPDX-License-Identifier: Apache-2.0
// Requests over a shuffled paged cache, for tests of attention: what no query sees is poisoned.
#ifndef LATHE_EMULATED_PAGED_SCENE_H
#define LATHE_EMULATED_PAGED_SCENE_H

#include "harness.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

// A configuration with what its spec computes.
template <class T>
struct Computed : T {
    static constexpr int kWarps = T::kTeams * T::kTiles, kParts = T::kSplits / T::kCluster;
};

template <class C>
static void launch_paged(Kernel &k) {
    k.workspace("partial_o", {C::kParts, C::kRows, C::kHeads, C::kDim});
    k.workspace("partial_sums", {C::kParts, C::kRows, C::kHeads, 2});
    k.workspace("counters", {C::kRequests, C::kKvHeads, C::kSlices, C::kCluster}, true);
    LATHE_CONSTANTS(k, C, kRows, kRequests, kHeads, kKvHeads, kDim, kPageTokens, kTableWidth,
                    kWindow, kScale, kEps);
    k.launch({C::kSplits, C::kKvHeads * C::kSlices, C::kRequests}, C::kWarps * 32,
             PagedShape<C>::kSentAt + PagedShape<C>::kSentBytes + 16);
    if (C::kCluster > 1)
        k.cluster(C::kCluster);
    k.allow("y", 4e-4, "a tenth of line 1 of the contract");
}

// Requests of the given lengths over shuffled pages.
template <class C>
struct Scene {
    static constexpr int kQ = C::kRows / C::kRequests;
    static constexpr int kPages = C::kRequests * C::kTableWidth + 2;
    std::vector<int> lengths, tables;
    std::vector<std::pair<int, int>> owner; // of each slot: request and position; -1: none sees it

    explicit Scene(std::vector<int> seq_lens)
        : lengths(std::move(seq_lens)), owner(kPages * C::kPageTokens, {-1, -1}) {
        // An entry of which no key is visible is a page far outside the cache.
        tables.assign(C::kRequests * C::kTableWidth, INT_MIN / 2);
        for (int r = 0; r < C::kRequests; r++)
            for (int key = first(r); key < length(r); key++) {
                const int entry = r * C::kTableWidth + key / C::kPageTokens;
                const int page = (entry * 7 + 3) % kPages;
                tables[static_cast<size_t>(entry)] = page;
                at(page * C::kPageTokens + key % C::kPageTokens) = {r, key};
            }
    }
    int length(int request) const {
        return lengths[static_cast<size_t>(request)];
    }
    // First key that any query of the request sees.
    int first(int request) const {
        return C::kWindow > 0 ? std::max(0, length(request) - kQ - C::kWindow + 1) : 0;
    }
    std::pair<int, int> &at(int slot) {
        return owner[static_cast<size_t>(slot)];
    }
};

static double noise(int64_t i) {
    return std::sin(static_cast<double>(i % 99991) * 12.9898) * 1.7;
}

// Of cache element i: its request and key, and whether it is of the value.
template <class C>
struct Element {
    int request, key;
    bool is_value;
};

// `spoil` says which visible elements are replaced, and by what.
template <class C>
using Spoil = std::function<double(const Element<C> &, double)>;

template <class C>
static double cache_element(Scene<C> &scene, const Spoil<C> &spoil, int64_t i) {
    const int64_t row = i / C::kPacked; // [page, kv head, token]
    const int page = static_cast<int>(row / C::kPageTokens / C::kKvHeads);
    const auto [request, key] =
        scene.at(page * C::kPageTokens + static_cast<int>(row % C::kPageTokens));
    if (request < 0)
        return NAN;
    const double value = noise(i * 31 + key);
    const Element<C> element = {request, key, i % C::kPacked >= C::kDim};
    return spoil ? spoil(element, value) : value;
}

#endif
