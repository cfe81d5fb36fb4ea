// SPDX-License-Identifier: Apache-2.0
// moe/bf16_gemm1 and moe/bf16_gemm2: tiles that are full, nearly empty and past the end, experts
// without tokens, NaN in padding rows and in one token, tokens and weights of very different size,
// both step widths.
#include "harness.h"
#include "moe/bf16_gemm1.cuh"
#include "moe/bf16_gemm2.cuh"
#include "routes.h"

#include <cmath>

extern "C" void lathe_ref_moe_bf16_gemm1(lathe_ref *r);
extern "C" void lathe_ref_moe_bf16_gemm2(lathe_ref *r);

template <int rows, int width, int columns, int experts, int top_k, int tile, int step, int warps,
          int held, int slices>
struct Config {
    static constexpr int kRows = rows, kWidth = width, kColumns = columns, kExperts = experts;
    static constexpr int kGateUp = 2 * columns, kTopK = top_k, kTile = tile;
    static constexpr int kMaxCtas = rows * top_k; // ample
    static constexpr int kMaxRows = kMaxCtas * tile, kPermuted = kMaxRows + 1;
    static constexpr int kOutRows = kMaxRows + 2;
    static constexpr int kWarps = warps, kHeld = held, kSlices = slices, kStep = step;
};
using Tiny = Config<8, 64, 64, 8, 2, 8, 32, 1, 1, 4>;
using Odd = Config<11, 80, 96, 5, 2, 8, 16, 2, 2, 2>; // 5 steps over 4: two passes
using Wide = Config<20, 384, 96, 6, 3, 16, 32, 2, 4, 3>;
using Real = Config<8, 1024, 64, 8, 2, 8, 32, 4, 2, 3>;

static double weight(int64_t i, int64_t width) {
    const int64_t row = i / width;
    const double size = row % 11 == 3 ? 0 : row % 13 == 5 ? 30 : 1;
    return size * std::sin(static_cast<double>(i) * 0.731) / std::sqrt(static_cast<double>(width));
}

static double activation(int64_t row, int64_t i) {
    const double v = std::cos(static_cast<double>(i) * 0.377) * 3;
    return row == 1                  ? 0
           : row == 2 && i % 50 == 7 ? NAN
           : row == 3                ? v * 1e3
           : row == 4                ? v * 1e-6
                                     : v;
}

template <class C>
static void check_padding(const char *name, const Routes &routes, const void *result, int rows) {
    const uint16_t *out = static_cast<const uint16_t *>(result);
    for (int i = 0; i < rows * C::kColumns; i++)
        require(routes.live(i / C::kColumns, C::kTile) || out[i] == 0xffff,
                "%s: padding row %d was written", name, i / C::kColumns);
}

template <class C>
static void tiles(Kernel &k, const Routes &routes) {
    k.in("cta_expert", {C::kMaxCtas}).raw(routes.expert.data()).late();
    k.in("cta_limit", {C::kMaxCtas}).raw(routes.limit.data()).late();
    k.in("ctas", {1}).fill(routes.tiles).late();
}

template <class C>
static void check_first(const char *name) {
    const Routes routes = make_routes(C::kRows, C::kExperts, C::kTopK, C::kTile, C::kMaxCtas, 3);
    Kernel k(name, bf16_gemm1<C>, lathe_ref_moe_bf16_gemm1);
    LATHE_CONSTANTS(k, C, kRows, kWidth, kExperts, kGateUp, kPermuted, kMaxCtas, kMaxRows, kColumns,
                    kTile);
    k.in("h1", {C::kRows, C::kWidth})
        .each([](int, int64_t i) { return activation(i / C::kWidth, i); })
        .late();
    k.in("w13", {C::kExperts, C::kGateUp, C::kWidth}).each([](int, int64_t i) {
        return weight(i, C::kWidth);
    });
    k.in("permuted_to_token", {C::kPermuted}).raw(routes.token.data()).late();
    tiles<C>(k, routes);
    k.out("act", {C::kMaxRows, C::kColumns});
    k.launch({C::kMaxCtas, (C::kColumns / 16 + C::kSlices - 1) / C::kSlices}, C::kWarps * 32,
             2 * C::kWarps * 2 * 8 * 20 * 4);
    k.run();
    check_padding<C>(name, routes, k.result("act"), C::kMaxRows);
}

template <class C>
static void check_second(const char *name) {
    const Routes routes = make_routes(C::kRows, C::kExperts, C::kTopK, C::kTile, C::kMaxCtas, 3);
    Kernel k(name, bf16_gemm2<C>, lathe_ref_moe_bf16_gemm2);
    LATHE_CONSTANTS(k, C, kMaxRows, kWidth, kExperts, kColumns, kMaxCtas, kOutRows, kTile);
    k.in("act", {C::kMaxRows, C::kWidth})
        .each([&routes](int, int64_t i) {
            const int64_t row = i / C::kWidth;
            return routes.live(static_cast<int>(row), C::kTile) ? activation(row, i)
                                                                : static_cast<double>(NAN);
        })
        .late();
    k.in("w2", {C::kExperts, C::kColumns, C::kWidth}).each([](int, int64_t i) {
        return weight(i, C::kWidth);
    });
    tiles<C>(k, routes);
    k.out("rows", {C::kOutRows, C::kColumns});
    k.launch({C::kMaxCtas, (C::kColumns / 32 + C::kSlices - 1) / C::kSlices}, C::kWarps * 32,
             2 * C::kWarps * 2 * 8 * 20 * 4);
    k.run();
    check_padding<C>(name, routes, k.result("rows"), C::kOutRows);
}

int main() {
    check_first<Tiny>("tiny, first");
    check_first<Odd>("odd, first");
    check_first<Wide>("tiles of 16, first");
    check_first<Real>("real, first");
    check_second<Tiny>("tiny, second");
    check_second<Odd>("odd, second");
    check_second<Wide>("tiles of 16, second");
    check_second<Real>("real, second");
    return finish("moe/bf16_gemm1, moe/bf16_gemm2");
}
