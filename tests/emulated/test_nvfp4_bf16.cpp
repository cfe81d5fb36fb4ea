// SPDX-License-Identifier: Apache-2.0
// moe/nvfp4_gemm1_bf16 and moe/nvfp4_gemm2_bf16 (W4A16): tiles that are full, nearly empty and past
// the end, experts without tokens, gate and up scales apart by 8 in both directions, zero, NaN,
// large and tiny tokens, zero, largest and smallest block scales, every step width.
#include "harness.h"
#include "moe/nvfp4_gemm1_bf16.cuh"
#include "moe/nvfp4_gemm2_bf16.cuh"
#include "routes.h"

#include <cmath>

extern "C" {
void lathe_ref_moe_nvfp4_gemm1_bf16(lathe_ref *r);
void lathe_ref_moe_nvfp4_gemm2_bf16(lathe_ref *r);
}

// `inner`: the width that is summed over; `outer`: columns of the output.
template <int rows, int inner, int outer, int experts, int top_k, int tile, int step, int warps,
          int held, int slices>
struct Config {
    static constexpr int kRows = rows, kCodeBytes = inner / 2, kBlocks = inner / 16;
    static constexpr int kExperts = experts, kTopK = top_k, kTile = tile;
    static constexpr int kMaxCtas = rows * top_k; // ample
    static constexpr int kMaxRows = kMaxCtas * tile, kPermuted = kMaxRows + 1;
    static constexpr int kWarps = warps, kHeld = held, kSlices = slices, kStep = step;
};
template <class Base, int inner, int outer>
struct First : Base {
    static constexpr int kWidth = inner, kColumns = outer, kGateUp = 2 * outer;
};
template <class Base, int inner, int outer>
struct Second : Base {
    static constexpr int kInner = inner, kWidth = outer, kOutRows = Base::kMaxRows + 2;
};
template <template <class, int, int> class Which>
struct Sizes {
    using Tiny = Which<Config<8, 64, 64, 8, 2, 8, 64, 1, 1, 4>, 64, 64>;
    using Slim = Which<Config<3, 16, 32, 4, 2, 8, 16, 1, 1, 1>, 16, 32>;
    using Odd = Which<Config<11, 80, 96, 5, 2, 8, 16, 2, 2, 2>, 80, 96>; // two passes
    using Wide = Which<Config<20, 384, 96, 6, 3, 16, 128, 2, 1, 3>, 384, 96>;
    using Real = Which<Config<8, 1024, 64, 8, 2, 8, 128, 4, 2, 3>, 1024, 64>;
};

// Mostly near 2^-4; some rows all zero, largest or smallest.
static double weight_scale(int64_t row, int64_t block) {
    if (row % 11 == 3)
        return 0;
    if (row % 13 == 5)
        return block % 2 == 0 ? 448 : 0.001953125;
    return std::ldexp(8.0 + static_cast<double>((row * 5 + block * 3) % 8), -7);
}

// Row 1 is zeros of both signs, row 2 holds a NaN, row 3 is large and row 4 tiny.
static double activation(int64_t row, int64_t i) {
    const double v = std::sin(static_cast<double>(row * 131 + i) * 0.37);
    return row == 1                 ? (i % 2 == 0 ? 0.0 : -0.0)
           : row == 2 && i % 9 == 5 ? static_cast<double>(NAN)
           : row == 3               ? v * 1e3
           : row == 4               ? v * 1e-20
                                    : v;
}

template <class C>
static void routed(Kernel &k, const Routes &routes) {
    k.in("cta_expert", {C::kMaxCtas}).raw(routes.expert.data()).late();
    k.in("cta_limit", {C::kMaxCtas}).raw(routes.limit.data()).late();
    k.in("ctas", {1}).fill(routes.tiles).late();
}

static void require_padding_kept(const Kernel &k, const Routes &routes, const char *out, int tile,
                                 int rows, int width) {
    const uint16_t *bits = static_cast<const uint16_t *>(k.result(out));
    for (int i = 0; i < rows * width; i++)
        require(routes.live(i / width, tile) || bits[i] == 0xffff, "padding row %d was written",
                i / width);
}

