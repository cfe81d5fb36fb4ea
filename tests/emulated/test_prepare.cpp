// SPDX-License-Identifier: Apache-2.0
// prepare/: residual_gate, expert_scalars, rope_table, expert_units. What they make is used by every step, so the
// bounds are tighter than the contract's.
#include "harness.h"
#include "prepare/expert_scalars.cuh"
#include "prepare/expert_units.cuh"
#include "prepare/residual_gate.cuh"
#include "prepare/rope_table.cuh"
#include "prepare/weight_scalars.cuh"

#include <cmath>

extern "C" {
#include "moe/nvfp4.ref.h"
#include "moe/unit.ref.h"
void lathe_ref_prepare_expert_units(lathe_ref *r);
void lathe_ref_prepare_residual_gate(lathe_ref *r);
void lathe_ref_prepare_expert_scalars(lathe_ref *r);
void lathe_ref_prepare_rope_table(lathe_ref *r);
void lathe_ref_prepare_weight_scalars(lathe_ref *r);
}

template <int kWidth>
struct Gate {
    static constexpr int kHidden = kWidth;
    static constexpr float kTemperature = 0.3f, kClamp = 1e-3f;
};

// alpha^2 + beta^2 = 1 wherever the clamp is idle: self-check 1 of the mathematics.
template <class C>
static void check_norm_kept(const Kernel &k) {
    const float *alpha = static_cast<const float *>(k.result("alpha"));
    const float *beta = static_cast<const float *>(k.result("beta"));
    for (int i = 0; i < C::kHidden; i++) {
        const double a = static_cast<double>(alpha[i]), b = static_cast<double>(beta[i]);
        const bool clamped = 1.0 - b * b <= 1.001e-3;
        require(clamped ? std::fabs(a * a - 1e-3) < 1e-6 : std::fabs(a * a + b * b - 1) < 3e-7,
                "channel %d: alpha %.9g, beta %.9g", i, a, b);
    }
}

template <class C>
static void check_gate(const char *name, double scale) {
    Kernel k(name, residual_gate<C>, lathe_ref_prepare_residual_gate);
    LATHE_CONSTANTS(k, C, kHidden, kTemperature, kClamp);
    k.in("gate", {C::kHidden}).normal(0, scale);
    k.out("alpha", {C::kHidden});
    k.out("beta", {C::kHidden});
    k.launch({(C::kHidden + 255) / 256}, 256, 0);
    k.allow("alpha", 1e-7, "design.md, line 1, tightened: two roundings to fp32");
    k.allow("beta", 6e-8, "design.md, line 1, tightened: one rounding to fp32");
    k.run();
    check_norm_kept<C>(k);
}

template <int kCount, int kRanks = 1, int kOwn = 0>
struct Experts {
    static constexpr int kExperts = kCount, kLocal = kCount / kRanks;
    static constexpr int kScaled = kOwn ? kLocal : kCount; // weight scales of the rank's own only
};

template <class C>
static void check_scalars(const char *name, int ranks = 1) {
    Kernel k(name, expert_scalars<C>, lathe_ref_prepare_expert_scalars);
    LATHE_CONSTANTS(k, C, kExperts, kScaled, kLocal);
    k.ranks(ranks);
    k.in("scale13", {C::kScaled, 2}).uniform(1e-5, 3e-3);
    k.in("input13", {C::kExperts, 2}).uniform(1e-4, 2e-2);
    k.in("scale2", {C::kScaled}).uniform(1e-5, 3e-3);
    k.in("input2", {C::kExperts}).uniform(1e-4, 0.3);
    k.in("rank", {2}).per_rank().each([ranks](int rank, int64_t i) {
        return i == 0 ? rank : ranks;
    });
    k.out("input_gscale", {1});
    for (const char *name_out : {"gate_alpha", "up_alpha", "alpha"})
        k.out(name_out, {C::kLocal});
    k.launch({1}, 32, 0);
    for (const char *exact : {"input_gscale", "gate_alpha", "up_alpha", "alpha"})
        k.allow(exact, 0, "defined to the bit: each product and quotient is rounded to fp32");
    k.run();
}

template <class C>
static void check_weight_scalars(const char *name, int ranks) {
    Kernel k(name, weight_scalars<C>, lathe_ref_prepare_weight_scalars);
    LATHE_CONSTANTS(k, C, kScaled, kLocal);
    k.ranks(ranks);
    k.in("scale13", {C::kScaled, 2}).uniform(1e-5, 3e-3);
    k.in("scale2", {C::kScaled}).uniform(1e-5, 3e-3);
    k.in("rank", {2}).per_rank().each([ranks](int rank, int64_t i) {
        return i == 0 ? rank : ranks;
    });
    for (const char *name_out : {"gate_alpha", "up_alpha", "alpha"}) {
        k.out(name_out, {C::kLocal});
        k.allow(name_out, 0, "defined to the bit: a copy");
    }
    k.launch({1}, 32, 0);
    k.run();
}

template <int kPositions_, int kWidth_>
struct Rope {
    static constexpr int kPositions = kPositions_, kWidth = kWidth_;
    static constexpr float kTheta = 500000.0f;
};

