// SPDX-License-Identifier: Apache-2.0
// boundary/exchange_residual_norm: sums and gathers over ranks, many exchanges in a row, whatever
// the payload, and a lost rank.
#include "harness.h"
#include "boundary/exchange_residual_norm.cuh"

extern "C" void lathe_ref_boundary_exchange_residual_norm(lathe_ref *r);

struct Common {
    static constexpr int kBranchCenter = 1, kCenter = 1;
    static constexpr float kEps = 1e-5f, kBranchEps = 1e-8f;
};
struct Tiny : Common {
    static constexpr int kRows = 1, kHidden = 64, kColumns = 64, kSplits = 0;
    static constexpr int kHasBranchGain = 0, kHasAux = 0, kThreads = 32, kGroup = 4;
};
struct Gathered : Common {
    static constexpr int kRows = 3, kHidden = 96, kColumns = 48, kSplits = 0;
    static constexpr int kHasBranchGain = 1, kHasAux = 1, kThreads = 32, kGroup = 4;
};
struct Quarter : Common { // partials of a rank's columns; more than a packet a thread
    static constexpr int kRows = 2, kHidden = 1088, kColumns = 272, kSplits = 2;
    static constexpr int kHasBranchGain = 1, kHasAux = 0, kThreads = 64, kGroup = 2;
};
struct Odd : Common { // the last group of ranks is short
    static constexpr int kRows = 5, kHidden = 840, kColumns = 840, kSplits = 3;
    static constexpr int kHasBranchGain = 0, kHasAux = 1, kThreads = 64, kGroup = 2;
};
struct Real : Common {
    static constexpr int kRows = 8, kHidden = 1024, kColumns = 1024, kSplits = 0;
    static constexpr int kHasBranchGain = 0, kHasAux = 0, kThreads = 128, kGroup = 4;
};

// Exchange number e of a launch works on rows [e kRows, (e + 1) kRows) of everything: no two
// exchanges carry the same.
template <class C>
static void rotating(const bf16 *branch, const float *branch_partials, const float *s,
                     const float *alpha, const float *beta, const bf16 *branch_gain,
                     const bf16 *gain, float *s_out, float *aux, bf16 *x, Mailbox *mailbox) {
    grid_wait();
    const i64 row = i64{gpu_load(mailbox->epoch)} * C::kRows;
    exchange_residual_norm<C>(
        C::kSplits == 0 ? branch + row * C::kColumns : branch,
        C::kSplits == 0 ? branch_partials : branch_partials + row * C::kColumns * C::kSplits,
        s + row * C::kHidden, alpha, beta, branch_gain, gain, s_out + row * C::kHidden,
        C::kHasAux == 1 ? aux + row * C::kHidden : aux, x + row * C::kHidden, mailbox);
}

template <class C>
static void describe(Kernel &k, int exchanges, int rows, uint64_t timeout_ns = 10000000000) {
    LATHE_CONSTANTS(k, C, kHidden, kColumns, kSplits, kBranchEps, kBranchCenter, kHasBranchGain,
                    kEps, kCenter, kHasAux, kThreads, kGroup);
    k.constant("kRows", rows, true);
    k.in("s", {rows, C::kHidden}).normal(0.1, 1);
    k.in("alpha", {C::kHidden}).uniform(0.03, 1);
    k.in("beta", {C::kHidden}).uniform(0, 1);
    if (C::kHasBranchGain == 1)
        k.in("branch_gain", {C::kHidden}).normal(1, 2);
    else
        k.null("branch_gain");
    k.in("gain", {C::kHidden}).normal(-2, 2);
    k.out("s_out", {rows, C::kHidden});
    if (C::kHasAux == 1)
        k.out("aux", {rows, C::kHidden});
    else
        k.null("aux");
    k.out("x", {rows, C::kHidden});
    k.mailbox("mailbox", 2 * C::kRows * C::kColumns, timeout_ns);
    k.launch({C::kRows}, C::kThreads, 384);
    k.repeat(exchanges);
    k.early();
}

static const Mailbox *mailbox_of(const Kernel &k, int rank) {
    return static_cast<const Mailbox *>(k.result("mailbox", rank));
}

// Every slot empty, nobody arrived, the epoch counted.
static void check_left_clean(const Kernel &k, int ranks, u32 exchanges, u64 slot_bytes) {
    for (int rank = 0; rank < ranks; rank++) {
        const Mailbox *m = mailbox_of(k, rank);
        require(m->epoch[0] == exchanges && m->epoch[1] == 0, "rank %d: epoch %u, arrivals %u",
                rank, m->epoch[0], m->epoch[1]);
        require(m->abort[0] == 0 && m->fault[0] == 0, "rank %d has a fault", rank);
        for (u64 i = 0; i < 3 * static_cast<u64>(ranks) * slot_bytes; i++)
            require(m->base[rank][i] == 0xff, "rank %d: byte %llu of the slots is not empty", rank,
                    i);
    }
}

