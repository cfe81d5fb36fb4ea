// SPDX-License-Identifier: Apache-2.0
// boundary/exchange_residual_norm: sums and gathers over ranks, many exchanges in a row, whatever
// the payload, and a lost rank.
#include "mailboxes.h"
#include "boundary/exchange_residual_norm.cuh"

extern "C" void lathe_ref_boundary_exchange_residual_norm(lathe_ref *r);

using namespace mailboxes;

struct Common {
    static constexpr int kBranchCenter = 1, kCenter = 1, kBf16Each = 0;
    static constexpr int kBlocks = 1; // of a row
    static constexpr float kEps = 1e-5f, kBranchEps = 1e-8f;
};
// The same for so many ranks.
template <class C, int kRanks_>
struct Of : C {
    static constexpr int kRanks = kRanks_;
};
template <class C>
constexpr unsigned kShared = 128 + 16 + 32 * RowShape<C::kHidden, C::kThreads, C::kBlocks>::kPitch;
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
struct Summed : Common {
    static constexpr int kRows = 3, kHidden = 48, kColumns = 48, kSplits = 0;
    static constexpr int kHasBranchGain = 0, kHasAux = 1, kThreads = 32, kGroup = 4;
};
struct SummedEach : Summed {
    static constexpr int kBf16Each = 1;
};
struct Clustered : Common { // rows over clusters
    static constexpr int kRows = 2, kHidden = 1024, kColumns = 1024, kSplits = 0, kBlocks = 4;
    static constexpr int kHasBranchGain = 1, kHasAux = 1, kThreads = 32, kGroup = 8;
};
struct ClusteredColumns : Common { // fewer packets than blocks times threads, and not as many each
    static constexpr int kRows = 3, kHidden = 640, kColumns = 160, kSplits = 9, kBlocks = 8;
    static constexpr int kHasBranchGain = 1, kHasAux = 0, kThreads = 32, kGroup = 2;
};
struct ClusteredEach : Common { // more than an octet a thread
    static constexpr int kRows = 2, kHidden = 1296, kColumns = 1296, kSplits = 2, kBlocks = 2;
    static constexpr int kHasBranchGain = 0, kHasAux = 1, kThreads = 32, kGroup = 2;
    static constexpr int kBf16Each = 1;
};
struct OddEach : Odd { // rounded after every addition
    static constexpr int kBf16Each = 1;
};
struct RealEach : Real {
    static constexpr int kBf16Each = 1;
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
    LATHE_CONSTANTS(k, C, kBf16Each, kBlocks, kRanks);
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
    k.launch({C::kRows * C::kBlocks}, C::kThreads, kShared<C>);
    k.cluster(C::kBlocks);
    k.repeat(exchanges);
    k.early();
}

template <class C>
static void check(const char *name, int exchanges, int seeds) {
    constexpr int ranks = C::kRanks;
    static_assert(C::kSplits == 0, "partials of several exchanges do not lie in a row");
    const int rows = exchanges * C::kRows;
    Kernel k(name, rotating<C>, lathe_ref_boundary_exchange_residual_norm);
    k.ranks(ranks);
    k.in("branch", {rows, C::kColumns}).per_rank().normal(0.2, 2);
    k.null("branch_partials");
    describe<C>(k, exchanges, rows);
    k.seeds(seeds);
    k.run();
    check_left_clean(k, "mailbox", ranks, static_cast<u32>(exchanges), 2 * C::kRows * C::kColumns);
}

template <class C>
static void check_partials(const char *name) {
    constexpr int ranks = C::kRanks;
    Kernel k(name, exchange_residual_norm<C>, lathe_ref_boundary_exchange_residual_norm);
    k.ranks(ranks);
    k.null("branch");
    k.in("branch_partials", {C::kSplits, C::kRows, C::kColumns}).per_rank().normal(0.2, 2);
    describe<C>(k, 4, C::kRows);
    k.run();
    check_left_clean(k, "mailbox", ranks, 4, 2 * C::kRows * C::kColumns);
}