template <class C>
static void check_rope(const char *name) {
    Kernel k(name, rope_table<C>, lathe_ref_prepare_rope_table);
    LATHE_CONSTANTS(k, C, kPositions, kWidth, kTheta);
    k.out("table", {C::kPositions, C::kWidth});
    k.launch({(C::kPositions + 63) / 64}, 256, 0);
    k.allow("table", 6e-8, "design.md, line 1, tightened: one rounding to fp32");
    k.run();
}

template <int experts, int rows, int width, int chunks, int paired>
struct Units {
    static constexpr int kExperts = experts, kRows = rows, kPaired = paired, kChunks = chunks;
    static constexpr int kCodeBytes = width / 2, kBlocks = width / 16;
    static constexpr int kUnitBytes = chunks * 576, kSteps = width / (chunks * 64);
    static constexpr int kUnits = rows / 16 * kSteps;
};

// Every weight that a unit holds is the checkpoint's, whatever its scale.
template <class C>
static void check_decoded(const Kernel &k, const std::vector<u8> &codes,
                          const std::vector<u8> &scales) {
    const lathe_unit_shape shape = {C::kChunks, C::kSteps, C::kRows, C::kPaired};
    const u8 *units = static_cast<const u8 *>(k.result("units"));
    constexpr int width = C::kBlocks * 16;
    std::vector<double> found(width), wanted(width);
    for (int64_t row = 0; row < C::kExperts * C::kRows; row++) {
        lathe_nvfp4_row(codes.data(), scales.data(), row, width, wanted.data());
        lathe_unit_row(&shape, units, row, found.data());
        for (size_t i = 0; i < width; i++)
            require(found[i] == wanted[i], "row %d, k %d: %g, wanted %g", static_cast<int>(row),
                    static_cast<int>(i), found[i], wanted[i]);
    }
}

// `wrong`: a scale that no weight has, somewhere; -1: none.
template <class C>
static void check_units(const char *name, int wrong) {
    std::vector<u8> codes(C::kExperts * C::kRows * C::kCodeBytes);
    std::vector<u8> scales(C::kExperts * C::kRows * C::kBlocks);
    for (size_t i = 0; i < codes.size(); i++)
        codes[i] = static_cast<u8>((i * 2654435761u) >> 13);
    for (size_t i = 0; i < scales.size(); i++)
        scales[i] = static_cast<u8>(i * 5 % 127); // every one that is a number
    if (wrong >= 0)
        scales[scales.size() / 2] = static_cast<u8>(wrong);
    Kernel k(name, expert_units<C>, lathe_ref_prepare_expert_units);
    LATHE_CONSTANTS(k, C, kExperts, kRows, kBlocks, kUnits, kUnitBytes, kPaired);
    k.in("codes", {C::kExperts, C::kRows, C::kCodeBytes}).raw(codes.data());
    k.in("scales", {C::kExperts, C::kRows, C::kBlocks}).raw(scales.data());
    k.inout("faults", {16}).fill(0);
    k.out("units", {C::kExperts, C::kUnits, C::kUnitBytes});
    k.launch({3}, 64, 0);
    k.run();
    const bool refused = wrong >= 0 && wrong != 128;
    require(static_cast<const int *>(k.result("faults"))[0] == (refused ? 4 : 0), "%s: faults",
            name);
    if (!refused)
        check_decoded<C>(k, codes, scales);
}

int main() {
    check_gate<Gate<1>>("a gate of one channel", 0.1);
    check_gate<Gate<300>>("odd gate", 0.1);
    check_gate<Gate<8192>>("real gate", 0.1);
    check_gate<Gate<1000>>("gate far open and far shut", 10);
    check_scalars<Experts<1>>("one expert");
    check_scalars<Experts<37>>("odd experts");
    check_scalars<Experts<256>>("real experts");
    check_scalars<Experts<6, 2>>("experts of two ranks", 2);
    check_scalars<Experts<256, 4>>("real experts of four ranks", 4);
    check_scalars<Experts<37>>("all experts on each of two ranks", 2);
    check_scalars<Experts<6, 2, 1>>("two ranks, weight scales of their own experts", 2);
    check_weight_scalars<Experts<37>>("global scales, one rank", 1);
    check_weight_scalars<Experts<6, 2>>("global scales of two ranks", 2);
    check_weight_scalars<Experts<256, 4>>("global scales of four ranks", 4);
    check_weight_scalars<Experts<6, 2, 1>>("global scales of the ranks' own experts", 2);
    check_units<Units<2, 32, 64, 1, 1>>("short units, gates and ups", -1);
    check_units<Units<3, 48, 256, 2, 0>>("units of 128", -1);
    check_units<Units<2, 64, 512, 4, 1>>("units of 256, gates and ups", -1);
    check_units<Units<1, 64, 1024, 8, 1>>("real units, gates and ups", -1);
    check_units<Units<2, 32, 512, 8, 0>>("real units", -1);
    check_units<Units<2, 32, 512, 8, 0>>("a scale of minus zero", 128);
    check_units<Units<2, 32, 512, 8, 0>>("a negative scale", 129);
    check_units<Units<2, 32, 512, 8, 0>>("a NaN scale", 127);
    check_units<Units<2, 32, 512, 8, 0>>("a negative NaN scale", 255);
    check_rope<Rope<1, 2>>("one position");
    check_rope<Rope<131, 10>>("odd rope");
    check_rope<Rope<2100, 64>>("real rope");
    check_rope<Rope<70001, 2>>("far rope");
    return finish("prepare");
}