template <class C>
static void check_first(const char *name, double size) {
    const Routes routes = make_routes(C::kRows, C::kExperts, C::kTopK, C::kTile, C::kMaxCtas, 3);
    Kernel k(name, nvfp4_gemm1_bf16<C>, lathe_ref_moe_nvfp4_gemm1_bf16);
    LATHE_CONSTANTS(k, C, kRows, kWidth, kCodeBytes, kBlocks, kExperts, kGateUp, kPermuted,
                    kMaxCtas, kMaxRows, kColumns, kTile);
    k.in("h1", {C::kRows, C::kWidth})
        .each([](int, int64_t i) { return activation(i / C::kWidth, i % C::kWidth); })
        .late();
    k.in("w13", {C::kExperts, C::kGateUp, C::kCodeBytes}).integers(0, 255);
    k.in("w13_scales", {C::kExperts, C::kGateUp, C::kBlocks}).each([](int, int64_t i) {
        return weight_scale(i / C::kBlocks, i % C::kBlocks);
    });
    k.in("permuted_to_token", {C::kPermuted}).raw(routes.token.data()).late();
    routed<C>(k, routes);
    const double alpha = size / std::sqrt(static_cast<double>(C::kWidth));
    k.in("gate_alpha", {C::kExperts}).each([alpha](int, int64_t e) {
        return alpha * (e % 2 == 0 ? 1 : 8) * (1 + 0.1 * static_cast<double>(e));
    });
    k.in("up_alpha", {C::kExperts}).each([alpha](int, int64_t e) {
        return alpha * (e % 2 == 0 ? 8 : 1) * (1 + 0.07 * static_cast<double>(e));
    });
    k.out("act", {C::kMaxRows, C::kColumns});
    k.launch({C::kMaxCtas, (C::kColumns / 16 + C::kSlices - 1) / C::kSlices}, C::kWarps * 32,
             2 * C::kWarps * 2 * 8 * 20 * 4);
    k.run();
    require_padding_kept(k, routes, "act", C::kTile, C::kMaxRows, C::kColumns);
}

template <class C>
static void check_second(const char *name) {
    const Routes routes = make_routes(C::kRows, C::kExperts, C::kTopK, C::kTile, C::kMaxCtas, 3);
    Kernel k(name, nvfp4_gemm2_bf16<C>, lathe_ref_moe_nvfp4_gemm2_bf16);
    LATHE_CONSTANTS(k, C, kMaxRows, kInner, kCodeBytes, kBlocks, kExperts, kWidth, kMaxCtas,
                    kOutRows, kTile);
    k.in("act", {C::kMaxRows, C::kInner})
        .each([&routes](int, int64_t i) {
            const int64_t row = i / C::kInner;
            return routes.live(static_cast<int>(row), C::kTile) ? activation(row, i % C::kInner)
                                                                : static_cast<double>(NAN);
        })
        .late();
    k.in("w2", {C::kExperts, C::kWidth, C::kCodeBytes}).integers(0, 255);
    k.in("w2_scales", {C::kExperts, C::kWidth, C::kBlocks}).each([](int, int64_t i) {
        return weight_scale(i / C::kBlocks, i % C::kBlocks);
    });
    k.in("alpha", {C::kExperts}).each([](int, int64_t e) {
        return std::pow(10.0, static_cast<double>(e % 5) - 2) * 1.37;
    });
    routed<C>(k, routes);
    k.out("rows", {C::kOutRows, C::kWidth});
    k.launch({C::kMaxCtas, (C::kWidth / 32 + C::kSlices - 1) / C::kSlices}, C::kWarps * 32,
             2 * C::kWarps * 2 * 8 * 20 * 4);
    k.run();
    require_padding_kept(k, routes, "rows", C::kTile, C::kOutRows, C::kWidth);
}

int main() {
    for (double size : {0.1, 2.0}) {
        check_first<Sizes<First>::Tiny>("first, tiny", size);
        check_first<Sizes<First>::Slim>("first, one block", size);
        check_first<Sizes<First>::Odd>("first, odd", size);
        check_first<Sizes<First>::Wide>("first, tiles of 16", size);
        check_first<Sizes<First>::Real>("first, real", size);
    }
    check_second<Sizes<Second>::Tiny>("second, tiny");
    check_second<Sizes<Second>::Slim>("second, one block");
    check_second<Sizes<Second>::Odd>("second, odd");
    check_second<Sizes<Second>::Wide>("second, tiles of 16");
    check_second<Sizes<Second>::Real>("second, real");
    return finish("moe/nvfp4_gemm1_bf16, moe/nvfp4_gemm2_bf16");
}
