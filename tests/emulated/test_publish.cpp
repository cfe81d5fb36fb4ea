// SPDX-License-Identifier: Apache-2.0
// gemm/publish and boundary/receive_residual_norm: each against its reference, the two as a stream
// against the pair that pushes, whatever the payload, and a lost rank.
#include "mailboxes.h"
#include "boundary/exchange_residual_norm.cuh"
#include "boundary/receive_residual_norm.cuh"
#include "gemm/publish.cuh"
#include "gemm/skinny.cuh"

extern "C" {
void lathe_ref_boundary_receive_residual_norm(lathe_ref *r);
void lathe_ref_boundary_exchange_residual_norm(lathe_ref *r);
void lathe_ref_gemm_publish(lathe_ref *r);
void lathe_ref_gemm_skinny(lathe_ref *r);
}

using namespace mailboxes;

struct Product {
    static constexpr int kPartials = 0, kSplits = 1;
};
struct Tiny : Product {
    static constexpr int kRows = 1, kN = 16, kK = 16, kColumns = 0;
    static constexpr int kTiles = 1, kWarps = 1, kSteps = 1, kStages = 0;
};
struct Odd : Product { // half a block of rows, half a step of k
    static constexpr int kRows = 5, kN = 48, kK = 80, kColumns = 1;
    static constexpr int kTiles = 2, kWarps = 2, kSteps = 1, kStages = 0;
};
struct Ringed : Product { // weights through a ring that goes round
    static constexpr int kRows = 9, kN = 64, kK = 192, kColumns = 1;
    static constexpr int kTiles = 2, kWarps = 2, kSteps = 1, kStages = 2;
};
struct Real : Product {
    static constexpr int kRows = 8, kN = 256, kK = 1024, kColumns = 0;
    static constexpr int kTiles = 2, kWarps = 4, kSteps = 2, kStages = 0;
};

template <class C>
static void product_constants(Kernel &k) {
    LATHE_CONSTANTS(k, C, kRows, kN, kK, kColumns, kPartials, kSplits, kTiles, kWarps, kSteps,
                    kStages);
}

template <class C>
static uint32_t product_shared() {
    return C::kWarps * C::kRows * (C::kTiles * 16 + 4) * 4 +
           C::kStages * (16 * (C::kWarps * C::kSteps * 64 + 64) + 16);
}

template <class C>
static uint32_t product_threads() {
    return (C::kWarps + (C::kStages > 0 ? 1 : 0)) * 32;
}

template <class C>
static uint32_t product_blocks() {
    return (C::kN + C::kTiles * 16 - 1) / (C::kTiles * 16);
}

// Publishes, waits for all ranks, and lays what they published out as [rank][rows][n]. What one's
// own slot held is compared with the reference. The whole kernel is one block's work here.
template <class C>
static void publish_and_look(const bf16 *x, const bf16 *w, bf16 *y, bf16 *all, Mailbox *mailbox) {
    publish_gemm<C>(x, w, mailbox, mailbox);
    block_sync();
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    const u32 epoch = lamport_epoch(e);
    constexpr u32 kPackets = C::kTiles * 2;
    for (u32 i = thread_id(); i < C::kRows * kPackets * e.world; i += block_threads()) {
        const u32 rank = i / (C::kRows * kPackets), in_rank = i % (C::kRows * kPackets);
        const u32 column = (block_id() * kPackets + in_rank % kPackets) * 8;
        if (column >= C::kN)
            continue;
        const u32 at = in_rank / kPackets * C::kN + column;
        u32x4 packet[1];
        lamport_receive<1>(e, epoch, at * 2, rank, 1, packet);
        *reinterpret_cast<u32x4 *>(all + rank * C::kRows * C::kN + at) = packet[0];
        if (rank == e.rank)
            *reinterpret_cast<u32x4 *>(y + at) = packet[0];
    }
    block_sync();
    if (thread_id() == 0)
        lamport_close(e, epoch, grid_size());
}

