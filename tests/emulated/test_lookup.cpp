// SPDX-License-Identifier: Apache-2.0
// embedding/lookup and embedding/norm: tokens of every shard and of none, the fault word, and both
// in a row over ranks, between which a library sums.
#include "harness.h"
#include "embedding/lookup.cuh"
#include "embedding/norm.cuh"

extern "C" void lathe_ref_embedding_lookup(lathe_ref *r);
extern "C" void lathe_ref_embedding_norm(lathe_ref *r);

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

// Unlike on every rank and in every row; row 1 is zero.
static double table_value(int rank, int64_t i, int64_t hidden) {
    return i / hidden == 1 ? 0.0 : static_cast<double>((i + 77 * rank) * 7919 % 1009) / 8000 - 0.06;
}

template <class C>
static void describe_lookup(Kernel &k, int ranks) {
    LATHE_CONSTANTS(k, C, kRows, kVocab, kHidden, kThreads);
    k.ranks(ranks);
    k.in("table", {C::kVocab, C::kHidden}).per_rank().each([](int rank, int64_t i) {
        return table_value(rank, i, C::kHidden);
    });
    k.in("rank", {2}).per_rank().each([=](int rank, int64_t i) { return i == 0 ? rank : ranks; });
    k.inout("faults", {16}).each([](int, int64_t i) { return i == 0 ? 2 : 0; });
    k.out("partial", {C::kRows, C::kHidden});
    k.launch({C::kRows}, C::kThreads, 0);
    k.allow("partial", 0, "rows are copied");
    k.repeat(2);
    k.early();
}

template <class C>
static void check_lookup(const char *name, int ranks, int low, int high) {
    Kernel k(name, lookup<C>, lathe_ref_embedding_lookup);
    k.in("tokens", {C::kRows}).integers(low, high);
    describe_lookup<C>(k, ranks);
    k.run();
}

struct Four : Odd {
    static constexpr int kRows = 4;
};

// Just outside the whole table on either side, and the ends of two shards.
static void check_ends() {
    using C = Four;
    const int tokens[4] = {-1, 10, 11, 22};
    Kernel k("ends of the shards", lookup<C>, lathe_ref_embedding_lookup);
    k.in("tokens", {4}).raw(tokens);
    describe_lookup<C>(k, 2);
    k.run();
    require(static_cast<const int *>(k.result("faults"))[0] == 3, "the fault word is not 3");
    const bf16 *const partial = static_cast<const bf16 *>(k.result("partial"));
    int others = 0;
    for (int i = 0; i < 4 * C::kHidden; i++)
        others += i / C::kHidden != 1 && bf16_to_float(partial[i]) != 0.0f;
    require(others == 0, "%d elements of rows that rank 0 has not are not zero", others);
}

template <class C>
static void check_norm(const char *name, double mean, double deviation) {
    Kernel k(name, embed_norm<C>, lathe_ref_embedding_norm);
    LATHE_CONSTANTS(k, C, kRows, kHidden, kEps, kThreads);
    k.in("e", {C::kRows, C::kHidden}).normal(mean, deviation).late();
    k.out("s", {C::kRows, C::kHidden});
    k.launch({C::kRows}, C::kThreads, 256);
    k.allow("s", 0, "the scale is formed in double on both sides, so rounding to bf16 agrees");
    k.repeat(2);
    k.run();
}

int main() {
    check_lookup<Tiny>("tiny, one rank", 1, 0, 2);
    check_lookup<Tiny>("tiny, two ranks", 2, 0, 5);
    check_lookup<Odd>("odd, four ranks, some tokens outside", 4, -3, 50);
    check_lookup<Odd>("odd, far outside", 2, 2147483647, 2147483647);
    check_lookup<Real>("real, two ranks", 2, 0, 99);
    check_ends();
    check_norm<Tiny>("norm, tiny", 0, 0.06);
    check_norm<Odd>("norm, odd", 0.1, 0.06);
    check_norm<Real>("norm, real", 0, 0.06);
    check_norm<Odd>("norm, zeros", 0, 0);
    return finish("embedding/lookup, embedding/norm");
}
