// SPDX-License-Identifier: Apache-2.0
// attention/paged: splits, windows, head widths, lengths and page sizes; what a query cannot see is
// poisoned; and an early start behind attention/qkv_front.
#include "harness.h"
#include "attention/paged.cuh"
#include "attention/qkv_front.cuh"
#include "paged_scene.h"

#include <algorithm>
#include <cmath>

extern "C" void lathe_ref_attention_paged(lathe_ref *r);
extern "C" void lathe_ref_attention_qkv_front(lathe_ref *r);

struct Plain {
    static constexpr int kRows = 8, kRequests = 1, kHeads = 16, kKvHeads = 2, kDim = 64,
                         kPageTokens = 16, kPacked = 128, kTableWidth = 20, kOut = 1024,
                         kWindow = 0, kMaxContext = 320, kTeams = 2, kTiles = 2, kSplits = 2,
                         kSlices = 2, kAnchored = 0, kCluster = 1, kChunk = 16, kStages = 2;
    static constexpr float kScale = 0.684125810f, kEps = 1e-5f;
};
struct Split1 : Plain {
    static constexpr int kSplits = 1, kTiles = 1, kSlices = 4;
};
struct Split8 : Plain {
    static constexpr int kSplits = 8, kTeams = 1;
};
struct Cluster8 : Split8 {
    static constexpr int kCluster = 8, kStages = 3;
};
struct Clusters : Split8 { // several of them, chunks of two units
    static constexpr int kCluster = 2, kChunk = 32;
};
struct AllTiles : Plain { // keys are read once
    static constexpr int kTiles = 4, kSlices = 1, kChunk = 32, kStages = 4, kSplits = 4,
                         kCluster = 4;
};
struct Window40 : Plain {
    static constexpr int kWindow = 40, kSplits = 3, kTeams = 1;
};
struct WideWindow : Window40 { // a chunk's first unit may have no visible key
    static constexpr int kChunk = 32, kSplits = 2, kCluster = 2;
};
struct Window24 : Plain { // two requests of four rows, more heads than a slice holds
    static constexpr int kRequests = 2, kWindow = 24, kTiles = 1, kSlices = 2;
};
struct Small : Plain { // one row a request, most of a tile empty
    static constexpr int kRows = 4, kRequests = 4, kHeads = 4, kKvHeads = 2, kDim = 32,
                         kPacked = 64, kOut = 128, kTiles = 1, kSlices = 1;
};
struct SmallWindow : Small {
    static constexpr int kWindow = 33, kTeams = 4;
};
struct Split33 : Small {
    static constexpr int kRows = 1, kRequests = 1, kMaxContext = 640, kTableWidth = 40,
                         kSplits = 33, kTeams = 1;
};
struct Narrow : Small { // as many kv heads as heads
    static constexpr int kRows = 6, kRequests = 3, kKvHeads = 4, kDim = 16, kPacked = 32, kOut = 64,
                         kWindow = 24;
};
struct NarrowCluster : Narrow { // a block folds fewer lanes than a warp has
    static constexpr int kSplits = 8, kCluster = 8, kChunk = 32;
};
struct Race : Narrow { // every warp has rows to leave before it arrives at the counter
    static constexpr int kRows = 8, kRequests = 1, kHeads = 8, kOut = 128, kWindow = 0, kTeams = 4;
};
struct RaceOfMany : Race {
    static constexpr int kSplits = 8, kTeams = 1;
};
struct Wide : Small {
    static constexpr int kRows = 8, kRequests = 1, kHeads = 2, kKvHeads = 1, kDim = 128,
                         kPacked = 256, kOut = 256, kSplits = 4;
};
struct Page64 : Small {
    static constexpr int kPageTokens = 64, kTableWidth = 5, kWindow = 70, kSplits = 3, kTeams = 3;
};

struct Anchored : Plain {
    static constexpr int kAnchored = 1, kSplits = 4, kCluster = 2;
};
struct AnchoredOne : Anchored {
    static constexpr int kRows = 1, kTiles = 1, kSlices = 1;
};
struct AnchoredTwo : Anchored {
    static constexpr int kRows = 16, kRequests = 2, kTableWidth = 21; // 44 pages: 7 is no divisor
};
struct AnchoredWindow : Anchored {
    static constexpr int kWindow = 40;
};
struct AnchoredWindowOne : AnchoredOne {
    static constexpr int kWindow = 40;
};
struct PlainOne : Plain {
    static constexpr int kRows = 1, kTiles = 1, kSlices = 1;
};