// The reference knows the value by the argument's name.
template <class C>
static void look(const char *name, int ranks, int launches, const u16 *x, const u16 *w) {
    Kernel k(name, publish_and_look<C>, lathe_ref_gemm_publish);
    product_constants<C>(k);
    k.ranks(ranks);
    if (x)
        k.in("x", {C::kRows, C::kK}).raw(x);
    else
        k.in("x", {C::kRows, C::kK}).per_rank().late().normal(0.1, 2);
    if (w)
        k.in("w", {C::kN, C::kK}).raw(w);
    else
        k.in("w", {C::kN, C::kK}).per_rank().normal(0, 0.3);
    k.out(C::kColumns == 1 ? "y_columns" : "y_parts", {C::kRows, C::kN});
    k.out("all", {ranks, C::kRows, C::kN});
    k.mailbox("mailbox", 2 * C::kRows * C::kN);
    k.launch({product_blocks<C>()}, product_threads<C>(), kLamportShared + product_shared<C>());
    k.repeat(launches);
    k.early();
    k.run();
    check_left_clean(k, "mailbox", ranks, static_cast<u32>(launches), 2 * C::kRows * C::kN);
    const size_t bytes = 2 * C::kRows * C::kN;
    for (int rank = 0; rank < ranks; rank++)
        for (int from = 0; from < ranks; from++)
            require(std::memcmp(static_cast<const char *>(k.result("all", rank)) +
                                    static_cast<size_t>(from) * bytes,
                                k.result(C::kColumns == 1 ? "y_columns" : "y_parts", from),
                                bytes) == 0,
                    "rank %d received other bits than rank %d published", rank, from);
}

// One weight of a row is 1 and the others 0, so that y is x: NaN, infinities and subnormals cross.
static void look_at_payload() {
    using C = Tiny;
    for (int first = 0; first < 11; first++) {
        u16 x[C::kK] = {}, w[C::kN * C::kK];
        x[0] = unkind(first);
        for (int i = 0; i < C::kN * C::kK; i++)
            w[i] = i % C::kK == 0 ? 0x3f80 : 0;
        look<C>("payload of the product", 2, 4, x, w);
    }
}

struct Boundary {
    static constexpr int kBranchCenter = 1, kCenter = 1, kSplits = 0, kBf16Each = 0, kGroup = 4;
    static constexpr int kRanks = 2, kBlocks = 1;
    static constexpr float kEps = 1e-5f, kBranchEps = 1e-8f;
};
struct Summed : Boundary {
    static constexpr int kRows = 3, kHidden = 96, kColumns = 0;
    static constexpr int kHasBranchGain = 0, kHasAux = 1, kThreads = 32;
};
// The same for so many ranks.
template <class B, int kRanks_>
struct Of : B {
    static constexpr int kRanks = kRanks_;
};
struct SummedEach : Summed {
    static constexpr int kBf16Each = 1, kGroup = 2;
};
struct SummedClustered : Summed { // rows over clusters
    static constexpr int kHidden = 1024, kBlocks = 4;
};
template <int kRanks_>
struct Gathered : Boundary { // more than a packet a thread
    static constexpr int kRanks = kRanks_;
    static constexpr int kRows = 2, kHidden = 1088, kColumns = kHidden / kRanks;
    static constexpr int kHasBranchGain = 1, kHasAux = 0, kThreads = 64;
};

struct GatheredClustered : Gathered<4> { // the last octets of a block are few
    static constexpr int kThreads = 32, kBlocks = 2;
};

template <class B>
static void boundary_constants(Kernel &k) {
    LATHE_CONSTANTS(k, B, kRows, kHidden, kColumns, kSplits, kBranchEps, kBranchCenter,
                    kHasBranchGain, kEps, kCenter, kHasAux, kThreads);
    LATHE_CONSTANTS(k, B, kGroup, kBf16Each, kBlocks, kRanks);
}

template <class B>
static void launch_boundary(Kernel &k) {
    using Row = RowShape<B::kHidden, B::kThreads, B::kBlocks>;
    k.launch({B::kRows * B::kBlocks}, B::kThreads, 128 + 16 + 32 * Row::kPitch);
    k.cluster(B::kBlocks);
}

template <class B>
static void boundary_inputs(Kernel &k) {
    k.in("s", {B::kRows, B::kHidden}).normal(0.1, 1);
    k.in("alpha", {B::kHidden}).uniform(0.03, 1);
    k.in("beta", {B::kHidden}).uniform(0, 1);
    if (B::kHasBranchGain == 1)
        k.in("branch_gain", {B::kHidden}).normal(1, 2);
    else
        k.null("branch_gain");
    k.in("gain", {B::kHidden}).normal(-2, 2);
    k.out("s_out", {B::kRows, B::kHidden});
    if (B::kHasAux == 1)
        k.out("aux", {B::kRows, B::kHidden});
    else
        k.null("aux");
    k.out("x", {B::kRows, B::kHidden});
}

