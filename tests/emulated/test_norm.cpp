// SPDX-License-Identifier: Apache-2.0
// boundary/norm at three sizes.
#include "harness.h"
#include "boundary/norm.cuh"

extern "C" void lathe_ref_boundary_norm(lathe_ref *r);

struct Tiny {
    static constexpr int kRows = 3, kHidden = 64, kCenter = 1, kThreads = 32;
    static constexpr float kEps = 1e-5f;
};
struct Odd {
    static constexpr int kRows = 5, kHidden = 1032, kCenter = 0, kThreads = 128;
    static constexpr float kEps = 1e-6f;
};
struct Real {
    static constexpr int kRows = 8, kHidden = 8192, kCenter = 1, kThreads = 512;
    static constexpr float kEps = 1e-5f;
};

template <class C>
static void check(const char *name) {
    Kernel k(name, norm<C>, lathe_ref_boundary_norm);
    LATHE_CONSTANTS(k, C, kRows, kHidden, kCenter, kEps);
    k.in("s", {C::kRows, C::kHidden}).normal(0, 2).late();
    k.in("gain", {C::kHidden}).normal(0, 0.1);
    k.out("x", {C::kRows, C::kHidden});
    k.launch({C::kRows}, C::kThreads, 384);
    k.repeat(2);
    k.early();
    k.run();
}

int main() {
    check<Tiny>("tiny");
    check<Odd>("odd");
    check<Real>("real");
    return finish("boundary/norm");
}