template <class C>
static void check_payload() {
    static_assert(C::kRanks == 2, "of two ranks");
    Kernel k("payload of NaN", exchange_residual_norm<C>,
             lathe_ref_boundary_exchange_residual_norm);
    u16 branch[C::kRows * C::kColumns];
    for (int i = 0; i < C::kRows * C::kColumns; i++)
        branch[i] = i < 16 ? 0xffff : i < C::kColumns ? unkind(i) : static_cast<u16>(0x3f80 + i);
    for (int i = 2 * C::kColumns; i < 3 * C::kColumns; i++)
        branch[i] = i % 3 == 0 ? 0x8000 : i % 3 == 1 ? 0x0001 : 0x8001;
    k.ranks(2);
    k.in("branch", {C::kRows, C::kColumns}).raw(branch);
    k.null("branch_partials");
    describe<C>(k, 4, C::kRows);
    k.run();
    check_left_clean(k, "mailbox", 2, 4, 2 * C::kRows * C::kColumns);
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
template <int ranks>
static void check_lost_rank() {
    using C = Of<Real, ranks>;
    Kernel k("a rank is lost", without_rank_1<C>, nullptr);
    k.ranks(ranks);
    k.in("branch", {C::kRows, C::kColumns}).per_rank().normal(0, 1);
    k.null("branch_partials");
    describe<C>(k, 2, C::kRows, 2000000);
    k.seeds(1); // what the ranks computed from is undefined, so no two seeds need agree
    k.run();
    check_lost(k, "mailbox", ranks, 1, 2);
    const Mailbox *m = mailbox_of(k, "mailbox", 0);
    require(m->fault[0] == 0 || (m->fault[2] == m->exchange && m->fault[3] == 0),
            "exchange %llu, epoch %llu", m->fault[2], m->fault[3]);
    // What the lost rank is told: it did not come (1 << 16), exchange, epoch, who says so.
    const u32 *told = mailbox_of(k, "mailbox", 1)->abort + 4;
    require(told[0] == (1u | 1u << 16) || ranks > 2, "rank 1 is told of %x", told[0]);
    require(told[1] == m->exchange && told[2] == 0 && (told[3] == 0 || told[3] == 2),
            "rank 1 is told of exchange %u, epoch %u, by rank %u", told[1], told[2], told[3]);
}

// A packet as a rank sends it in `epoch`, and until it is there.
static void send(const Exchange &e, u32 epoch) {
    u8 *const slot = lamport_slot(e, 0, 0, epoch);
    peer_store16(slot, u32x4{1, 2, 3, 4});
    while (!lamport_arrived(peer_load16(slot)))
        poll_pause();
}

// What is thought in exchange 1 of a rank that has sent nothing, the next exchange's packet, then
// this one's too: it came late, and went on.
static void judge(int *diverged, Mailbox *mailbox) {
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    if (thread_id() != 0)
        return;
    diverged[0] = lamport_diverged(mailbox, 1, 0, 0);
    send(e, 2);
    diverged[1] = lamport_diverged(mailbox, 1, 0, 0);
    send(e, 1);
    diverged[2] = lamport_diverged(mailbox, 1, 0, 0);
}

static void check_judgement() {
    Kernel k("late at the last moment", judge, nullptr);
    k.out("diverged", {3});
    k.mailbox("mailbox", 16, 1000000000);
    k.launch({1}, 32, 128);
    k.run();
    const int *const diverged = static_cast<const int *>(k.result("diverged"));
    require(!diverged[0] && diverged[1] && !diverged[2], "diverged: %d %d %d, wanted 0 1 0",
            diverged[0], diverged[1], diverged[2]);
}

int main() {
    check<Of<Tiny, 1>>("tiny, one rank", 4, 3);
    check<Of<Tiny, 2>>("tiny, two ranks", 13, 6);
    check<Of<Tiny, 4>>("tiny, four ranks", 13, 3);
    check<Of<Tiny, 16>>("tiny, sixteen ranks", 2, 3);
    check<Of<Gathered, 2>>("columns of two ranks", 9, 6);
    check<Of<Real, 2>>("real, two ranks", 4, 3);
    check<Of<Real, 4>>("real, four ranks", 2, 3);
    check_partials<Of<Quarter, 4>>("partials of columns of four ranks");
    check_partials<Of<Odd, 3>>("partials of three ranks");
    check<Of<RealEach, 2>>("rounded after every addition, two ranks", 3, 3);
    check<Of<RealEach, 4>>("rounded after every addition, four ranks", 2, 3);
    check_partials<Of<OddEach, 3>>("rounded after every addition, partials of three ranks");
    check<Of<Clustered, 2>>("rows over clusters, two ranks", 4, 3);
    check<Of<Clustered, 4>>("rows over clusters, four ranks", 2, 3);
    check_partials<Of<ClusteredColumns, 4>>("rows over clusters, columns of four ranks");
    check_partials<Of<ClusteredEach, 3>>("rows over clusters, rounded after every addition");
    check_payload<Of<Gathered, 2>>();
    check_payload<Of<Summed, 2>>();
    check_payload<Of<SummedEach, 2>>();
    check_lost_rank<2>();
    check_lost_rank<3>();
    check_judgement();
    return finish("boundary/exchange_residual_norm");
}