template <class T>
static void check(const char *name, std::vector<int> lengths,
                  const Spoil<Computed<T>> &spoil = nullptr, int launches = 1, int seeds = 0) {
    using C = Computed<T>;
    Scene<C> scene(std::move(lengths));
    Kernel k(name, paged_attention<C>, lathe_ref_attention_paged);
    k.in("q", {C::kRows, C::kHeads, C::kDim}).normal(0, 0.5);
    k.in("cache", {Scene<C>::kPages, C::kKvHeads, C::kPageTokens, C::kPacked})
        .each([&](int, int64_t i) { return cache_element<C>(scene, spoil, i); });
    k.in("block_tables", {C::kRequests, C::kTableWidth}).raw(scene.tables.data());
    k.in("seq_lens", {C::kRequests}).raw(scene.lengths.data());
    // Padding has no say: the gate of a request of length zero is NaN.
    k.in("gate", {C::kRows, C::kHeads, C::kDim}).each([&](int, int64_t i) {
        const int64_t request = i / (C::kHeads * C::kDim * Scene<C>::kQ);
        return scene.length(static_cast<int>(request)) > 0 ? noise(i * 17 + 5) * 2 : NAN;
    });
    k.out("y", {C::kRows, C::kOut});
    launch_paged<C>(k);
    k.repeat(launches);
    if (seeds > 0)
        k.seeds(seeds);
    k.run();
}

// Values and keys that some queries of a step see and others do not: who does not stays clean.
template <class C>
static void check_spoilt(const char *name, int length, int key, bool value, double poison) {
    check<C>(name, {length}, [=](const Element<Computed<C>> &e, double x) {
        return e.key == key && e.is_value == value ? poison : x;
    });
}

// A score far above the others at one key, moved over the whole context: the running maximum
// changes early, late and never.
static void check_peak(int length, int key) {
    check<Split8>("peak", {length}, [=](const Element<Computed<Split8>> &e, double x) {
        return e.key == key && !e.is_value ? x * 8 : x;
    });
}

// Row `row` of y for a request of that length alone or, with `companion` > 0, beside one of that
// length. Weights are about equal and values cancel, so that the o-norm blows up what the order of
// a sum leaves in its last bits.
template <class T>
static std::vector<bf16> row_of(int length, int row, int companion = 0) {
    using C = Computed<T>;
    std::vector<int> lengths = {length};
    if (companion > 0)
        lengths.push_back(companion);
    Scene<C> scene(lengths);
    Kernel k("anchored", paged_attention<C>, nullptr);
    k.in("q", {C::kRows, C::kHeads, C::kDim}).each([&](int, int64_t i) {
        const int64_t at = i / (C::kHeads * C::kDim), request = at / Scene<C>::kQ;
        const int64_t n = request == 0 ? length : companion;
        return noise((n - Scene<C>::kQ + at % Scene<C>::kQ) * 7919 + i % (C::kHeads * C::kDim)) *
               1e-3;
    });
    k.in("cache", {Scene<C>::kPages, C::kKvHeads, C::kPageTokens, C::kPacked})
        .each([&](int, int64_t i) {
            const int64_t line = i / C::kPacked; // [page, kv head, token]
            const int page = static_cast<int>(line / C::kPageTokens / C::kKvHeads);
            const auto [request, key] =
                scene.at(page * C::kPageTokens + static_cast<int>(line % C::kPageTokens));
            const double x =
                noise((line / C::kPageTokens % C::kKvHeads * 1000 + key) * 331 + i % C::kPacked);
            return request < 0 ? NAN : i % C::kPacked < C::kDim ? x : x + (key % 2 ? 50 : -50);
        });
    k.in("block_tables", {C::kRequests, C::kTableWidth}).raw(scene.tables.data());
    k.in("seq_lens", {C::kRequests}).raw(scene.lengths.data());
    k.in("gate", {C::kRows, C::kHeads, C::kDim}).fill(1);
    k.out("y", {C::kRows, C::kOut});
    launch_paged<C>(k);
    k.seeds(1);
    k.run();
    const bf16 *y = static_cast<const bf16 *>(k.result("y")) + row * C::kOut;
    return {y, y + C::kOut};
}

static bool same_bits(const std::vector<bf16> &a, const std::vector<bf16> &b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(bf16)) == 0;
}

// A row's bits with rows behind it, alone, and beside another request; without the option they
// change, or the test would see nothing.
static void check_anchored() {
    int changed = 0;
    for (int row = 0; row < 8; row++) {
        const int length = 250 + row; // 250 to 257 keys lie on both sides of a round's end
        const std::vector<bf16> alone = row_of<AnchoredOne>(length, 0);
        require(same_bits(row_of<Anchored>(257, row), alone), "row %d with rows behind it", row);
        require(same_bits(row_of<AnchoredTwo>(257, row, 90), alone), "row %d, two requests", row);
        require(same_bits(row_of<AnchoredWindow>(257, row), row_of<AnchoredWindowOne>(length, 0)),
                "row %d, a window", row);
        changed += !same_bits(row_of<Plain>(257, row), row_of<PlainOne>(length, 0));
    }
    require(changed > 0, "without the option every row has the same bits too");
}

struct Front {
    static constexpr int kRows = 4, kHeads = 4, kKvHeads = 2, kDim = 32, kWidth = 384, kSplits = 0,
                         kPageTokens = 16, kPacked = 64, kRope = 0, kPositions = 0, kThreads = 64;
    static constexpr float kEps = 1e-5f;
};

