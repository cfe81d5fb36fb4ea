// SPDX-License-Identifier: Apache-2.0
// embedding/exchange_embed: tokens of every rank's shard, of none, many exchanges, unkind tables, a
// lost rank.
#include "mailboxes.h"
#include "embedding/exchange_embed.cuh"

extern "C" void lathe_ref_embedding_exchange_embed(lathe_ref *r);

using namespace mailboxes;

// The same for so many ranks.
template <class C, int kRanks_>
struct Of : C {
    static constexpr int kRanks = kRanks_;
};
struct Tiny {
    static constexpr int kRows = 1, kVocab = 3, kHidden = 8, kThreads = 32, kGroup = 4;
    static constexpr float kEps = 1e-5f;
};
struct Odd {
    static constexpr int kRows = 7, kVocab = 11, kHidden = 1032, kThreads = 64, kGroup = 2;
    static constexpr float kEps = 1e-5f;
};
struct Real {
    static constexpr int kRows = 8, kVocab = 50, kHidden = 2048, kThreads = 128, kGroup = 4;
    static constexpr float kEps = 1e-5f;
};
struct Many {
    static constexpr int kRows = 32, kVocab = 16, kHidden = 64, kThreads = 32, kGroup = 4;
    static constexpr float kEps = 1e-5f;
};

template <class C>
static void describe(Kernel &k, int launches, uint64_t timeout_ns = 10000000000) {
    LATHE_CONSTANTS(k, C, kRows, kVocab, kHidden, kEps, kThreads, kGroup, kRanks);
    k.inout("faults", {16}).each([](int, int64_t i) { return i == 0 ? 2 : 0; });
    k.out("s", {C::kRows, C::kHidden});
    k.mailbox("mailbox", 2 * C::kRows * C::kHidden, timeout_ns);
    k.launch({C::kRows}, C::kThreads, 384);
    k.allow("s", 0, "the scale is formed in double on both sides, so rounding to bf16 agrees");
    k.ranks(C::kRanks);
    k.repeat(launches);
    k.early();
}

template <class C>
static void check(const char *name, int low, int high) {
    constexpr int ranks = C::kRanks;
    Kernel k(name, exchange_embed<C>, lathe_ref_embedding_exchange_embed);
    k.in("tokens", {C::kRows}).integers(low, high);
    k.ranks(ranks);
    k.in("table", {C::kVocab, C::kHidden}).per_rank().each([](int rank, int64_t i) {
        return i / C::kHidden == 1
                   ? 0.0
                   : static_cast<double>((i + 77 * rank) * 7919 % 1009) / 8000 - 0.06;
    });
    describe<C>(k, 4);
    k.run();
    check_left_clean(k, "mailbox", ranks, 4, 2 * C::kRows * C::kHidden);
}

struct Four : Odd {
    static constexpr int kRows = 4;
};

// Rows 0 and 3 hold a token of each end of the shards, 1 and 2 tokens just outside: on every rank
// their rows are zero, the bit is set once and the others of the word stay.
template <int ranks>
static void check_fault() {
    using C = Of<Four, ranks>;
    Kernel k("tokens just outside", exchange_embed<C>, lathe_ref_embedding_exchange_embed);
    const int tokens[4] = {0, -1, C::kVocab * ranks, C::kVocab * ranks - 1};
    k.in("tokens", {4}).raw(tokens);
    k.ranks(ranks);
    k.in("table", {C::kVocab, C::kHidden}).per_rank().normal(0, 0.06);
    describe<C>(k, 1);
    k.run();
    for (int rank = 0; rank < ranks; rank++) {
        const int *faults = static_cast<const int *>(k.result("faults", rank));
        require(faults[0] == 3, "the fault word is %d, wanted 3", faults[0]);
        const float *s = static_cast<const float *>(k.result("s", rank));
        for (int i = 0; i < 2 * C::kHidden; i++)
            require(s[C::kHidden + i] == 0.0f, "element %d of a bad token's row is not zero", i);
        require(std::memcmp(s, k.result("s"), sizeof(float) * 4 * C::kHidden) == 0,
                "rank %d has other bits", rank);
    }
}

template <int ranks>
static void check_payload() {
    using C = Of<Tiny, ranks>;
    u16 table[C::kVocab * C::kHidden];
    for (int i = 0; i < C::kVocab * C::kHidden; i++)
        table[i] = i / C::kHidden == 2 ? static_cast<u16>(i % 2 ? 0x8001 : 0x8000) : unkind(i);
    for (int token = 0; token < C::kVocab * ranks; token++) {
        Kernel k("unkind table", exchange_embed<C>, lathe_ref_embedding_exchange_embed);
        k.in("tokens", {1}).fill(token);
        k.in("table", {C::kVocab, C::kHidden}).raw(table);
        describe<C>(k, 4);
        k.run();
        check_left_clean(k, "mailbox", ranks, 4, 2 * C::kRows * C::kHidden);
    }
}

template <class C>
static void without_rank_1(const int *tokens, const bf16 *table, int *faults, float *s,
                           Mailbox *mailbox) {
    if (mailbox->rank == 1)
        grid_wait();
    else
        exchange_embed<C>(tokens, table, faults, s, mailbox);
}

template <int ranks>
static void check_lost_rank() {
    using C = Of<Real, ranks>;
    Kernel k("a rank is lost", without_rank_1<C>, nullptr);
    k.in("tokens", {C::kRows}).integers(0, 2 * C::kVocab - 1);
    k.ranks(ranks);
    k.in("table", {C::kVocab, C::kHidden}).per_rank().normal(0, 0.06);
    describe<C>(k, 2, 2000000);
    k.seeds(1); // what the ranks compute then is undefined, so no two seeds need agree
    k.run();
    check_lost(k, "mailbox", ranks, 1, 2);
}

int main() {
    check<Of<Tiny, 1>>("tiny, one rank", 0, 2);
    check<Of<Tiny, 2>>("tiny, two ranks", 0, 5);
    check<Of<Tiny, 2>>("tiny, no such token", -1, -1);
    check<Of<Tiny, 16>>("tiny, sixteen ranks", 0, 47);
    check<Of<Odd, 2>>("odd, two ranks", 0, 21);
    check<Of<Odd, 4>>("odd, some tokens outside", -9, 55);
    check<Of<Odd, 2>>("odd, far outside", 2147483647, 2147483647);
    check<Of<Real, 2>>("real, two ranks", 0, 99);
    check<Of<Real, 4>>("real, all tokens of rank 3", 150, 199);
    check<Of<Many, 4>>("32 rows, four ranks", 0, 63);
    check_fault<1>();
    check_fault<2>();
    check_fault<4>();
    check_payload<2>();
    check_lost_rank<2>();
    check_lost_rank<4>();
    return finish("embedding/exchange_embed");
}
