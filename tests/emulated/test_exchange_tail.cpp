// SPDX-License-Identifier: Apache-2.0
// moe/exchange_tail and moe/exchange_route_tail: 1, 2 and 4 ranks, many exchanges in a row, ranks
// without a route, permutations that differ from rank to rank, NaN in rows that nobody may read and
// in rows that count, a lost rank.
#include "mailboxes.h"
#include "moe/exchange_route_tail.cuh"
#include "moe/exchange_tail.cuh"

#include <cmath>

extern "C" {
void lathe_ref_moe_exchange_tail(lathe_ref *r);
void lathe_ref_moe_exchange_route_tail(lathe_ref *r);
}

template <int rows, int width, int top_k, int warps, int group, int ranks, int each = 0,
          int blocks = 1>
struct Config {
    static constexpr int kRows = rows, kWidth = width, kTopK = top_k, kRoutes = rows * top_k;
    static constexpr int kExpertRows = rows * top_k * 2 + 3, kCenter = 1, kWarps = warps;
    static constexpr int kGroup = group, kRanks = ranks, kBf16Each = each, kBlocks = blocks;
    static constexpr double kEps = 1e-8;
    static constexpr u64 kTailBytes = 2ull * rows * width;
    static constexpr u64 kRouteBytes = 2ull * rows * top_k * width;
};

// Who has the route of an expanded index, by whole experts: token 1 has none, and with more than
// two ranks the last has no route of any token.
template <class C>
static int owner(int64_t x) {
    if (x / C::kTopK == 1)
        return -1;
    return static_cast<int>(x * 7 % 5) % (C::kRanks > 2 ? C::kRanks - 1 : C::kRanks);
}

// Every other row of the permuted space is padding; each rank has a permutation of its own.
template <class C>
static int row_of(int rank, int64_t x) {
    return static_cast<int>((x * 5 + rank * 3) % C::kRoutes * 2);
}

template <class C>
static int local_row(int rank, int64_t x) {
    return owner<C>(x) == rank ? row_of<C>(rank, x) : -1;
}

// With sliced experts a route is padding on all ranks or on none.
template <class C>
static int shared_row(int rank, int64_t x) {
    return x / C::kTopK == 1 ? -1 : row_of<C>(rank, x);
}

template <class C, int (*row)(int, int64_t)>
static double row_value(int rank, int64_t i, bool is_unkind) {
    int64_t x = -1;
    for (int64_t route = 0; route < C::kRoutes; route++)
        if (row(rank, route) == i / C::kWidth)
            x = route;
    if (x < 0)
        return static_cast<double>(NAN); // padding: read by nobody
    if (is_unkind && x / C::kTopK == 2)
        return i % 3 == 0 ? static_cast<double>(NAN) : i % 3 == 1 ? HUGE_VAL : -0.0;
    if (x == 0)
        return 0.0; // a row of zeros
    return std::sin(static_cast<double>(i) * 0.7 + rank) *
           std::pow(10.0, static_cast<double>(x % 9) - 4);
}

template <class C, bool kRoutesSummed>
static void launch(Kernel &k) {
    constexpr int kItems = C::kTopK * (C::kWidth / 8 / C::kBlocks);
    k.cluster(C::kBlocks);
    if constexpr (kRoutesSummed)
        k.launch({C::kRows * C::kBlocks}, C::kWarps * 32,
                 128 + 16 + 20 * kItems + 4 * C::kTopK * C::kBlocks);
    else
        k.launch({C::kRows}, C::kWarps * 32, 128 + C::kWarps * C::kTopK * 4);
    k.early();
}

template <class C, int (*row)(int, int64_t)>
static void describe(Kernel &k, bool is_unkind, u64 bytes, u64 timeout_ns = 10000000000) {
    LATHE_CONSTANTS(k, C, kRows, kWidth, kTopK, kRoutes, kExpertRows, kCenter, kEps, kGroup,
                    kBf16Each);
    k.ranks(C::kRanks);
    k.in("rows", {C::kExpertRows, C::kWidth}).per_rank().each([is_unkind](int rank, int64_t i) {
        return row_value<C, row>(rank, i, is_unkind);
    });
    k.in("expanded_to_permuted", {C::kRoutes}).per_rank().each(row);
    k.in("gain", {C::kWidth}).normal(0.3, 0.7);
    k.in("weights", {C::kRows, C::kTopK}).each([](int, int64_t x) {
        return x / C::kTopK == 1 ? static_cast<double>(NAN) : 1.0 / static_cast<double>(x + 2);
    });
    k.out("m", {C::kRows, C::kWidth});
    k.mailbox("mailbox", bytes, timeout_ns);
}

template <class C>
static void check_ep(const char *name, bool is_unkind = false) {
    Kernel k(name, exchange_tail<C>, lathe_ref_moe_exchange_tail);
    describe<C, local_row<C>>(k, is_unkind, C::kTailBytes);
    launch<C, false>(k);
    k.repeat(4);
    k.run();
    mailboxes::check_left_clean(k, "mailbox", C::kRanks, 4, C::kTailBytes);
}

template <class C>
static void check_routes(const char *name, bool is_unkind = false) {
    Kernel k(name, exchange_route_tail<C>, lathe_ref_moe_exchange_route_tail);
    describe<C, shared_row<C>>(k, is_unkind, C::kRouteBytes);
    launch<C, true>(k);
    k.repeat(4);
    k.run();
    mailboxes::check_left_clean(k, "mailbox", C::kRanks, 4, C::kRouteBytes);
}