// Launched early behind the kernel that writes its queries, gate and newest cache rows.
static void check_early() {
    using C = Computed<Small>;
    Scene<C> scene({17, 1, 64, 33});
    Kernel front("front", qkv_front<Front>, lathe_ref_attention_qkv_front);
    front.in("qkvg", {Front::kRows, Front::kWidth}).normal(0, 1);
    front.null("qkvg_partials");
    front.in("positions", {Front::kRows}).fill(0);
    front.null("rope");
    front.in("slots", {Front::kRows}).each([&](int, int64_t r) {
        const std::pair<int, int> newest = {static_cast<int>(r),
                                            scene.length(static_cast<int>(r)) - 1};
        return static_cast<double>(std::find(scene.owner.begin(), scene.owner.end(), newest) -
                                   scene.owner.begin());
    });
    front.out("q", {C::kRows, C::kHeads, C::kDim});
    front.out("gate", {C::kRows, C::kHeads, C::kDim});
    front.inout("cache", {Scene<C>::kPages, C::kKvHeads, C::kPageTokens, C::kPacked})
        .each([&](int, int64_t i) { return cache_element<C>(scene, nullptr, i); });
    LATHE_CONSTANTS(front, Front, kRows, kHeads, kKvHeads, kDim, kSplits, kPageTokens, kPositions,
                    kEps);
    front.launch({Front::kRows * Front::kWidth / 8 / Front::kThreads}, Front::kThreads, 0);

    Kernel k("early", paged_attention<C>, lathe_ref_attention_paged);
    k.same_as("q", front, "q");
    k.same_as("cache", front, "cache");
    k.in("block_tables", {C::kRequests, C::kTableWidth}).raw(scene.tables.data());
    k.in("seq_lens", {C::kRequests}).raw(scene.lengths.data());
    k.same_as("gate", front, "gate");
    k.out("y", {C::kRows, C::kOut});
    launch_paged<C>(k);
    k.early();
    harness::run({&front, &k});
}

int main() {
    check<Plain>("two splits", {300});
    check<Split1>("one split", {77});
    check<Plain>("rows on both sides of a page's end", {291});
    check<Plain>("a full page", {304});
    check<Split8>("eight splits", {313});
    check<Split8>("more splits than keys", {40});
    check<Split33>("33 splits", {601});
    check<Cluster8>("a cluster of eight", {313});
    check<Cluster8>("a cluster with more blocks than keys", {40});
    check<Clusters>("four clusters of two", {313});
    check<Clusters>("clusters without a key", {70});
    check<AllTiles>("four tiles, chunks of 32", {300});
    check<WideWindow>("a window and chunks of 32", {315});
    check<WideWindow>("a window that begins a unit late", {80});
    check<NarrowCluster>("heads of 16 in a cluster", {26, 0, 111});
    check<Plain>("a single key", {1});
    check<Small>("a single key each", {1, 1, 16, 17});
    check<Small>("a padded request", {31, 0, 320, 2});
    check<Plain>("only a padded request", {0});
    check<Plain>("shorter than its rows", {5});
    check<Window40>("a window", {315});
    check<Window40>("a window within the first page", {43});
    check<Window40>("not beyond the window", {39});
    check<Window24>("two lengths and a window", {29, 250});
    check<SmallWindow>("windows at the ends of pages", {48, 49, 64, 65});
    check<SmallWindow>("a padded request and a window", {0, 200, 33, 34});
    check<Narrow>("heads of 16", {26, 0, 111});
    check<Race>("two arrivals", {128}, nullptr, 1, 12);
    check<RaceOfMany>("eight arrivals", {128}, nullptr, 1, 12);
    check<Race>("three launches", {128}, nullptr, 3);
    check<Clusters>("clusters, three launches", {128}, nullptr, 3);
    check<Wide>("heads of 128", {150});
    check<Page64>("pages of 64", {64, 65, 300, 0});

    check_spoilt<Plain>("the newest value is NaN", 200, 199, true, NAN);
    check_spoilt<Plain>("the newest value is infinite", 200, 199, true, INFINITY);
    check_spoilt<Plain>("a newer key is NaN", 200, 196, false, NAN);
    check_spoilt<Window40>("the oldest value is NaN", 200, 200 - 8 - 40 + 1, true, NAN);
    check_spoilt<Window40>("an old key is NaN", 200, 200 - 8 - 40 + 3, false, NAN);
    check_spoilt<Plain>("everybody's value is NaN", 200, 20, true, NAN);

    check_peak(200, 0);
    check_peak(200, 100);
    check_peak(200, 199);
    check_early();
    check<Anchored>("anchored", {313});
    check<Anchored>("anchored, fewer keys than warps", {5});
    check<AnchoredWindow>("anchored, a window", {315});
    check_anchored();
    return finish("attention/paged");
}
