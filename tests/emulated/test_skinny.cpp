// SPDX-License-Identifier: Apache-2.0
// gemm/skinny: both forms, ragged tiles, slices and passes, one to 32 tokens, weights to registers
// or through a ring, with the same bits, and as the middle of a stream.
#include "harness.h"
#include "boundary/norm.cuh"
#include "boundary/residual_norm.cuh"
#include "gemm/skinny.cuh"

#include <cmath>

extern "C" {
void lathe_ref_boundary_norm(lathe_ref *r);
void lathe_ref_boundary_residual_norm(lathe_ref *r);
void lathe_ref_gemm_skinny(lathe_ref *r);
}

struct Tiny {
    static constexpr int kRows = 1, kN = 64, kK = 64, kPartials = 0, kSplits = 1;
    static constexpr int kTiles = 1, kWarps = 1, kSteps = 1, kStages = 0;
};
struct Sliced { // the last slice of k is empty
    static constexpr int kRows = 8, kN = 64, kK = 160, kPartials = 1, kSplits = 4;
    static constexpr int kTiles = 1, kWarps = 2, kSteps = 1, kStages = 0;
};
struct Odd { // half a step of k, half a block of rows, idle warps
    static constexpr int kRows = 5, kN = 48, kK = 80, kPartials = 1, kSplits = 2;
    static constexpr int kTiles = 2, kWarps = 2, kSteps = 1, kStages = 0;
};
struct Many { // passes of unequal work
    static constexpr int kRows = 32, kN = 80, kK = 464, kPartials = 0, kSplits = 1;
    static constexpr int kTiles = 4, kWarps = 4, kSteps = 2, kStages = 0;
};
struct Seventeen {
    static constexpr int kRows = 17, kN = 16, kK = 16, kPartials = 0, kSplits = 1;
    static constexpr int kTiles = 1, kWarps = 1, kSteps = 2, kStages = 0;
};
struct Real {
    static constexpr int kRows = 8, kN = 256, kK = 4096, kPartials = 1, kSplits = 2;
    static constexpr int kTiles = 2, kWarps = 8, kSteps = 2, kStages = 0;
};

struct Around { // the ring goes round more than once, and so does the window
    static constexpr int kRows = 8, kN = 80, kK = 256, kPartials = 1, kSplits = 2;
    static constexpr int kTiles = 5, kWarps = 2, kSteps = 2, kStages = 3;
};
struct Passes { // sums of two tiles live through four passes; tokens ahead
    static constexpr int kRows = 11, kN = 64, kK = 256, kPartials = 0, kSplits = 1;
    static constexpr int kTiles = 2, kWarps = 2, kSteps = 1, kStages = 3;
};
struct PassesOfMany { // the most tokens; those of a pass come with it
    static constexpr int kRows = 32, kN = 32, kK = 192, kPartials = 1, kSplits = 1;
    static constexpr int kTiles = 1, kWarps = 3, kSteps = 1, kStages = 1;
};
struct Wide { // a piece above half the window
    static constexpr int kRows = 8, kN = 32, kK = 4096, kPartials = 0, kSplits = 1;
    static constexpr int kTiles = 1, kWarps = 8, kSteps = 8, kStages = 2;
};

// A ring changes no bit.
template <class C>
struct Registers : C {
    static constexpr int kStages = 0;
};

template <class C>
static void describe(Kernel &k) {
    LATHE_CONSTANTS(k, C, kRows, kN, kK, kPartials, kSplits, kTiles, kWarps, kSteps, kStages);
    k.in("w", {C::kN, C::kK}).normal(0, 0.3);
    if (C::kPartials == 0) {
        k.out("y", {C::kRows, C::kN});
        k.null("y_partials");
    } else {
        k.null("y");
        k.out("y_partials", {C::kSplits, C::kRows, C::kN});
    }
    using S =
        Stream<C::kRows, C::kN, C::kK, C::kSplits, C::kTiles, C::kWarps, C::kSteps, C::kStages>;
    k.launch({(C::kN + S::kBlockRows - 1) / S::kBlockRows, C::kSplits}, S::kThreads,
             S::kPartBytes + C::kStages * (16 * (C::kWarps * C::kSteps * 64 + 64) + 16));
}

template <class C>
static void check(const char *name) {
    Kernel k(name, skinny_gemm<C>, lathe_ref_gemm_skinny);
    k.in("x", {C::kRows, C::kK}).normal(0.1, 2);
    describe<C>(k);
    k.run();
}

