// SPDX-License-Identifier: Apache-2.0
// embedding/embed: rows, tokens outside the table, and the fault word.
#include "harness.h"
#include "embedding/embed.cuh"

extern "C" void lathe_ref_embedding_embed(lathe_ref *r);

struct Tiny {
    static constexpr int kRows = 1, kVocab = 3, kHidden = 8, kThreads = 32;
    static constexpr float kEps = 1e-5f;
};
struct Odd {
    static constexpr int kRows = 7, kVocab = 11, kHidden = 1032, kThreads = 64;
    static constexpr float kEps = 1e-5f;
};
struct Real {
    static constexpr int kRows = 32, kVocab = 50, kHidden = 2048, kThreads = 256;
    static constexpr float kEps = 1e-5f;
};

template <class C>
static void check(const char *name, int low, int high, int fault_before) {
    Kernel k(name, embed<C>, lathe_ref_embedding_embed);
    LATHE_CONSTANTS(k, C, kRows, kVocab, kHidden, kEps, kThreads);
    k.in("tokens", {C::kRows}).integers(low, high);
    k.in("table", {C::kVocab, C::kHidden}).each([](int, int64_t i) {
        return i / C::kHidden == 1 ? 0.0 : static_cast<double>(i * 7919 % 1009) / 8000 - 0.06;
    });
    k.inout("faults", {16}).each([=](int, int64_t i) { return i == 0 ? fault_before : 0; });
    k.out("s", {C::kRows, C::kHidden});
    k.launch({C::kRows}, C::kThreads, 256);
    k.allow("s", 0, "the scale is formed in double on both sides, so rounding to bf16 agrees");
    k.repeat(2);
    k.early();
    k.run();
}

struct Three : Odd {
    static constexpr int kRows = 3;
};

// One bad token of three: its row is zero, the others are not, the other bits of the word stay.
static void check_fault() {
    using C = Three;
    Kernel k("a token outside the table", embed<C>, lathe_ref_embedding_embed);
    LATHE_CONSTANTS(k, C, kRows, kVocab, kHidden, kEps, kThreads);
    const int tokens[3] = {10, 11, 0};
    k.in("tokens", {3}).raw(tokens);
    k.in("table", {C::kVocab, C::kHidden}).normal(0, 0.06);
    k.inout("faults", {16}).each([](int, int64_t i) { return i == 0 ? 2 : 0; });
    k.out("s", {3, C::kHidden});
    k.launch({3}, C::kThreads, 256);
    k.run();
    const int *faults = static_cast<const int *>(k.result("faults"));
    require(faults[0] == 3, "the fault word is %d, wanted 3", faults[0]);
    const float *s = static_cast<const float *>(k.result("s"));
    for (int i = 0; i < C::kHidden; i++)
        require(s[C::kHidden + i] == 0.0f, "element %d of the bad token's row is not zero", i);
}

int main() {
    check<Tiny>("tiny", 0, 2, 0);
    check<Tiny>("tiny, no such token", -1, -1, 0);
    check<Odd>("odd", 0, 10, 0);
    check<Odd>("odd, some tokens outside", -3, 14, 2);
    check<Odd>("odd, far outside", 2147483647, 2147483647, 0);
    check<Real>("real", 0, 49, 0);
    check_fault();
    return finish("embedding/embed");
}
