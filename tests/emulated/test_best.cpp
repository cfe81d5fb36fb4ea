// SPDX-License-Identifier: Apache-2.0
// head/best and head/pick: ties within and across ranks, NaN, infinities, one block a row and many.
#include "harness.h"
#include "head/best.cuh"
#include "head/pick.cuh"

#include <cmath>

extern "C" void lathe_ref_head_best(lathe_ref *r);
extern "C" void lathe_ref_head_pick(lathe_ref *r);

struct Tiny {
    static constexpr int kRows = 1, kVocab = 4, kBlocks = 1, kThreads = 32;
};
struct Odd { // a block with no logits
    static constexpr int kRows = 9, kVocab = 332, kBlocks = 3, kThreads = 64;
};
struct Real {
    static constexpr int kRows = 4, kVocab = 12000, kBlocks = 8, kThreads = 64;
};

// Rows: noise, all equal, all NaN, NaN but for two, -inf, a tie, +inf, zeros of both signs.
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
        return i == n - 3 ? INFINITY : NAN;
    case 7: /* equal too, so the first id counts, and with it the sign */
        return i == 0 ? -1.0 : i % 2 == 1 ? -0.0 : 0.0;
    default:
        return static_cast<double>((i + 31 * row) * 7919 % 10007) / 100;
    }
}

template <class C>
static void check_best(const char *name, int64_t first_row) {
    Kernel k(name, best_of_rank<C>, lathe_ref_head_best);
    LATHE_CONSTANTS(k, C, kRows, kVocab, kBlocks, kThreads);
    k.in("logits", {C::kRows, C::kVocab}).each([=](int, int64_t i) {
        return logit(first_row + i / C::kVocab, i % C::kVocab, C::kVocab);
    });
    k.workspace("candidates", {C::kRows, C::kBlocks, 2});
    k.workspace("counters", {C::kRows}, true);
    k.out("best", {C::kRows, 2});
    k.launch({C::kBlocks, C::kRows}, C::kThreads, 384);
    k.repeat(3);
    k.early();
    k.run();
}

template <int ranks, int rows>
struct Picked {
    static constexpr int kRanks = ranks, kRows = rows, kVocab = 1000;
};

struct Candidates {
    float value;
    int id;
};

// Rows: distinct values, all equal, nobody anywhere, only the last rank, -inf everywhere, a tie of
// the last two ranks.
static Candidates candidate(int rank, int ranks, int row) {
    switch (row % 6) {
    case 1:
        return {2.5f, 7};
    case 2:
        return {-INFINITY, -1};
    case 3:
        return rank == ranks - 1 ? Candidates{-4.0f, 999} : Candidates{-INFINITY, -1};
    case 4:
        return {-INFINITY, rank == 0 ? 3 : 0};
    case 5:
        return {rank >= ranks - 2 ? 9.0f : -1.0f, 500 - rank};
    default:
        return {static_cast<float>((rank * 7 + row) % 5 - 2), (rank * 331 + row) % 1000};
    }
}

template <int ranks, int rows>
static void check_pick(const char *name) {
    using C = Picked<ranks, rows>;
    int best[ranks * rows * 2];
    for (int rank = 0; rank < ranks; rank++)
        for (int row = 0; row < rows; row++) {
            const Candidates c = candidate(rank, ranks, row);
            memcpy(&best[(rank * rows + row) * 2], &c.value, sizeof c.value);
            best[(rank * rows + row) * 2 + 1] = c.id;
        }
    Kernel k(name, pick<C>, lathe_ref_head_pick);
    LATHE_CONSTANTS(k, C, kRanks, kRows, kVocab);
    k.in("best", {ranks, rows, 2}).raw(best).late();
    k.out("token", {rows});
    k.launch({rows}, 32, 0);
    k.run();
}

int main() {
    for (int64_t row = 0; row < 8; row++)
        check_best<Tiny>("tiny", row);
    check_best<Odd>("odd", 0);
    check_best<Real>("real", 0);
    check_best<Real>("real, the other rows", 4);
    check_pick<2, 6>("two ranks");
    check_pick<16, 32>("sixteen ranks");
    check_pick<3, 1>("three ranks, one row");
    return finish("head/best, head/pick");
}