// Exchange number e works on tokens [e kRows, (e + 1) kRows) of everything but the expert rows:
// what an earlier exchange left would be another token's.
template <class C, bool kRoutesSummed>
static void rotating(const bf16 *rows, const int *expanded_to_permuted, const bf16 *gain,
                     const float *weights, bf16 *m, Mailbox *mailbox) {
    grid_wait();
    const i64 token = i64{gpu_load(mailbox->epoch)} * C::kRows;
    const int *routes = expanded_to_permuted + token * C::kTopK;
    if constexpr (kRoutesSummed)
        exchange_route_tail<C>(rows, routes, gain, weights + token * C::kTopK,
                               m + token * C::kWidth, mailbox);
    else
        exchange_tail<C>(rows, routes, gain, weights + token * C::kTopK, m + token * C::kWidth,
                         mailbox);
}

// The tokens of all exchanges in a row, whose routes take the rows of the permuted space in turn.
template <class C, bool kRoutesSummed>
static void check_rotation(const char *name, int exchanges) {
    const int64_t routes = int64_t{exchanges} * C::kRoutes;
    const u64 bytes = kRoutesSummed ? C::kRouteBytes : C::kTailBytes;
    Kernel k(name, rotating<C, kRoutesSummed>,
             kRoutesSummed ? lathe_ref_moe_exchange_route_tail : lathe_ref_moe_exchange_tail);
    LATHE_CONSTANTS(k, C, kWidth, kTopK, kExpertRows, kCenter, kEps, kGroup, kBf16Each);
    k.constant("kRows", exchanges * C::kRows, true);
    k.constant("kRoutes", static_cast<double>(routes), true);
    k.ranks(C::kRanks);
    k.in("rows", {C::kExpertRows, C::kWidth}).per_rank().normal(0, 1);
    k.in("expanded_to_permuted", {routes}).per_rank().each([](int rank, int64_t x) {
        const bool is_here = kRoutesSummed || x % C::kRanks == rank;
        return is_here ? static_cast<double>((x * 3 + rank) % C::kExpertRows) : -1.0;
    });
    k.in("gain", {C::kWidth}).normal(0.3, 0.7);
    k.in("weights", {exchanges * C::kRows, C::kTopK}).uniform(0.05, 1);
    k.out("m", {exchanges * C::kRows, C::kWidth});
    k.mailbox("mailbox", bytes);
    launch<C, kRoutesSummed>(k);
    k.repeat(exchanges);
    k.run();
    mailboxes::check_left_clean(k, "mailbox", C::kRanks, static_cast<u32>(exchanges), bytes);
}

// Rank 1 never comes.
template <class C, bool kRoutesSummed>
static void without_rank_1(const bf16 *rows, const int *expanded_to_permuted, const bf16 *gain,
                           const float *weights, bf16 *m, Mailbox *mailbox) {
    if (mailbox->rank == 1)
        grid_wait();
    else if constexpr (kRoutesSummed)
        exchange_route_tail<C>(rows, expanded_to_permuted, gain, weights, m, mailbox);
    else
        exchange_tail<C>(rows, expanded_to_permuted, gain, weights, m, mailbox);
}

template <bool kRoutesSummed>
static void check_lost_rank(const char *name) {
    using C = Config<3, 64, 2, 1, 2, 2>;
    Kernel k(name, without_rank_1<C, kRoutesSummed>, nullptr);
    describe<C, shared_row<C>>(k, false, kRoutesSummed ? C::kRouteBytes : C::kTailBytes, 2000000);
    launch<C, kRoutesSummed>(k);
    k.repeat(2);
    k.seeds(1); // what rank 0 computed from is undefined, so no two seeds need agree
    k.run();
    mailboxes::check_lost(k, "mailbox", 2, 1, 2);
}

int main() {
    check_ep<Config<3, 64, 2, 1, 4, 1>>("whole experts, one rank");
    check_ep<Config<3, 64, 2, 1, 4, 2>>("whole experts, two ranks");
    check_ep<Config<6, 1048, 3, 2, 2, 4>>("whole experts, four ranks, one without routes");
    check_ep<Config<8, 2048, 8, 8, 4, 2>>("whole experts, real");
    check_ep<Config<4, 64, 2, 1, 4, 2>>("whole experts, unkind payload", true);
    check_rotation<Config<2, 64, 2, 1, 2, 2>, false>("whole experts, exchanges in a row", 9);
    check_routes<Config<3, 64, 2, 1, 2, 1>>("sliced experts, one rank");
    check_routes<Config<3, 64, 3, 1, 2, 2>>("sliced experts, two ranks, a short group");
    check_routes<Config<5, 1048, 3, 2, 4, 4>>("sliced experts, four ranks");
    check_routes<Config<3, 512, 2, 2, 4, 4, 0, 4>>("sliced experts, a token over a cluster");
    check_routes<Config<2, 320, 3, 1, 7, 3, 1, 4>>("sliced experts, a cluster, rounded each time");
    check_routes<Config<2, 2048, 8, 4, 4, 2, 0, 8>>("sliced experts, real");
    check_routes<Config<4, 64, 2, 1, 2, 2>>("sliced experts, unkind payload", true);
    check_rotation<Config<2, 64, 2, 1, 2, 2>, true>("sliced experts, exchanges in a row", 9);
    check_ep<Config<3, 64, 2, 1, 2, 4, 1>>("whole experts, rounded after each addition");
    check_routes<Config<3, 64, 2, 1, 2, 4, 1>>("sliced experts, rounded after each addition");
    check_lost_rank<false>("whole experts, a rank is lost");
    check_lost_rank<true>("sliced experts, a rank is lost");
    return finish("moe/exchange_tail, moe/exchange_route_tail");
}
