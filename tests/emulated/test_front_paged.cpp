// SPDX-License-Identifier: Apache-2.0
// attention/front_paged: whole and partial products, with and without RoPE, head widths, windows,
// splits, new keys on both sides of a chunk's and a page's end, padded requests and rows without a
// slot, non-finite values, launched early behind the kernel that makes the product.
#include "harness.h"
#include "attention/front_paged.cuh"
#include "paged_scene.h"

#include <cmath>

extern "C" void lathe_ref_attention_front_paged(lathe_ref *r);

struct Plain {
    static constexpr int kRows = 8, kRequests = 1, kHeads = 16, kKvHeads = 2, kDim = 64,
                         kPageTokens = 16, kPacked = 128, kTableWidth = 20, kOut = 1024,
                         kWindow = 0, kMaxContext = 320, kTeams = 2, kTiles = 2, kSplits = 2,
                         kSlices = 2, kAnchored = 0, kCluster = 1, kChunk = 16, kStages = 2,
                         kWidth = 2304, kProductSplits = 2, kRope = 1, kPositions = 400;
    static constexpr float kScale = 0.684125810f, kEps = 1e-5f, kQkEps = 2e-5f;
};
struct Whole : Plain { // no RoPE, the product in bf16
    static constexpr int kProductSplits = 0, kRope = 0, kPositions = 0, kSplits = 1, kTiles = 1,
                         kSlices = 4;
};
struct Window40 : Plain {
    static constexpr int kWindow = 40, kSplits = 3, kTeams = 1;
};
struct Anchored : Plain {
    static constexpr int kAnchored = 1, kSplits = 3;
};
struct AllTiles : Plain { // keys are read once; a chunk of two units
    static constexpr int kTiles = 4, kSlices = 1, kChunk = 32, kStages = 3, kSplits = 4,
                         kCluster = 2;
};
struct Cluster8 : Whole {
    static constexpr int kSplits = 8, kCluster = 8, kWindow = 200, kStages = 3, kTeams = 1;
};
struct Ten : Plain { // more new keys than a warp makes at once
    static constexpr int kRows = 10, kHeads = 4, kOut = 256, kTiles = 1, kSlices = 2, kWidth = 768,
                         kChunk = 32, kCluster = 2;
};
struct Small : Plain { // one row a request, most of a tile empty
    static constexpr int kRows = 4, kRequests = 4, kHeads = 4, kKvHeads = 2, kDim = 32,
                         kPacked = 64, kOut = 128, kTiles = 1, kSlices = 1, kWidth = 384,
                         kProductSplits = 1;
};
struct Narrow : Small { // as many kv heads as heads
    static constexpr int kRows = 6, kRequests = 3, kKvHeads = 4, kDim = 16, kPacked = 32, kOut = 64,
                         kWindow = 24, kWidth = 256, kProductSplits = 3;
};
struct Wide : Small {
    static constexpr int kRows = 8, kRequests = 1, kHeads = 2, kKvHeads = 1, kDim = 128,
                         kPacked = 256, kOut = 256, kSplits = 4, kWidth = 768;
};
struct Page64 : Small {
    static constexpr int kPageTokens = 64, kTableWidth = 5, kWindow = 70, kSplits = 3, kTeams = 3;
};
struct Race : Narrow {
    static constexpr int kRows = 8, kRequests = 1, kHeads = 8, kOut = 128, kWindow = 0, kTeams = 1,
                         kSplits = 8, kWidth = 384;
};

template <class C>
static double angle_table(int64_t i) {
    const int64_t position = i / C::kDim, j = i % (C::kDim / 2);
    const double angle =
        static_cast<double>(position) *
        std::pow(5e5, -2.0 * static_cast<double>(j) / static_cast<double>(C::kDim));
    return i % C::kDim < C::kDim / 2 ? std::cos(angle) : std::sin(angle);
}

// Of the product: heads of very different size; a padded request's rows are NaN. `poison` in
// the last row's value.
template <class C>
static double product(const Scene<C> &scene, double poison, int64_t i) {
    const int64_t row = i / C::kWidth % C::kRows, column = i % C::kWidth, head = column / C::kDim;
    if (scene.length(static_cast<int>(row / Scene<C>::kQ)) == 0)
        return NAN;
    if (poison != 0 && head == C::kHeads + C::kKvHeads && row == C::kRows - 1)
        return poison;
    const bool is_value = head >= C::kHeads + C::kKvHeads;
    const double size = is_value ? 1 : std::exp2(static_cast<double>(head * 5 % 9) - 4);
    return size * noise(i * 7 + 3) / (C::kProductSplits > 1 ? C::kProductSplits : 1);
}

