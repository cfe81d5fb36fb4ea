// SPDX-License-Identifier: Apache-2.0
// boundary/residual_norm: the branch whole and as partials, with and without its gain and aux.
#include "harness.h"
#include "boundary/residual_norm.cuh"

extern "C" void lathe_ref_boundary_residual_norm(lathe_ref *r);

struct Common {
    static constexpr float kEps = 1e-5f, kBranchEps = 1e-8f;
    static constexpr int kRanks = 0, kColumns = 0;
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

template <class C>
static void check(const char *name, double branch_scale, double stream_scale) {
    Kernel k(name, residual_norm<C>, lathe_ref_boundary_residual_norm);
    LATHE_CONSTANTS(k, C, kRows, kHidden, kSplits, kBranchEps, kBranchCenter, kHasBranchGain, kEps,
                    kCenter, kHasAux, kThreads);
    LATHE_CONSTANTS(k, C, kRanks, kColumns);
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
    k.launch({C::kRows}, C::kThreads, 256);
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
    return finish("boundary/residual_norm");
}