template <class C>
static void check_ring(const char *name) {
    Kernel ring(name, skinny_gemm<C>, lathe_ref_gemm_skinny);
    ring.in("x", {C::kRows, C::kK}).normal(0.1, 2).late();
    describe<C>(ring);
    ring.run();
    Kernel registers(name, skinny_gemm<Registers<C>>, lathe_ref_gemm_skinny);
    registers.in("x", {C::kRows, C::kK}).normal(0.1, 2);
    describe<Registers<C>>(registers);
    registers.run();
    const char *y = C::kPartials == 0 ? "y" : "y_partials";
    require(std::memcmp(ring.result(y), registers.result(y),
                        static_cast<size_t>(C::kSplits * C::kRows * C::kN) *
                            (C::kPartials == 0 ? 2 : 4)) == 0,
            "%s: a ring changes bits", name);
}

// A token of NaN spoils its own row only.
static void check_nan() {
    Kernel k("one token of NaN", skinny_gemm<Many>, lathe_ref_gemm_skinny);
    k.in("x", {Many::kRows, Many::kK}).each([](int, int64_t i) {
        return i / Many::kK == 9 ? NAN : static_cast<double>(i % 7) - 3;
    });
    describe<Many>(k);
    k.run();
}

struct Norm {
    static constexpr int kRows = 3, kHidden = 128, kCenter = 1, kThreads = 32;
    static constexpr int kBlocks = 2; // a cluster: its launch is early too
    static constexpr float kEps = 1e-5f;
};
struct Middle {
    static constexpr int kRows = 3, kN = 128, kK = 128, kPartials = 1, kSplits = 2;
    static constexpr int kTiles = 2, kWarps = 2, kSteps = 1, kStages = 2;
};
struct End {
    static constexpr int kRows = 3, kHidden = 128, kSplits = 2, kBranchCenter = 1, kCenter = 1;
    static constexpr int kHasBranchGain = 0, kHasAux = 0, kThreads = 32, kRanks = 0, kColumns = 0;
    static constexpr int kBlocks = 2;
    static constexpr float kEps = 1e-5f, kBranchEps = 1e-8f;
};

// Norm, product and residual in a stream, each launched early.
static void check_stream() {
    Kernel first("norm of the stream", norm<Norm>, lathe_ref_boundary_norm);
    LATHE_CONSTANTS(first, Norm, kRows, kHidden, kCenter, kEps, kThreads, kBlocks);
    first.in("s", {Norm::kRows, Norm::kHidden}).normal(0, 2);
    first.in("gain", {Norm::kHidden}).normal(0, 0.5);
    first.out("x", {Norm::kRows, Norm::kHidden});
    first.launch({Norm::kRows * Norm::kBlocks}, Norm::kThreads,
                 16 + 32 * RowShape<Norm::kHidden, Norm::kThreads, Norm::kBlocks>::kPitch);
    first.cluster(Norm::kBlocks);

    Kernel middle("product of the stream", skinny_gemm<Middle>, lathe_ref_gemm_skinny);
    middle.same_as("x", first, "x");
    describe<Middle>(middle);
    middle.early();

    Kernel last("residual of the stream", residual_norm<End>, lathe_ref_boundary_residual_norm);
    LATHE_CONSTANTS(last, End, kRows, kHidden, kSplits, kBranchEps, kBranchCenter, kHasBranchGain,
                    kEps, kCenter, kHasAux, kThreads);
    LATHE_CONSTANTS(last, End, kRanks, kColumns, kBlocks);
    last.null("branch");
    last.same_as("branch_partials", middle, "y_partials");
    last.null("branch_columns");
    last.same_as("s", first, "s");
    last.in("alpha", {End::kHidden}).uniform(0, 1);
    last.in("beta", {End::kHidden}).uniform(0, 1);
    last.null("branch_gain");
    last.in("gain", {End::kHidden}).normal(0, 0.5);
    last.out("s_out", {End::kRows, End::kHidden});
    last.null("aux");
    last.out("x", {End::kRows, End::kHidden});
    last.launch({End::kRows * End::kBlocks}, End::kThreads,
                16 + 32 * RowShape<End::kHidden, End::kThreads, End::kBlocks>::kPitch);
    last.cluster(End::kBlocks);
    last.early();
    first.seeds(8);
    harness::run({&first, &middle, &last});
}

int main() {
    check<Tiny>("tiny");
    check<Sliced>("sliced");
    check<Odd>("odd");
    check<Many>("many");
    check<Seventeen>("seventeen tokens");
    check<Real>("real");
    check_ring<Around>("ring around");
    check_ring<Passes>("ring of passes");
    check_ring<PassesOfMany>("ring of passes, many tokens");
    check_ring<Wide>("ring of wide pieces");
    check_nan();
    check_stream();
    return finish("gemm/skinny");
}