// Pushes a value as a product would, then receives it.
template <class B>
static void push_and_receive(const bf16 *value, const float *s, const float *alpha,
                             const float *beta, const bf16 *branch_gain, const bf16 *gain,
                             float *s_out, float *aux, bf16 *x, Mailbox *mailbox) {
    constexpr u32 kColumns = B::kColumns == 0 ? B::kHidden : B::kColumns;
    const Exchange e = lamport_open(mailbox, reinterpret_cast<u64 *>(dynamic_shared()));
    grid_wait();
    const u32 epoch = lamport_epoch(e);
    const u32 part = block_id() % B::kBlocks, row = block_id() / B::kBlocks;
    for (u32 i = part * B::kThreads + thread_id(); i < kColumns / 8;
         i += B::kBlocks * B::kThreads) {
        const u32 at = row * kColumns + i * 8;
        lamport_push(e, epoch, at * 2,
                     lamport_bf16_packet(*reinterpret_cast<const u32x4 *>(value + at)));
    }
    block_sync();
    receive_residual_norm<B>(mailbox, mailbox, s, alpha, beta, branch_gain, gain, s_out, aux, x);
}

template <class B>
static void receive(const char *name, const u16 *raw) {
    constexpr int ranks = B::kRanks;
    constexpr int kColumns = B::kColumns == 0 ? B::kHidden : B::kColumns;
    Kernel k(name, push_and_receive<B>, lathe_ref_boundary_receive_residual_norm);
    boundary_constants<B>(k);
    k.ranks(ranks);
    const char *value = B::kColumns == 0 ? "parts" : "columns";
    if (raw)
        k.in(value, {B::kRows, kColumns}).raw(raw);
    else
        k.in(value, {B::kRows, kColumns}).per_rank().normal(0.2, 2);
    boundary_inputs<B>(k);
    k.mailbox("mailbox", 2 * B::kRows * kColumns);
    launch_boundary<B>(k);
    k.repeat(5);
    k.early();
    k.run();
    check_left_clean(k, "mailbox", ranks, 5, 2 * B::kRows * kColumns);
}

template <class B>
static void receive_payload() {
    constexpr int kColumns = B::kColumns == 0 ? B::kHidden : B::kColumns;
    u16 raw[B::kRows * kColumns];
    for (int i = 0; i < B::kRows * kColumns; i++)
        raw[i] = i < 16         ? 0xffff
                 : i < kColumns ? unkind(i)
                                : static_cast<u16>(i % 3 == 0   ? 0x8000
                                                   : i % 3 == 1 ? 1
                                                                : 0x8001);
    receive<B>("unkind payload", raw);
}

// Two layers of two products, each with its boundary behind it: the first product's columns are
// gathered, the second's parts are summed, as in a step.
constexpr int kChainRows = 3, kChainHidden = 192, kExchanges = 4;
template <int kRanks_, int kBf16Each_>
struct Chain {
    static constexpr int kRanks = kRanks_, kBf16Each = kBf16Each_;
};
template <class Ch, int kGathered, int kRing>
struct ChainProduct {
    static constexpr int kRows = kChainRows, kK = kChainHidden, kColumns = kGathered;
    static constexpr int kN = kGathered == 1 ? kChainHidden / Ch::kRanks : kChainHidden;
    static constexpr int kPartials = 0, kSplits = 1, kTiles = 1, kWarps = 2, kSteps = 1;
    static constexpr int kStages = kRing;
};
template <class Ch, int kGathered, int kPushes>
struct ChainBoundary : Boundary {
    static constexpr int kRows = kChainRows, kHidden = kChainHidden;
    static constexpr int kColumns = kGathered == 1 ? kHidden / Ch::kRanks
                                    : kPushes == 1 ? kHidden
                                                   : 0;
    static constexpr int kHasBranchGain = 0, kHasAux = 0, kThreads = 32;
    static constexpr int kBf16Each = Ch::kBf16Each, kRanks = Ch::kRanks, kBlocks = 2;
};

// A number that only (what, rank, index) decide.
static double noise(int what, int rank, int64_t i) {
    return static_cast<double>((i * 48271 + what * 7001 + rank * 3571) * 7919 % 20011) / 10005 - 1;
}

using Kernels = std::vector<std::unique_ptr<Kernel>>;

// Weights are every rank's own; the stream is the same on all.
static void chain_inputs(Kernel &product, int index, int n, const Kernels &before) {
    if (before.empty())
        product.in("x", {kChainRows, kChainHidden}).each([](int, int64_t i) {
            return noise(1, 0, i);
        });
    else
        product.same_as("x", *before.back(), "x");
    product.in("w", {n, kChainHidden}).per_rank().each([index](int rank, int64_t i) {
        return noise(10 + index, rank, i);
    });
}

