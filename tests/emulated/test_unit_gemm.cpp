// SPDX-License-Identifier: Apache-2.0
// moe/unit_gemm1 and moe/unit_gemm2: no token at all, tiles of one token, of some and of eight,
// experts without tokens, more tiles than warps and fewer, every length of a unit, both ways to
// hold tokens, a split of k, zero, largest, smallest and subnormal scales, NaN tokens. And both
// again on what prepare/expert_units packs, against the kernels that read weights as the checkpoint
// has them.
#include "harness.h"
#include "moe/nvfp4_gemm1.cuh"
#include "moe/nvfp4_gemm2.cuh"
#include "moe/unit_gemm1.cuh"
#include "moe/unit_gemm2.cuh"
#include "prepare/expert_units.cuh"
#include "routes.h"

#include <cmath>

extern "C" {
void lathe_ref_moe_unit_gemm1(lathe_ref *r);
void lathe_ref_moe_unit_gemm2(lathe_ref *r);
}

template <int rows, int width, int columns, int experts, int top_k, int chunks, int teams,
          int split, int stages, int expanded>
struct First {
    static constexpr int kRows = rows, kCodeBytes = width / 2, kBlocks = width / 16;
    static constexpr int kExperts = experts, kTopK = top_k, kTile = 8, kChunks = chunks;
    static constexpr int kUnitBytes = chunks * 576, kSteps = width / (chunks * 64);
    static constexpr int kMaxCtas = rows * top_k;
    static constexpr int kMaxRows = kMaxCtas * kTile, kPermuted = kMaxRows + 1;
    static constexpr int kOutBytes = columns / 2, kOutBlocks = columns / 16;
    static constexpr int kUnits = kOutBlocks * 2 * kSteps;
    static constexpr int kTeams = teams, kSplit = split, kStages = stages, kExpanded = expanded;
    static constexpr int kPitch =
        expanded ? width * 2 + 16 : kBlocks * 9 + (32 + 128 * kBlocks - kBlocks * 9) % 128;
    static constexpr int kWarps = teams * (split + 1);
    static constexpr uint32_t kShared = static_cast<uint32_t>(
        teams * split * (stages * kUnitBytes + 512) + rows * kPitch +
        (kMaxCtas * 4 + 15) / 16 * 16 + chunks * (expanded ? 128 : 32) + 8 * (teams * split * stages + 4 * teams));
};
using OneRow = First<1, 64, 32, 8, 2, 1, 2, 1, 2, 1>;
using Few = First<8, 256, 64, 8, 2, 2, 1, 2, 2, 1>;
using Compact = First<20, 256, 48, 6, 3, 4, 2, 1, 2, 0>;
using Long = First<11, 1024, 32, 5, 2, 8, 1, 2, 3, 0>;
using LongExpanded = First<8, 512, 48, 16, 2, 8, 2, 1, 2, 1>;

template <int rows, int inner, int width, int experts, int top_k, int chunks, int warps, int stages,
          int expanded>
struct Second {
    static constexpr int kRows = rows, kCodeBytes = inner / 2, kBlocks = inner / 16;
    static constexpr int kExperts = experts, kTopK = top_k, kTile = 8, kWidth = width;
    static constexpr int kChunks = chunks, kUnitBytes = chunks * 576;
    static constexpr int kSteps = inner / (chunks * 64), kUnits = width / 16 * kSteps;
    static constexpr int kMaxCtas = rows * top_k, kRoutes = rows * top_k;
    static constexpr int kMaxRows = kMaxCtas * kTile, kOutRows = kMaxRows + 2;
    static constexpr int kWarps = warps, kStages = stages;
    static constexpr int kExpanded = expanded;
    static constexpr int kPitch =
        expanded ? inner * 2 + 16 : kBlocks * 9 + (32 + 128 * kBlocks - kBlocks * 9) % 128;
    static constexpr uint32_t kShared = static_cast<uint32_t>(
        (warps * stages * kUnitBytes + kRoutes * kPitch + (kMaxCtas + 1) * 4 + kRoutes * 2 + 15) /
            16 * 16 +
        chunks * (expanded ? 128 : 32) + 8 * warps * stages);
};
using OneRow2 = Second<1, 64, 32, 8, 2, 1, 1, 2, 1>;
using Few2 = Second<8, 256, 64, 8, 2, 2, 3, 2, 1>;
using Compact2 = Second<20, 256, 48, 6, 3, 4, 2, 2, 0>;
using Long2 = Second<11, 1024, 32, 5, 2, 8, 2, 3, 0>;
using LongExpanded2 = Second<8, 512, 48, 16, 2, 8, 2, 2, 1>;

