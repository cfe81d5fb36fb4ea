// SPDX-License-Identifier: Apache-2.0
// boundary/norm at three sizes.
#include "harness.h"
#include "boundary/norm.cuh"

extern "C" void lathe_ref_boundary_norm(lathe_ref *r);

struct Tiny {
    static constexpr int kRows = 3, kHidden = 64, kCenter = 1, kThreads = 32, kBlocks = 1;
    static constexpr float kEps = 1e-5f;
};
struct Odd {
    static constexpr int kRows = 5, kHidden = 1032, kCenter = 0, kThreads = 128, kBlocks = 1;
    static constexpr float kEps = 1e-6f;
};
struct Real {
    static constexpr int kRows = 8, kHidden = 8192, kCenter = 1, kThreads = 512, kBlocks = 1;
    static constexpr float kEps = 1e-5f;
};
struct Clustered : Real { // rows over clusters
    static constexpr int kThreads = 128, kBlocks = 8;
};

template <class C>
static void check(const char *name) {
    Kernel k(name, norm<C>, lathe_ref_boundary_norm);
    LATHE_CONSTANTS(k, C, kRows, kHidden, kCenter, kEps, kThreads, kBlocks);
    k.in("s", {C::kRows, C::kHidden}).normal(0, 2).late();
    k.in("gain", {C::kHidden}).normal(0, 0.1);
    k.out("x", {C::kRows, C::kHidden});
    using Row = RowShape<C::kHidden, C::kThreads, C::kBlocks>;
    k.launch({C::kRows * C::kBlocks}, C::kThreads, 16 + 32 * Row::kPitch);
    k.cluster(C::kBlocks);
    k.repeat(2);
    k.early();
    k.run();
}

int main() {
    check<Tiny>("tiny");
    check<Odd>("odd");
    check<Real>("real");
    check<Clustered>("rows over clusters");
    return finish("boundary/norm");
}
