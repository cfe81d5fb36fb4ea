// SPDX-License-Identifier: Apache-2.0
// head/logits: multiplier and soft cap, from small products to saturated ones.
#include "harness.h"
#include "head/logits.cuh"

extern "C" void lathe_ref_head_logits(lathe_ref *r);

struct Common {
    static constexpr float kMultiplier = 0.17677669529663687f, kCap = 20.0f;
};
struct Tiny : Common {
    static constexpr int kRows = 1, kN = 16, kK = 32, kTiles = 1, kWarps = 1, kSteps = 1;
};
struct Odd : Common {
    static constexpr int kRows = 9, kN = 176, kK = 112, kTiles = 4, kWarps = 2, kSteps = 1;
};
struct Ragged : Common { // a last tile of 12 rows
    static constexpr int kRows = 3, kN = 156, kK = 112, kTiles = 2, kWarps = 2, kSteps = 1;
};
struct Sliver : Common { // one of 4, less than half a tile
    static constexpr int kRows = 2, kN = 20, kK = 48, kTiles = 1, kWarps = 1, kSteps = 2;
};
struct Real : Common {
    static constexpr int kRows = 8, kN = 512, kK = 1024, kTiles = 4, kWarps = 8, kSteps = 2;
};

template <class C>
static void check(const char *name, double scale) {
    Kernel k(name, capped_logits<C>, lathe_ref_head_logits);
    LATHE_CONSTANTS(k, C, kRows, kN, kK, kMultiplier, kCap, kTiles, kWarps, kSteps);
    k.in("x", {C::kRows, C::kK}).normal(0, scale);
    k.in("w", {C::kN, C::kK}).normal(0, 0.5);
    k.out("logits", {C::kRows, C::kN});
    using S = Stream<C::kRows, C::kN, C::kK, 1, C::kTiles, C::kWarps, C::kSteps, 0>;
    k.launch({(C::kN + S::kBlockRows - 1) / S::kBlockRows}, S::kThreads,
             C::kWarps * C::kRows * S::kPitch * 4);
    k.repeat(2);
    k.early();
    k.run();
}

int main() {
    check<Tiny>("tiny", 1);
    check<Odd>("odd", 3);
    check<Ragged>("ragged", 2);
    check<Sliver>("sliver", 1);
    check<Real>("real", 1);
    check<Real>("real, saturated", 1000);
    check<Real>("real, faint", 1e-4);
    return finish("head/logits");
}