template <class C>
static void check(const char *name, int ranks, int exchanges, int seeds) {
    static_assert(C::kSplits == 0, "partials of several exchanges do not lie in a row");
    const int rows = exchanges * C::kRows;
    Kernel k(name, rotating<C>, lathe_ref_boundary_exchange_residual_norm);
    k.ranks(ranks);
    k.in("branch", {rows, C::kColumns}).per_rank().normal(0.2, 2);
    k.null("branch_partials");
    describe<C>(k, exchanges, rows);
    k.seeds(seeds);
    k.run();
    check_left_clean(k, ranks, static_cast<u32>(exchanges), 2 * C::kRows * C::kColumns);
}

template <class C>
static void check_partials(const char *name, int ranks) {
    Kernel k(name, exchange_residual_norm<C>, lathe_ref_boundary_exchange_residual_norm);
    k.ranks(ranks);
    k.null("branch");
    k.in("branch_partials", {C::kSplits, C::kRows, C::kColumns}).per_rank().normal(0.2, 2);
    describe<C>(k, 4, C::kRows);
    k.run();
    check_left_clean(k, ranks, 4, 2 * C::kRows * C::kColumns);
}

// NaN of every sign and payload (0xffff twice is an empty word), infinities, subnormals, both
// zeros.
static void check_payload() {
    using C = Gathered;
    static const u16 unkind[] = {0xffff, 0xffff, 0x7fff, 0xff81, 0x7f80,
                                 0xff80, 0x0001, 0x8000, 0x7fc0};
    Kernel k("payload of NaN", exchange_residual_norm<C>,
             lathe_ref_boundary_exchange_residual_norm);
    u16 branch[C::kRows * C::kColumns];
    for (int i = 0; i < C::kRows * C::kColumns; i++)
        branch[i] = i < 16            ? 0xffff
                    : i < C::kColumns ? unkind[i % 9]
                                      : static_cast<u16>(0x3f80 + i);
    for (int i = 2 * C::kColumns; i < 3 * C::kColumns; i++)
        branch[i] = i % 3 == 0 ? 0x8000 : i % 3 == 1 ? 0x0001 : 0x8001;
    k.ranks(2);
    k.in("branch", {C::kRows, C::kColumns}).raw(branch);
    k.null("branch_partials");
    describe<C>(k, 4, C::kRows);
    k.run();
    check_left_clean(k, 2, 4, 2 * C::kRows * C::kColumns);
}

// Rank 1 never comes.
template <class C>
static void without_rank_1(const bf16 *branch, const float *branch_partials, const float *s,
                           const float *alpha, const float *beta, const bf16 *branch_gain,
                           const bf16 *gain, float *s_out, float *aux, bf16 *x, Mailbox *mailbox) {
    if (mailbox->rank == 1)
        grid_wait();
    else
        exchange_residual_norm<C>(branch, branch_partials, s, alpha, beta, branch_gain, gain, s_out,
                                  aux, x, mailbox);
}

// Rank 0 records that rank 1 is missing, tells everybody, and both its launches fall through. With
// a third rank, a slow one may be named first, so there only the abort words are sure.
static void check_lost_rank(int ranks) {
    using C = Real;
    Kernel k("a rank is lost", without_rank_1<C>, nullptr);
    k.ranks(ranks);
    k.in("branch", {C::kRows, C::kColumns}).per_rank().normal(0, 1);
    k.null("branch_partials");
    describe<C>(k, 2, C::kRows, 2000000);
    k.seeds(1); // what the ranks computed from is undefined, so no two seeds need agree
    k.run();
    for (int rank = 0; rank < ranks; rank++) {
        const Mailbox *m = mailbox_of(k, rank);
        require(m->abort[0] == 1, "rank %d was not told to abort", rank);
        require(rank == 1 || m->epoch[0] == 2, "the launches of rank %d did not fall through",
                rank);
    }
    const Mailbox *m = mailbox_of(k, 0);
    require(ranks > 2 || (m->fault[0] == 1 && m->fault[1] == 1), "flag %llu, lost rank %llu",
            m->fault[0], m->fault[1]);
    require(m->fault[2] == m->exchange && m->fault[3] == 0, "exchange %llu, epoch %llu",
            m->fault[2], m->fault[3]);
}

int main() {
    check<Tiny>("tiny, one rank", 1, 4, 3);
    check<Tiny>("tiny, two ranks", 2, 13, 6);
    check<Tiny>("tiny, four ranks", 4, 13, 3);
    check<Gathered>("columns of two ranks", 2, 9, 6);
    check<Real>("real, two ranks", 2, 4, 3);
    check<Real>("real, four ranks", 4, 2, 3);
    check_partials<Quarter>("partials of columns of four ranks", 4);
    check_partials<Odd>("partials of three ranks", 3);
    check_payload();
    check_lost_rank(2);
    check_lost_rank(3);
    return finish("boundary/exchange_residual_norm");
}
