// SPDX-License-Identifier: Apache-2.0
// moe/nvfp4_gemm2: tiles that are full, nearly empty and past the end, experts without tokens, NaN
// in padding rows, zero, largest, smallest and NaN block scales, every step width.
#include "harness.h"
#include "moe/nvfp4_gemm2.cuh"
#include "routes.h"

#include <cmath>

extern "C" void lathe_ref_moe_nvfp4_gemm2(lathe_ref *r);

template <int rows, int inner, int width, int experts, int top_k, int tile, int step, int warps,
          int held, int slices>
struct Config {
    static constexpr int kRows = rows, kCodeBytes = inner / 2, kBlocks = inner / 16;
    static constexpr int kExperts = experts, kTopK = top_k, kTile = tile, kWidth = width;
    static constexpr int kMaxCtas = rows * top_k; // ample
    static constexpr int kMaxRows = kMaxCtas * tile, kOutRows = kMaxRows + 2;
    static constexpr int kWarps = warps, kHeld = held, kSlices = slices, kStep = step;
};
using Tiny = Config<8, 64, 64, 8, 2, 8, 64, 1, 1, 1>;
using Slim = Config<3, 16, 32, 4, 2, 8, 16, 1, 1, 1>; // an intermediate width of one block
using Odd = Config<11, 80, 96, 5, 2, 8, 16, 2, 2, 2>; // 5 steps over 4: two passes, slices 2 + 1
using Wide = Config<20, 384, 96, 6, 3, 16, 128, 2, 1, 3>;
using Real = Config<8, 512, 256, 8, 2, 8, 128, 4, 1, 4>;

// Weight scales: mostly near 2^-4; some rows all zero, largest or smallest.
static double weight_scale(int64_t row, int64_t block) {
    if (row % 11 == 3)
        return 0;
    if (row % 13 == 5)
        return block % 2 == 0 ? 448 : 0.001953125;
    return std::ldexp(8.0 + static_cast<double>((row * 5 + block * 3) % 8), -7);
}

template <class C>
static double row_scale(const Routes &routes, int64_t row, int64_t block) {
    if (!routes.live(static_cast<int>(row), C::kTile) || (row == 1 && block == 0))
        return NAN;
    const double v = std::ldexp(8.0 + static_cast<double>((row * 3 + block * 5) % 8), -5);
    return row % 9 == 2 ? 0 : row % 9 == 4 ? v * 256 : v;
}

template <class C>
static void check(const char *name) {
    const Routes routes = make_routes(C::kRows, C::kExperts, C::kTopK, C::kTile, C::kMaxCtas, 3);
    Kernel k(name, nvfp4_gemm2<C>, lathe_ref_moe_nvfp4_gemm2);
    LATHE_CONSTANTS(k, C, kMaxRows, kCodeBytes, kBlocks, kExperts, kWidth, kMaxCtas, kOutRows,
                    kTile);
    k.in("codes2", {C::kMaxRows, C::kCodeBytes}).integers(0, 255).late();
    k.in("scales2", {C::kMaxRows, C::kBlocks})
        .each([&routes](int, int64_t i) {
            return row_scale<C>(routes, i / C::kBlocks, i % C::kBlocks);
        })
        .late();
    k.in("w2", {C::kExperts, C::kWidth, C::kCodeBytes}).integers(0, 255);
    k.in("w2_scales", {C::kExperts, C::kWidth, C::kBlocks}).each([](int, int64_t i) {
        return weight_scale(i / C::kBlocks, i % C::kBlocks);
    });
    k.in("alpha", {C::kExperts}).each([](int, int64_t e) {
        return std::pow(10.0, static_cast<double>(e % 5) - 2) * 1.37;
    });
    k.in("cta_expert", {C::kMaxCtas}).raw(routes.expert.data()).late();
    k.in("cta_limit", {C::kMaxCtas}).raw(routes.limit.data()).late();
    k.in("ctas", {1}).fill(routes.tiles).late();
    k.out("rows", {C::kOutRows, C::kWidth});
    k.launch({C::kMaxCtas, (C::kWidth / 32 + C::kSlices - 1) / C::kSlices}, C::kWarps * 32,
             2 * C::kWarps * 2 * 8 * 20 * 4);
    k.run();
    const uint16_t *rows = static_cast<const uint16_t *>(k.result("rows"));
    for (int i = 0; i < C::kOutRows * C::kWidth; i++)
        require(routes.live(i / C::kWidth, C::kTile) || rows[i] == 0xffff,
                "%s: padding row %d was written", name, i / C::kWidth);
}

int main() {
    check<Tiny>("tiny");
    check<Slim>("one block");
    check<Odd>("odd");
    check<Wide>("tiles of 16");
    check<Real>("real");
    return finish("moe/nvfp4_gemm2");
}