template <class C>
static void add_product(Kernel &k, const Scene<C> &scene, double poison) {
    const auto value = [&scene, poison](int, int64_t i) { return product<C>(scene, poison, i); };
    if (C::kProductSplits == 0) {
        k.in("qkvg", {C::kRows, C::kWidth}).each(value).late();
        k.null("qkvg_partials");
    } else {
        k.null("qkvg");
        k.in("qkvg_partials", {C::kProductSplits, C::kRows, C::kWidth}).each(value).late();
    }
}

// The slot of a row's own key; -1 where the request is too short for the row.
template <class C>
static double slot_of(const Scene<C> &scene, int64_t row) {
    const int request = static_cast<int>(row) / Scene<C>::kQ;
    const int position =
        scene.length(request) - Scene<C>::kQ + static_cast<int>(row) % Scene<C>::kQ;
    if (scene.length(request) == 0 || position < 0)
        return -1;
    const int entry =
        scene.tables[static_cast<size_t>(request * C::kTableWidth + position / C::kPageTokens)];
    return entry * C::kPageTokens + position % C::kPageTokens;
}

template <class T>
static void check(const char *name, std::vector<int> lengths, double poison = 0, int launches = 1,
                  int seeds = 0) {
    using C = Computed<T>;
    Scene<C> scene(std::move(lengths));
    Kernel k(name, front_paged<C>, lathe_ref_attention_front_paged);
    add_product<C>(k, scene, poison);
    k.in("positions", {C::kRows}).each([&](int, int64_t row) {
        const int request = static_cast<int>(row) / Scene<C>::kQ;
        return scene.length(request) == 0
                   ? 1e12
                   : static_cast<double>(scene.length(request) - Scene<C>::kQ +
                                         static_cast<int>(row) % Scene<C>::kQ);
    });
    if (C::kRope)
        k.in("rope", {C::kPositions, C::kDim}).each([](int, int64_t i) {
            return angle_table<C>(i);
        });
    else
        k.null("rope");
    k.in("slots", {C::kRows}).each([&](int, int64_t row) { return slot_of<C>(scene, row); });
    k.inout("cache", {Scene<C>::kPages, C::kKvHeads, C::kPageTokens, C::kPacked})
        .each([&](int, int64_t i) {
            const double old = cache_element<C>(scene, nullptr, i);
            return std::isnan(old) ? 7.0 : old; // compared, so no NaN; nobody may read it
        });
    k.in("block_tables", {C::kRequests, C::kTableWidth}).raw(scene.tables.data());
    k.in("seq_lens", {C::kRequests}).raw(scene.lengths.data());
    k.out("y", {C::kRows, C::kOut});
    launch_paged<C>(k);
    LATHE_CONSTANTS(k, C, kProductSplits, kPositions, kQkEps);
    k.allow("cache", 4e-4, "a tenth of line 1 of the contract");
    k.repeat(launches);
    if (seeds > 0)
        k.seeds(seeds);
    k.run();
}

int main() {
    check<Plain>("two splits", {300});
    check<Plain>("new keys on both sides of a page's end", {291});
    check<Plain>("new keys in a page of their own", {312});
    check<Plain>("new keys fill a page", {304});
    check<Plain>("a single key", {1});
    check<Plain>("shorter than its rows", {5});
    check<Plain>("as long as its rows", {8});
    check<Plain>("only a padded request", {0});
    check<Whole>("the product in bf16, no RoPE", {77});
    check<Window40>("a window", {315});
    check<Window40>("a window within the first page", {43});
    check<Anchored>("anchored splits", {200});
    check<AllTiles>("four tiles", {300});
    check<AllTiles>("four tiles, new keys in two chunks", {292});
    check<AllTiles>("four tiles, as long as its rows", {8});
    check<Cluster8>("a cluster of eight and a window", {301});
    check<Ten>("ten rows", {100});
    check<Ten>("ten rows over a page's end", {164});
    check<Small>("a single key each", {1, 1, 16, 17});
    check<Small>("a padded request", {31, 0, 320, 2});
    check<Narrow>("heads of 16", {26, 0, 111});
    check<Wide>("heads of 128", {150});
    check<Page64>("pages of 64", {64, 65, 300, 0});
    check<Race>("eight arrivals", {128}, 0, 1, 12);
    check<Race>("three launches", {128}, 0, 3);
    check<Plain>("the newest value is NaN", {200}, NAN);
    check<Plain>("the newest value is infinite", {200}, INFINITY);
    return finish("attention/front_paged");
}
