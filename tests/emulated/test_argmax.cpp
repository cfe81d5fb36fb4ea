// SPDX-License-Identifier: Apache-2.0
// head/argmax: ties, NaN, infinities, one block a row and many, three launches on the same
// counters.
#include "harness.h"
#include "head/argmax.cuh"

#include <cmath>

extern "C" void lathe_ref_head_argmax(lathe_ref *r);

struct Tiny {
    static constexpr int kRows = 1, kVocab = 4, kBlocks = 1, kThreads = 32;
};
struct Odd { // a block with no logits
    static constexpr int kRows = 9, kVocab = 332, kBlocks = 3, kThreads = 64;
};
struct Real {
    static constexpr int kRows = 4, kVocab = 20000, kBlocks = 16, kThreads = 64;
};
struct Pairs { // many rows whose last block needs what the other has just left
    static constexpr int kRows = 32, kVocab = 256, kBlocks = 2, kThreads = 32;
};
struct One {
    static constexpr int kRows = 3, kVocab = 1000, kBlocks = 1, kThreads = 256;
};

// What row r holds at i. Rows: noise, all equal, all NaN, NaN but for two, -inf, a late tie, zeros
// of both signs, +inf.
static double logit(int64_t row, int64_t i, int64_t n) {
    switch (row % 8) {
    case 1:
        return 20.0;
    case 2:
        return NAN;
    case 3:
        return i == n - 1 || i == n / 2 ? -3.0 : NAN;
    case 4:
        return -INFINITY;
    case 5:
        return i == n - 2 || i == n / 3 ? 7.0 : -static_cast<double>(i % 5);
    case 6:
        return i == 0 ? -1.0 : i % 2 == 1 ? -0.0 : 0.0;
    case 7:
        return i == n - 3 ? INFINITY : NAN;
    default:
        return static_cast<double>((i + 31 * row) * 7919 % 10007) / 100;
    }
}

template <class C>
static void check(const char *name, int64_t first_row) {
    Kernel k(name, argmax<C>, lathe_ref_head_argmax);
    LATHE_CONSTANTS(k, C, kRows, kVocab, kBlocks, kThreads);
    k.in("logits", {C::kRows, C::kVocab}).each([=](int, int64_t i) {
        return logit(first_row + i / C::kVocab, i % C::kVocab, C::kVocab);
    });
    k.workspace("candidates", {C::kRows, C::kBlocks, 2});
    k.workspace("counters", {C::kRows}, true);
    k.out("token", {C::kRows});
    k.launch({C::kBlocks, C::kRows}, C::kThreads, 384);
    k.repeat(3);
    k.early();
    k.run();
}

int main() {
    for (int64_t row = 0; row < 8; row++) {
        check<Tiny>("tiny", row);
        check<One>("one block", row);
    }
    for (int64_t row = 0; row < 4; row++)
        check<Pairs>("pairs of blocks", 8 * row);
    check<Odd>("odd", 0);
    check<Real>("real", 0);
    check<Real>("real, the other rows", 4);
    return finish("head/argmax");
}