static void chain_stream(Kernel &boundary, int index, Kernel *before) {
    if (!before)
        boundary.in("s", {kChainRows, kChainHidden}).each([](int, int64_t i) {
            return noise(2, 0, i);
        });
    else
        boundary.same_as("s", *before, "s_out");
    for (const char *name : {"alpha", "beta"})
        boundary.in(name, {kChainHidden}).each([index](int, int64_t i) {
            return 0.6 + 0.3 * noise(20 + index, 0, i);
        });
    boundary.null("branch_gain");
    boundary.in("gain", {kChainHidden}).each([](int, int64_t i) { return noise(3, 0, i); });
    boundary.out("s_out", {kChainRows, kChainHidden});
    boundary.null("aux");
    boundary.out("x", {kChainRows, kChainHidden});
}

template <class Ch, int kGathered>
static void add_pushing(Kernels &list, int index) {
    using C = ChainProduct<Ch, kGathered, 0>;
    using B = ChainBoundary<Ch, kGathered, 1>;
    auto product = std::make_unique<Kernel>("plain product", skinny_gemm<C>, lathe_ref_gemm_skinny);
    auto boundary = std::make_unique<Kernel>("boundary that pushes", exchange_residual_norm<B>,
                                             lathe_ref_boundary_exchange_residual_norm);
    product->ranks(Ch::kRanks);
    product_constants<C>(*product);
    chain_inputs(*product, index, C::kN, list);
    product->out("y", {C::kRows, C::kN});
    product->null("y_partials");
    product->launch({product_blocks<C>(), 1}, product_threads<C>(), product_shared<C>());
    product->early();
    boundary->ranks(Ch::kRanks);
    boundary_constants<B>(*boundary);
    boundary->same_as("branch", *product, "y");
    boundary->null("branch_partials");
    chain_stream(*boundary, index, list.empty() ? nullptr : list.back().get());
    if (list.empty())
        boundary->mailbox("mailbox", 2 * kChainRows * kChainHidden);
    else
        boundary->same_as("mailbox", *list[1], "mailbox");
    launch_boundary<B>(*boundary);
    boundary->early();
    list.push_back(std::move(product));
    list.push_back(std::move(boundary));
}

template <class C>
static void publish_unless_rank_1(const bf16 *x, const bf16 *w, Mailbox *y_columns,
                                  Mailbox *y_parts) {
    if (y_columns->rank == 1)
        grid_wait();
    else
        publish_gemm<C>(x, w, y_columns, y_parts);
}

// The kernel that makes the chain reads both arguments from one mailbox.
template <class Ch, int kGathered>
static void add_publishing(Kernels &list, int index, uint64_t timeout_ns, bool lost) {
    using C = ChainProduct<Ch, kGathered, 2>; // the bits are the same
    using B = ChainBoundary<Ch, kGathered, 0>;
    auto product = std::make_unique<Kernel>(
        "product that publishes", lost ? publish_unless_rank_1<C> : publish_gemm<C>, nullptr);
    auto boundary =
        std::make_unique<Kernel>("boundary that receives", receive_residual_norm<B>, nullptr);
    product->ranks(Ch::kRanks);
    product_constants<C>(*product);
    chain_inputs(*product, index, C::kN, list);
    if (list.empty())
        product->mailbox("y_columns", 2 * kChainRows * kChainHidden, timeout_ns);
    else
        product->same_as("y_columns", *list[0], "y_columns");
    product->same_as("y_parts", list.empty() ? *product : *list[0], "y_columns");
    product->launch({product_blocks<C>()}, product_threads<C>(),
                    kLamportShared + product_shared<C>());
    product->early();
    boundary->ranks(Ch::kRanks);
    boundary_constants<B>(*boundary);
    boundary->same_as("columns", *product, "y_columns");
    boundary->same_as("parts", *product, "y_columns");
    chain_stream(*boundary, index, list.empty() ? nullptr : list.back().get());
    launch_boundary<B>(*boundary);
    boundary->early();
    list.push_back(std::move(product));
    list.push_back(std::move(boundary));
}

static void run_chain(const Kernels &list, int seeds) {
    std::vector<Kernel *> kernels;
    for (const auto &k : list)
        kernels.push_back(k.get());
    kernels[0]->seeds(seeds);
    harness::run(kernels);
}

