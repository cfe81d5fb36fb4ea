// SPDX-License-Identifier: Apache-2.0
// attention/qkv_front: head widths, whole and partial inputs, with and without RoPE, rows that are
// padding, and an early start behind the kernel that makes its input.
#include "harness.h"
#include "attention/qkv_front.cuh"

#include <cmath>

extern "C" void lathe_ref_attention_qkv_front(lathe_ref *r);

struct Tiny {
    static constexpr int kRows = 3, kHeads = 4, kKvHeads = 2, kDim = 32, kWidth = 384, kSplits = 0,
                         kPageTokens = 16, kPacked = 64, kRope = 1, kPositions = 64, kThreads = 64;
    static constexpr float kEps = 1e-5f;
};
struct Bare : Tiny {
    static constexpr int kRope = 0, kPositions = 0;
};
struct Partials : Tiny {
    static constexpr int kSplits = 3;
};
struct Single : Partials {
    static constexpr int kSplits = 1, kRows = 1;
};
struct Narrow : Tiny {
    static constexpr int kRows = 2, kDim = 16, kHeads = 3, kKvHeads = 3, kWidth = 192, kPacked = 32;
};
struct Wide : Partials {
    static constexpr int kDim = 128, kHeads = 2, kKvHeads = 1, kWidth = 768, kPacked = 256;
};
struct Real : Tiny {
    static constexpr int kRows = 8, kHeads = 16, kKvHeads = 2, kDim = 64, kWidth = 2304,
                         kPacked = 128, kSplits = 4, kPositions = 4096, kThreads = 128;
};

constexpr int kPages = 12;
constexpr int kPadded = 1; // this row has no slot, a position outside the table and NaN throughout

// Far apart, in no order, and both ends of a page.
static double slot(int64_t row) {
    return row == kPadded ? -1 : static_cast<double>((row * 117 + 15) % (kPages * 16));
}

template <class C>
static double angle_table(int64_t i) {
    const int64_t position = i / C::kDim, j = i % (C::kDim / 2);
    const double angle =
        static_cast<double>(position) *
        std::pow(5e5, -2.0 * static_cast<double>(j) / static_cast<double>(C::kDim));
    return i % C::kDim < C::kDim / 2 ? std::cos(angle) : std::sin(angle);
}

// A row of wild scale, so that a norm over the wrong channels shows.
template <class C>
static double wild(int64_t i) {
    const int64_t row = i / C::kWidth % C::kRows, column = i % C::kWidth;
    if (row == kPadded)
        return NAN;
    const double scale = std::exp2(static_cast<double>(column / C::kDim * 5 % 17) - 8);
    return scale * std::sin(static_cast<double>(i) * 1.7 + static_cast<double>(column));
}

// Everything behind the first two arguments.
template <class C>
static void add_rest(Kernel &k) {
    k.in("positions", {C::kRows}).each([](int, int64_t row) {
        return row == kPadded ? 1e12 : static_cast<double>(C::kPositions - 1 - row * 7);
    });
    if (C::kRope)
        k.in("rope", {C::kPositions, C::kDim}).each([](int, int64_t i) {
            return angle_table<C>(i);
        });
    else
        k.null("rope");
    k.in("slots", {C::kRows}).each([](int, int64_t row) { return slot(row); });
    k.out("q", {C::kRows, C::kHeads, C::kDim});
    k.out("gate", {C::kRows, C::kHeads, C::kDim});
    k.inout("cache", {kPages, C::kKvHeads, C::kPageTokens, C::kPacked}).normal(0, 1);
    LATHE_CONSTANTS(k, C, kRows, kHeads, kKvHeads, kDim, kSplits, kPageTokens, kPositions, kEps);
    constexpr int kVectors = C::kRows * C::kWidth / 8;
    k.launch({(kVectors + C::kThreads - 1) / C::kThreads}, C::kThreads, 0);
    // Nothing is approximate but the order of a few sums, which moves a rounding now and then.
    k.allow("q", 4e-4, "a tenth of line 1 of the contract");
    k.allow("gate", 0, "copied");
    k.allow("cache", 4e-4, "a tenth of line 1 of the contract");
}

template <class C>
static void check(const char *name) {
    Kernel k(name, qkv_front<C>, lathe_ref_attention_qkv_front);
    if (C::kSplits == 0)
        k.in("qkvg", {C::kRows, C::kWidth}).each([](int, int64_t i) { return wild<C>(i); });
    else
        k.null("qkvg");
    if (C::kSplits > 0)
        k.in("qkvg_partials", {C::kSplits, C::kRows, C::kWidth}).each([](int, int64_t i) {
            return wild<C>(i);
        });
    else
        k.null("qkvg_partials");
    add_rest<C>(k);
    k.run();
}

template <class C>
__device__ void make_input(const bf16 *from, bf16 *qkvg) {
    grid_trigger();
    grid_wait();
    for (int i = static_cast<int>(thread_id()); i < C::kRows * C::kWidth; i += 32)
        qkvg[i] = from[i];
}

// Launched early behind the kernel that makes its input, it must wait for it.
template <class C>
static void check_early(const char *name) {
    Kernel maker("maker", make_input<C>, nullptr);
    maker.in("from", {C::kRows, C::kWidth}).normal(0, 1);
    maker.out("qkvg", {C::kRows, C::kWidth});
    maker.launch({1}, 32, 0);
    Kernel k(name, qkv_front<C>, lathe_ref_attention_qkv_front);
    k.same_as("qkvg", maker, "qkvg");
    k.null("qkvg_partials");
    add_rest<C>(k);
    k.early();
    harness::run({&maker, &k});
}

int main() {
    check<Tiny>("tiny");
    check<Bare>("no RoPE");
    check<Partials>("three partials");
    check<Single>("one partial");
    check<Narrow>("heads of 16");
    check<Wide>("heads of 128");
    check<Real>("a rank of eight");
    check_early<Tiny>("early");
    return finish("attention/qkv_front");
}
