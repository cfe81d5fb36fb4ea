// SPDX-License-Identifier: Apache-2.0
// moe/nvfp4_gemm1: tiles that are full, nearly empty and past the end, experts without tokens, gate
// and up scalars apart by 8 in both directions, zero tokens, zero, largest, smallest and NaN block
// scales, every step width.
#include "harness.h"
#include "moe/nvfp4_gemm1.cuh"
#include "routes.h"

#include <cmath>

extern "C" void lathe_ref_moe_nvfp4_gemm1(lathe_ref *r);

template <int rows, int width, int columns, int experts, int top_k, int tile, int step, int warps,
          int held, int slices>
struct Config {
    static constexpr int kRows = rows, kCodeBytes = width / 2, kBlocks = width / 16;
    static constexpr int kExperts = experts, kGateUp = 2 * columns, kTopK = top_k, kTile = tile;
    static constexpr int kMaxCtas = rows * top_k; // ample
    static constexpr int kMaxRows = kMaxCtas * tile, kPermuted = kMaxRows + 1;
    static constexpr int kOutBytes = columns / 2, kOutBlocks = columns / 16;
    static constexpr int kWarps = warps, kHeld = held, kSlices = slices, kStep = step;
};
using Tiny = Config<8, 64, 64, 8, 2, 8, 64, 1, 1, 4>;
using Odd = Config<11, 80, 48, 5, 2, 8, 16, 2, 2, 2>; // 5 steps over 4: two passes, slices 2 + 1
using Wide = Config<20, 384, 48, 6, 3, 16, 128, 2, 1, 3>; // tiles of 16, two passes
using Real = Config<8, 1024, 64, 8, 2, 8, 128, 4, 2, 3>;

// Weight scales: mostly near 2^-4; some rows all zero, largest or smallest. The first gate slice of
// every third expert is zero, so that its products are zeros of both signs.
template <class C>
static double weight_scale(int64_t row, int64_t block) {
    if (row / C::kGateUp % 3 == 0 && row % C::kGateUp < 16)
        return 0;
    if (row % 11 == 3)
        return 0;
    if (row % 13 == 5)
        return block % 2 == 0 ? 448 : 0.001953125;
    return std::ldexp(8.0 + static_cast<double>((row * 5 + block * 3) % 8), -7);
}

// Token 1 is all zero, token 2 holds a NaN block, token 3 is large and token 4 tiny.
static double token_scale(int64_t token, int64_t block) {
    if (token == 2 && block == 1)
        return NAN;
    const double v = std::ldexp(8.0 + static_cast<double>((token * 3 + block * 5) % 8), -5);
    return token == 1 ? 0 : token == 3 ? v * 256 : token == 4 ? 0.001953125 : v;
}

template <class C>
static void check(const char *name, double size) {
    const Routes routes = make_routes(C::kRows, C::kExperts, C::kTopK, C::kTile, C::kMaxCtas, 3);
    Kernel k(name, nvfp4_gemm1<C>, lathe_ref_moe_nvfp4_gemm1);
    LATHE_CONSTANTS(k, C, kRows, kCodeBytes, kBlocks, kExperts, kGateUp, kPermuted, kMaxCtas,
                    kMaxRows, kOutBytes, kOutBlocks);
    LATHE_CONSTANTS(k, C, kTile);
    k.in("codes", {C::kRows, C::kCodeBytes}).integers(0, 255).late();
    k.in("scales", {C::kRows, C::kBlocks})
        .each([](int, int64_t i) { return token_scale(i / C::kBlocks, i % C::kBlocks); })
        .late();
    k.in("w13", {C::kExperts, C::kGateUp, C::kCodeBytes}).integers(0, 255);
    k.in("w13_scales", {C::kExperts, C::kGateUp, C::kBlocks}).each([](int, int64_t i) {
        return weight_scale<C>(i / C::kBlocks, i % C::kBlocks);
    });
    k.in("permuted_to_token", {C::kPermuted}).raw(routes.token.data()).late();
    k.in("cta_expert", {C::kMaxCtas}).raw(routes.expert.data()).late();
    k.in("cta_limit", {C::kMaxCtas}).raw(routes.limit.data()).late();
    k.in("ctas", {1}).fill(routes.tiles).late();
    const double alpha = size / std::sqrt(static_cast<double>(C::kBlocks * 16));
    k.in("gate_alpha", {C::kExperts}).each([alpha](int, int64_t e) {
        return alpha * (e % 2 == 0 ? 1 : 8) * (1 + 0.1 * static_cast<double>(e));
    });
    k.in("up_alpha", {C::kExperts}).each([alpha](int, int64_t e) {
        return alpha * (e % 2 == 0 ? 8 : 1) * (1 + 0.07 * static_cast<double>(e));
    });
    k.out("codes2", {C::kMaxRows, C::kOutBytes});
    k.out("scales2", {C::kMaxRows, C::kOutBlocks});
    k.launch({C::kMaxCtas, (C::kOutBlocks + C::kSlices - 1) / C::kSlices}, C::kWarps * 32,
             2 * C::kWarps * 2 * 8 * 20 * 4);
    k.allow("codes2", 1e-3, "design.md, what a number may be off by, line 2: rounding ties");
    k.run();
    const u8 *codes2 = static_cast<const u8 *>(k.result("codes2"));
    for (int i = 0; i < C::kMaxRows * C::kOutBytes; i++)
        require(routes.live(i / C::kOutBytes, C::kTile) || codes2[i] == 0xff,
                "%s: padding row %d was written", name, i / C::kOutBytes);
}

int main() {
    for (double size : {0.1, 2.0, 300.0}) {
        check<Tiny>("tiny", size);
        check<Odd>("odd", size);
        check<Wide>("tiles of 16", size);
        check<Real>("real", size);
    }
    return finish("moe/nvfp4_gemm1");
}
