// SPDX-License-Identifier: Apache-2.0
// moe/exchange_expert_norm and moe/exchange_norm_quantise: pooled columns of 1, 2 and 4 ranks, many
// exchanges in a row, K-split sums, unkind payloads, a lost rank.
#include "mailboxes.h"
#include "moe/exchange_expert_norm.cuh"
#include "moe/exchange_norm_quantise.cuh"
#include "routing_part.h"

#include <algorithm>
#include <cmath>

extern "C" {
void lathe_ref_moe_exchange_expert_norm(lathe_ref *r);
void lathe_ref_moe_exchange_norm_quantise(lathe_ref *r);
}

template <int rows, int width, int ranks, int splits, int warps, class Route = NotRouted>
struct Config : Route {
    static constexpr int kRows = rows, kWidth = width, kColumns = width / ranks, kSplits = splits;
    static constexpr int kCodeBytes = width / 2, kBlocks = width / 16;
    static constexpr int kCenter = rows % 2, kWarps = warps, kRanks = ranks;
    static constexpr u64 kSlotBytes = 2ull * rows * (width / ranks);
    static constexpr double kEps = 1e-5;
};

// Exchange number e works on rows [e kRows, (e + 1) kRows): no two carry the same.
template <class C>
static void rotating(const bf16 *columns, const float *partials, const bf16 *gain, bf16 *h1,
                     Mailbox *mailbox) {
    grid_wait();
    const i64 row = i64{gpu_load(mailbox->epoch)} * C::kRows;
    exchange_expert_norm<C>(columns + row * C::kColumns, partials, gain, h1 + row * C::kWidth,
                            nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                            nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, mailbox);
}

template <class C>
static void check_rotation(const char *name, int exchanges) {
    const int rows = exchanges * C::kRows;
    Kernel k(name, rotating<C>, lathe_ref_moe_exchange_expert_norm);
    LATHE_CONSTANTS(k, C, kWidth, kColumns, kSplits, kCenter, kEps);
    k.constant("kRows", rows, true);
    k.constant("kRoutes", 0, true);
    k.ranks(C::kRanks);
    k.in("columns", {rows, C::kColumns}).per_rank().normal(0.3, 2);
    k.null("partials");
    k.in("gain", {C::kWidth}).normal(0.2, 0.6);
    k.out("h1", {rows, C::kWidth});
    k.mailbox("mailbox", C::kSlotBytes);
    k.launch({C::kRows}, C::kWarps * 32, 128 + C::kWarps * 4);
    k.repeat(exchanges);
    k.early();
    k.run();
    mailboxes::check_left_clean(k, "mailbox", C::kRanks, static_cast<u32>(exchanges),
                                C::kSlotBytes);
}

// NaN of every sign and payload (0xffff twice is an empty word), infinities, subnormals, zeros.
static const u16 unkind[] = {0xffff, 0xffff, 0x7fff, 0xff81, 0x7f80,
                             0xff80, 0x0001, 0x8000, 0x7fc0};

// Row 0 unkind, row 1 zeros of both signs, row 2 subnormals, all others normal.
template <class C>
static void payload(std::vector<u16> &columns) {
    for (int i = 0; i < C::kRows * C::kColumns; i++) {
        const int row = i / C::kColumns;
        columns.push_back(row == 0   ? unkind[i % 9]
                          : row == 1 ? static_cast<u16>(i % 2 == 0 ? 0x8000 : 0)
                          : row == 2 ? static_cast<u16>(i % 3 == 0 ? 0x8001 : 0x0001)
                                     : static_cast<u16>(0x3f80 + i * 37 % 512));
    }
}