static uint64_t hash(uint64_t x) {
    x = (x + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    return x ^ (x >> 31);
}

// A byte of units: any codes; scales near 2^-4, in some units the smallest (a subnormal of e4m3)
// and the largest by turns, in others codes of zero.
template <class C>
static double unit_byte(int64_t i) {
    const int64_t unit = i / C::kUnitBytes, at = i % C::kUnitBytes;
    const uint64_t bits = hash(static_cast<uint64_t>(i)) >> 20;
    if (at < C::kChunks * 512)
        return unit % 11 == 3 ? 0 : static_cast<double>(bits & 255);
    if (unit % 7 == 5)
        return bits % 3 == 0 ? 254 : bits % 3 == 1 ? 112 : 125;
    return static_cast<double>(19 * 8 + bits % 8);
}

// Token 1 is all zero, token 2 holds a NaN block, token 3 is large and token 4 tiny.
static double token_scale(int64_t token, int64_t block) {
    if (token == 2 && block == 1)
        return NAN;
    const double v = std::ldexp(8.0 + static_cast<double>((token * 3 + block * 5) % 8), -5);
    return token == 1 ? 0 : token == 3 ? v * 256 : token == 4 ? 0.001953125 : v;
}

template <class C>
static void metadata(Kernel &k, const Routes &routes) {
    k.in("cta_expert", {C::kMaxCtas}).raw(routes.expert.data());
    k.in("cta_limit", {C::kMaxCtas}).raw(routes.limit.data());
    k.in("ctas", {1}).fill(routes.tiles);
}

template <class C>
static void scalars(Kernel &k, double size) {
    const double alpha = size / std::sqrt(static_cast<double>(C::kBlocks * 16));
    k.in("gate_alpha", {C::kExperts}).each([alpha](int, int64_t e) {
        return alpha * (e % 2 == 0 ? 1 : 8) * (1 + 0.1 * static_cast<double>(e));
    });
    k.in("up_alpha", {C::kExperts}).each([alpha](int, int64_t e) {
        return alpha * (e % 2 == 0 ? 8 : 1) * (1 + 0.07 * static_cast<double>(e));
    });
}

template <class C>
static void tokens_of(Kernel &k) {
    k.in("codes", {C::kRows, C::kCodeBytes}).integers(0, 255).late();
    k.in("scales", {C::kRows, C::kBlocks})
        .each([](int, int64_t i) { return token_scale(i / C::kBlocks, i % C::kBlocks); })
        .late();
}

template <class C>
static void finish_first(Kernel &k, const Routes &routes, double size) {
    k.in("permuted_to_token", {C::kPermuted}).raw(routes.token.data());
    metadata<C>(k, routes);
    scalars<C>(k, size);
    k.out("codes2", {C::kMaxRows, C::kOutBytes});
    k.out("scales2", {C::kMaxRows, C::kOutBlocks});
    k.allow("codes2", 1e-3, "design.md, what a number may be off by, line 2: rounding ties");
}

template <class C>
static void check_first(const char *name, double size, bool none, uint32_t blocks) {
    Routes routes = make_routes(C::kRows, C::kExperts, C::kTopK, C::kTile, C::kMaxCtas, 3);
    if (none)
        routes.tiles = 0;
    Kernel k(name, unit_gemm1<C>, lathe_ref_moe_unit_gemm1);
    LATHE_CONSTANTS(k, C, kRows, kBlocks, kOutBlocks, kTile, kUnitBytes);
    tokens_of<C>(k);
    k.in("units", {C::kExperts, C::kUnits, C::kUnitBytes}).each([](int, int64_t i) {
        return unit_byte<C>(i);
    });
    finish_first<C>(k, routes, size);
    k.launch({blocks}, C::kWarps * 32, C::kShared);
    if (C::kRows == 1)
        k.seeds(20); // a copy of weights that lands after it is looked for is rare
    k.run();
    const u8 *codes2 = static_cast<const u8 *>(k.result("codes2"));
    for (int i = 0; i < C::kMaxRows * C::kOutBytes; i++)
        require(routes.live(i / C::kOutBytes, C::kTile) || codes2[i] == 0xff,
                "%s: padding row %d was written", name, i / C::kOutBytes);
}

template <class C>
static double row_scale(const Routes &routes, int64_t row, int64_t block) {
    if (!routes.live(static_cast<int>(row), C::kTile) || (row == 1 && block == 0))
        return NAN;
    const double v = std::ldexp(8.0 + static_cast<double>((row * 3 + block * 5) % 8), -5);
    return row % 9 == 2 ? 0 : row % 9 == 4 ? v * 256 : v;
}

template <class C>
static void rows_of(Kernel &k, const Routes &routes) {
    k.in("codes2", {C::kMaxRows, C::kCodeBytes}).integers(0, 255).late();
    k.in("scales2", {C::kMaxRows, C::kBlocks})
        .each([&routes](int, int64_t i) {
            return row_scale<C>(routes, i / C::kBlocks, i % C::kBlocks);
        })
        .late();
}

template <class C>
static void alphas(Kernel &k) {
    k.in("alpha", {C::kExperts}).each([](int, int64_t e) {
        return std::pow(10.0, static_cast<double>(e % 5) - 2) * 1.37;
    });
}

template <class C>
static void check_second(const char *name, bool none, uint32_t blocks) {
    Routes routes = make_routes(C::kRows, C::kExperts, C::kTopK, C::kTile, C::kMaxCtas, 3);
    if (none)
        routes.tiles = 0;
    Kernel k(name, unit_gemm2<C>, lathe_ref_moe_unit_gemm2);
    LATHE_CONSTANTS(k, C, kBlocks, kWidth, kTile, kUnitBytes);
    rows_of<C>(k, routes);
    k.in("units", {C::kExperts, C::kUnits, C::kUnitBytes}).each([](int, int64_t i) {
        return unit_byte<C>(i);
    });
    alphas<C>(k);
    metadata<C>(k, routes);
    k.out("rows", {C::kOutRows, C::kWidth});
    k.launch({blocks}, C::kWarps * 32, C::kShared);
    k.run();
    const uint16_t *rows = static_cast<const uint16_t *>(k.result("rows"));
    for (int i = 0; i < C::kOutRows * C::kWidth; i++)
        require(routes.live(i / C::kWidth, C::kTile) || rows[i] == 0xffff,
                "%s: padding row %d was written", name, i / C::kWidth);
}

int main() {
    for (double size : {0.1, 2.0, 300.0})
        check_first<OneRow>("one row", size, false, 2);
    check_first<OneRow>("no token", 1, true, 2);
    check_first<Few>("few", 2, false, 3);
    check_first<Compact>("compact", 2, false, 2);
    check_first<Long>("long", 2, false, 1);
    check_first<LongExpanded>("long, expanded", 0.1, false, 2);
    check_second<OneRow2>("one row", false, 2);
    check_second<OneRow2>("no token", true, 2);
    check_second<Few2>("few", false, 3);
    check_second<Compact2>("compact", false, 2);
    check_second<Long2>("long", false, 1);
    check_second<LongExpanded2>("long, expanded", false, 2);
    return finish("moe/unit_gemm");
}
