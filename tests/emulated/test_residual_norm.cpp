// SPDX-License-Identifier: Apache-2.0
// boundary/residual_norm: the branch whole and as partials, with and without its gain and aux.
#include "harness.h"
#include "boundary/residual_norm.cuh"

extern "C" void lathe_ref_boundary_residual_norm(lathe_ref *r);

struct Common {
    static constexpr float kEps = 1e-5f, kBranchEps = 1e-8f;
    static constexpr int kRanks = 0, kColumns = 0, kBlocks = 1;
};
struct Tiny : Common {
    static constexpr int kRows = 1, kHidden = 64, kSplits = 0, kBranchCenter = 1, kCenter = 1;
    static constexpr int kHasBranchGain = 0, kHasAux = 0, kThreads = 32;
};
struct Odd : Common {
    static constexpr int kRows = 5, kHidden = 840, kSplits = 3, kBranchCenter = 1, kCenter = 0;
    static constexpr int kHasBranchGain = 1, kHasAux = 1, kThreads = 64;
};
struct Offset : Common { // gains that are no offsets from one
    static constexpr int kRows = 3, kHidden = 256, kSplits = 1, kBranchCenter = 0, kCenter = 1;
    static constexpr int kHasBranchGain = 1, kHasAux = 0, kThreads = 32;
};
struct Wide : Common {
    static constexpr int kRows = 32, kHidden = 512, kSplits = 8, kBranchCenter = 1, kCenter = 1;
    static constexpr int kHasBranchGain = 0, kHasAux = 1, kThreads = 64;
};
struct Real : Common {
    static constexpr int kRows = 2, kHidden = 8192, kSplits = 0, kBranchCenter = 1, kCenter = 1;
    static constexpr int kHasBranchGain = 1, kHasAux = 1, kThreads = 1024;
};
struct Gathered : Common { // by a library, of four ranks
    static constexpr int kRows = 3, kHidden = 832, kSplits = 0, kBranchCenter = 1, kCenter = 1;
    static constexpr int kHasBranchGain = 1, kHasAux = 0, kThreads = 64;
    static constexpr int kRanks = 4, kColumns = 208;
};

struct Clustered : Common { // rows over clusters, the last octets of a block are few
    static constexpr int kRows = 3, kHidden = 1280, kSplits = 2, kBranchCenter = 1, kCenter = 1;
    static constexpr int kHasBranchGain = 1, kHasAux = 1, kThreads = 32, kBlocks = 4;
};
struct RealClustered : Real {
    static constexpr int kThreads = 128, kBlocks = 8;
};
struct GatheredClustered : Gathered {
    static constexpr int kThreads = 32, kBlocks = 2;
};

template <class C>
static void check(const char *name, double branch_scale, double stream_scale) {
    Kernel k(name, residual_norm<C>, lathe_ref_boundary_residual_norm);
    LATHE_CONSTANTS(k, C, kRows, kHidden, kSplits, kBranchEps, kBranchCenter, kHasBranchGain, kEps,
                    kCenter, kHasAux, kThreads);
    LATHE_CONSTANTS(k, C, kRanks, kColumns, kBlocks);
    if (C::kColumns > 0) {
        k.null("branch");
        k.null("branch_partials");
    } else if (C::kSplits == 0) {
        k.in("branch", {C::kRows, C::kHidden}).normal(0, branch_scale);
        k.null("branch_partials");
    } else {
        k.null("branch");
        k.in("branch_partials", {C::kSplits, C::kRows, C::kHidden}).normal(0, branch_scale);
    }
    if (C::kColumns > 0)
        k.in("branch_columns", {C::kRanks, C::kRows, C::kColumns}).normal(0, branch_scale);
    else
        k.null("branch_columns");
    k.in("s", {C::kRows, C::kHidden}).normal(0.1, stream_scale);
    k.in("alpha", {C::kHidden}).uniform(0.03, 1);
    k.in("beta", {C::kHidden}).uniform(0, 1);
    if (C::kHasBranchGain == 1)
        k.in("branch_gain", {C::kHidden}).normal(1, 2);
    else
        k.null("branch_gain");
    k.in("gain", {C::kHidden}).normal(-2, 2);
    k.out("s_out", {C::kRows, C::kHidden});
    if (C::kHasAux == 1)
        k.out("aux", {C::kRows, C::kHidden});
    else
        k.null("aux");
    k.out("x", {C::kRows, C::kHidden});
    using Row = RowShape<C::kHidden, C::kThreads, C::kBlocks>;
    k.launch({C::kRows * C::kBlocks}, C::kThreads, 16 + 32 * Row::kPitch);
    k.cluster(C::kBlocks);
    k.run();
}

// The stream is the branch's opposite but for one part in a thousand: the sum of squares must not
// come from the difference of two great ones.
template <class C>
static void check_cancelled(const char *name) {
    Kernel k(name, residual_norm<C>, lathe_ref_boundary_residual_norm);
    LATHE_CONSTANTS(k, C, kRows, kHidden, kSplits, kBranchEps, kBranchCenter, kHasBranchGain, kEps,
                    kCenter, kHasAux, kThreads);
    LATHE_CONSTANTS(k, C, kRanks, kColumns, kBlocks);
    const auto sign = [](int64_t i) { return i * 7919 % 101 < 50 ? 1.0 : -1.0; };
    k.in("branch", {C::kRows, C::kHidden}).each([sign](int, int64_t i) { return 2 * sign(i); });
    k.null("branch_partials");
    k.null("branch_columns");
    k.in("s", {C::kRows, C::kHidden}).each([sign](int, int64_t i) {
        return -sign(i) * (1 + static_cast<double>(i % 17 - 8) / 8192);
    });
    k.in("alpha", {C::kHidden}).each([](int, int64_t) { return 0.75; });
    k.in("beta", {C::kHidden}).each([](int, int64_t) { return 0.75; });
    if (C::kHasBranchGain == 1)
        k.in("branch_gain", {C::kHidden}).each([](int, int64_t) { return 0.0; });
    else
        k.null("branch_gain");
    k.in("gain", {C::kHidden}).normal(-2, 2);
    k.out("s_out", {C::kRows, C::kHidden});
    if (C::kHasAux == 1)
        k.out("aux", {C::kRows, C::kHidden});
    else
        k.null("aux");
    k.out("x", {C::kRows, C::kHidden});
    using Row = RowShape<C::kHidden, C::kThreads, C::kBlocks>;
    k.launch({C::kRows * C::kBlocks}, C::kThreads, 16 + 32 * Row::kPitch);
    k.cluster(C::kBlocks);
    k.run();
}

int main() {
    check<Tiny>("tiny", 1, 1);
    check<Tiny>("tiny, a branch of nothing", 0, 1);
    check<Tiny>("tiny, a faint branch", 1e-5, 30);
    check<Odd>("odd", 20, 0.01);
    check<Offset>("offset", 1, 1);
    check<Wide>("wide", 0.5, 3);
    check<Gathered>("gathered columns", 2, 1);
    check<Real>("real", 2, 1);
    check<Clustered>("rows over clusters", 2, 1);
    check<Clustered>("rows over clusters, a branch of nothing", 0, 1);
    check<GatheredClustered>("rows over clusters, gathered columns", 2, 1);
    check<RealClustered>("real, rows over clusters", 2, 1);
    check_cancelled<Tiny>("a stream that nearly cancels");
    check_cancelled<RealClustered>("a stream that nearly cancels, over clusters");
    return finish("boundary/residual_norm");
}