template <class C>
static void describe(Kernel &k) {
    LATHE_CONSTANTS(k, C, kRows, kWidth, kColumns, kCodeBytes, kBlocks, kSplits, kCenter, kEps);
    k.ranks(C::kRanks);
    k.in("gain", {C::kWidth}).normal(0.2, 0.6);
    k.in("input_gscale", {1}).fill(311.7);
    k.out("codes", {C::kRows, C::kCodeBytes});
    k.out("scales", {C::kRows, C::kBlocks});
    add_routing<C>(k, C::kRanks);
    k.mailbox("mailbox", C::kSlotBytes);
    k.launch({C::kRows + (C::kRoutes > 0 ? 1 : 0)}, C::kWarps * 32,
             128 + std::max(C::kWarps * 4, C::kRoutingBytes));
    k.repeat(4);
    k.early();
    k.allow("codes", 1e-3, "design.md, what a number may be off by, line 2: rounding ties");
}

template <class C>
static void check_quantise(const char *name, bool is_unkind = false) {
    Kernel k(name, exchange_norm_quantise<C>, lathe_ref_moe_exchange_norm_quantise);
    std::vector<u16> columns;
    if (C::kSplits > 0) {
        k.null("columns");
        k.in("partials", {C::kSplits, C::kRows, C::kColumns}).per_rank().normal(0.2, 2);
    } else if (is_unkind) {
        payload<C>(columns);
        k.in("columns", {C::kRows, C::kColumns}).raw(columns.data());
        k.null("partials");
    } else {
        k.in("columns", {C::kRows, C::kColumns}).per_rank().normal(0.2, 2);
        k.null("partials");
    }
    describe<C>(k);
    k.run();
    mailboxes::check_left_clean(k, "mailbox", C::kRanks, 4, C::kSlotBytes);
}

// Rank 1 never comes.
template <class C>
static void without_rank_1(const bf16 *columns, const float *partials, const bf16 *gain, bf16 *h1,
                           Mailbox *mailbox) {
    if (mailbox->rank == 1)
        grid_wait();
    else
        exchange_expert_norm<C>(columns, partials, gain, h1, nullptr, nullptr, nullptr, nullptr,
                                nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                nullptr, nullptr, nullptr, mailbox);
}

static void check_lost_rank() {
    using C = Config<3, 256, 2, 0, 1>;
    Kernel k("a rank is lost", without_rank_1<C>, nullptr);
    k.ranks(2);
    k.in("columns", {C::kRows, C::kColumns}).per_rank().normal(0, 1);
    k.null("partials");
    k.in("gain", {C::kWidth}).normal(0.2, 0.6);
    k.out("h1", {C::kRows, C::kWidth});
    k.mailbox("mailbox", C::kSlotBytes, 2000000);
    k.launch({C::kRows}, C::kWarps * 32, 128 + C::kWarps * 4);
    k.repeat(2);
    k.early();
    k.seeds(1); // what rank 0 computed from is undefined, so no two seeds need agree
    k.run();
    mailboxes::check_lost(k, "mailbox", 2, 1, 2);
}

int main() {
    check_rotation<Config<1, 64, 1, 0, 1>>("one rank", 4);
    check_rotation<Config<3, 96, 2, 0, 1>>("two ranks", 9);
    check_rotation<Config<2, 1088, 4, 0, 1>>("four ranks, three slots a thread", 7);
    check_quantise<Config<3, 64, 1, 0, 1>>("quantised, one rank");
    check_quantise<Config<5, 512, 2, 0, 1>>("quantised, two ranks");
    check_quantise<Config<4, 512, 4, 0, 1>>("quantised, four ranks");
    check_quantise<Config<6, 1088, 4, 3, 2>>("quantised K-split sums, four ranks");
    check_quantise<Config<8, 4096, 2, 2, 8>>("quantised, real");
    check_quantise<Config<5, 128, 2, 0, 1>>("quantised, unkind payload", true);
    check_quantise<Config<5, 512, 2, 0, 2, Routed<5, 40, 3, 20, 4, 1, 1, 2>>>("and routing");
    check_quantise<Config<4, 256, 4, 0, 1>>("quantised, unkind payload of four ranks", true);
    check_lost_rank();
    return finish("moe/exchange_expert_norm, moe/exchange_norm_quantise");
}