template <class Ch>
static Kernels publishing_chain(uint64_t timeout_ns, bool lost) {
    Kernels list;
    for (int i = 0; i < kExchanges; i += 2) {
        add_publishing<Ch, 1>(list, i, timeout_ns, lost);
        add_publishing<Ch, 0>(list, i + 1, timeout_ns, lost);
    }
    return list;
}

// Both pairs give the same bits, on every rank, after every exchange.
template <class Ch>
static void compare_pairs() {
    Kernels pushing;
    for (int i = 0; i < kExchanges; i += 2) {
        add_pushing<Ch, 1>(pushing, i);
        add_pushing<Ch, 0>(pushing, i + 1);
    }
    run_chain(pushing, 3);
    const Kernels publishing = publishing_chain<Ch>(10000000000, false);
    run_chain(publishing, 8);
    for (int i = 1; i < 2 * kExchanges; i += 2)
        for (int rank = 0; rank < Ch::kRanks; rank++) {
            const size_t n = kChainRows * kChainHidden;
            const Kernel &a = *pushing[static_cast<size_t>(i)],
                         &b = *publishing[static_cast<size_t>(i)];
            require(std::memcmp(a.result("s_out"), b.result("s_out", rank), 4 * n) == 0 &&
                        std::memcmp(a.result("x"), b.result("x", rank), 2 * n) == 0,
                    "exchange %d, rank %d: the pairs give other bits", i / 2, rank);
        }
    check_left_clean(*publishing[0], "y_columns", Ch::kRanks, kExchanges,
                     2 * kChainRows * kChainHidden);
}

template <class Ch>
static void check_lost_rank() {
    const Kernels list = publishing_chain<Ch>(2000000, true);
    run_chain(list, 1); // what the ranks compute then is undefined, so no two seeds need agree
    for (int rank = 0; rank < Ch::kRanks; rank++)
        require(mailbox_of(*list[0], "y_columns", rank)->abort[0] == 1,
                "rank %d was not told to abort", rank);
    bool recorded = false; // by whoever gave up first: rank 1 misses its own parts as well
    for (int rank = 0; rank < Ch::kRanks; rank++) {
        const Mailbox *m = mailbox_of(*list[0], "y_columns", rank);
        require(m->epoch[0] == kExchanges, "epoch %u: a launch did not fall through", m->epoch[0]);
        require(m->fault[0] == 0 || Ch::kRanks > 2 || (m->fault[1] == 1 && m->fault[3] == 0),
                "rank %d: lost rank %llu, epoch %llu", rank, m->fault[1], m->fault[3]);
        recorded = recorded || m->fault[0] == 1;
    }
    require(recorded, "no rank recorded the fault");
}

int main() {
    look<Tiny>("tiny, one rank", 1, 4, nullptr, nullptr);
    look<Tiny>("tiny, two ranks", 2, 7, nullptr, nullptr);
    look<Odd>("odd, two ranks", 2, 4, nullptr, nullptr);
    look<Odd>("odd, four ranks", 4, 3, nullptr, nullptr);
    look<Tiny>("tiny, sixteen ranks", 16, 2, nullptr, nullptr);
    look<Ringed>("through a ring, two ranks", 2, 4, nullptr, nullptr);
    look<Real>("real, two ranks", 2, 2, nullptr, nullptr);
    look_at_payload();
    receive<Of<Summed, 1>>("parts of one rank", nullptr);
    receive<Of<Summed, 2>>("parts of two ranks", nullptr);
    receive<Of<Summed, 4>>("parts of four ranks", nullptr);
    receive<Of<Summed, 16>>("parts of sixteen ranks", nullptr);
    receive<Of<SummedEach, 4>>("rounded after every addition, four ranks", nullptr);
    receive<Gathered<1>>("columns of one rank", nullptr);
    receive<Gathered<2>>("columns of two ranks", nullptr);
    receive<Gathered<4>>("columns of four ranks", nullptr);
    receive<Of<SummedClustered, 4>>("parts of four ranks, rows over clusters", nullptr);
    receive<GatheredClustered>("columns of four ranks, rows over clusters", nullptr);
    receive_payload<Summed>();
    receive_payload<SummedEach>();
    receive_payload<Gathered<2>>();
    compare_pairs<Chain<1, 0>>();
    compare_pairs<Chain<2, 0>>();
    compare_pairs<Chain<4, 0>>();
    compare_pairs<Chain<4, 1>>();
    check_lost_rank<Chain<2, 0>>();
    check_lost_rank<Chain<4, 0>>();
    return finish("gemm/publish and boundary/receive_residual_norm");
}
