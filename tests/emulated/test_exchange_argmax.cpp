// SPDX-License-Identifier: Apache-2.0
// head/exchange_argmax: ties within and across ranks, NaN, infinities, one block a row and many,
// many exchanges, a lost rank.
#include "mailboxes.h"
#include "head/exchange_argmax.cuh"

#include <cmath>

extern "C" void lathe_ref_head_exchange_argmax(lathe_ref *r);

using namespace mailboxes;

struct Tiny {
    static constexpr int kRows = 1, kVocab = 4, kBlocks = 1, kThreads = 32;
};
struct Odd { // a block with no logits
    static constexpr int kRows = 9, kVocab = 332, kBlocks = 3, kThreads = 64;
};
struct Real {
    static constexpr int kRows = 4, kVocab = 12000, kBlocks = 8, kThreads = 64;
};
struct Many {
    static constexpr int kRows = 32, kVocab = 64, kBlocks = 1, kThreads = 32;
};

// What row `row` of a rank holds at i of n. Rows: noise, all equal, all NaN, NaN but on the last
// rank, -inf, a tie across ranks, zeros of both signs, +inf on an odd rank, rank 0 all NaN.
static double logit(int rank, int ranks, int64_t row, int64_t i, int64_t n) {
    switch (row % 9) {
    case 1:
        return 20.0;
    case 2:
        return NAN;
    case 3:
        return rank == ranks - 1 && (i == n - 1 || i == n / 2) ? -3.0 : NAN;
    case 4:
        return -INFINITY;
    case 5:
        return i == n - 2 - rank % 2 ? 7.0 : -static_cast<double>(i % 5);
    case 6:
        return i == 0 ? -1.0 : (i + rank) % 2 == 1 ? -0.0 : 0.0;
    case 7:
        return i == n - 3 && rank % 2 == 1 ? INFINITY : NAN;
    case 8:
        return rank == 0 ? NAN : -5.0 - rank;
    default:
        return static_cast<double>((i + 31 * row + 977 * rank) * 7919 % 10007) / 100;
    }
}

template <class C>
static void describe(Kernel &k, int ranks, int64_t first_row, int launches,
                     uint64_t timeout_ns = 10000000000) {
    LATHE_CONSTANTS(k, C, kRows, kVocab, kBlocks, kThreads);
    k.ranks(ranks);
    k.in("logits", {C::kRows, C::kVocab}).per_rank().each([=](int rank, int64_t i) {
        return logit(rank, ranks, first_row + i / C::kVocab, i % C::kVocab, C::kVocab);
    });
    k.workspace("candidates", {C::kRows, C::kBlocks, 2});
    k.workspace("counters", {C::kRows}, true);
    k.out("token", {C::kRows});
    k.mailbox("mailbox", 16 * C::kRows, timeout_ns);
    k.launch({C::kBlocks, C::kRows}, C::kThreads, 384);
    k.repeat(launches);
    k.early();
}

template <class C>
static void check(const char *name, int ranks, int64_t first_row, int launches) {
    Kernel k(name, exchange_argmax<C>, lathe_ref_head_exchange_argmax);
    describe<C>(k, ranks, first_row, launches);
    k.run();
    check_left_clean(k, "mailbox", ranks, static_cast<u32>(launches), 16 * C::kRows);
}

template <class C>
static void without_rank_1(const float *logits, u32 *candidates, u32 *counters, int *token,
                           Mailbox *mailbox) {
    if (mailbox->rank == 1)
        grid_wait();
    else
        exchange_argmax<C>(logits, candidates, counters, token, mailbox);
}

static void check_lost_rank(int ranks) {
    using C = Odd;
    Kernel k("a rank is lost", without_rank_1<C>, nullptr);
    describe<C>(k, ranks, 0, 2, 2000000);
    k.seeds(1); // what the ranks compute then is undefined, so no two seeds need agree
    k.run();
    check_lost(k, "mailbox", ranks, 1, 2);
}

int main() {
    for (int64_t row = 0; row < 9; row++) {
        check<Tiny>("tiny, one rank", 1, row, 3);
        check<Tiny>("tiny, two ranks", 2, row, 7);
    }
    check<Tiny>("tiny, sixteen ranks", 16, 5, 2);
    check<Odd>("odd, one rank", 1, 0, 3);
    check<Odd>("odd, two ranks", 2, 0, 5);
    check<Odd>("odd, four ranks", 4, 0, 4);
    check<Real>("real, two ranks", 2, 0, 3);
    check<Real>("real, four ranks, the other rows", 4, 5, 2);
    check<Many>("32 rows, four ranks", 4, 0, 4);
    check_lost_rank(2);
    check_lost_rank(4);
    return finish("head/exchange_argmax");
}
