// SPDX-License-Identifier: Apache-2.0
// moe/tail: routes of other ranks, a token without any route, NaN in rows that nobody may read, a
// NaN weight.
#include "harness.h"
#include "moe/tail.cuh"

#include <cmath>

extern "C" void lathe_ref_moe_tail(lathe_ref *r);

template <int rows, int width, int top_k, int warps>
struct Config {
    static constexpr int kRows = rows, kWidth = width, kTopK = top_k, kRoutes = rows * top_k;
    static constexpr int kExpertRows = rows * top_k * 2 + 3, kCenter = 1, kWarps = warps;
    static constexpr double kEps = 1e-8;
};
using Tiny = Config<3, 64, 2, 1>;
using Odd = Config<6, 1048, 3, 2>; // 131 pieces of eight over 64 threads
using Real = Config<8, 4096, 8, 16>;

// Every other row of the permuted space is padding; every third route is elsewhere; token 1 has
// none.
template <class C>
static int row_of(int64_t x) {
    return x % 3 == 2 || x / C::kTopK == 1 ? -1 : static_cast<int>((x * 5 % C::kRoutes) * 2);
}

template <class C>
static bool is_read(int64_t row) {
    for (int64_t x = 0; x < C::kRoutes; x++)
        if (row_of<C>(x) == row)
            return true;
    return false;
}

template <class C>
static void check(const char *name) {
    Kernel k(name, tail<C>, lathe_ref_moe_tail);
    LATHE_CONSTANTS(k, C, kRows, kWidth, kTopK, kRoutes, kExpertRows, kCenter, kEps);
    std::vector<bool> read;
    for (int64_t row = 0; row < C::kExpertRows; row++)
        read.push_back(is_read<C>(row));
    k.in("rows", {C::kExpertRows, C::kWidth})
        .each([&read](int, int64_t i) {
            const int64_t row = i / C::kWidth;
            if (!read[static_cast<size_t>(row)])
                return static_cast<double>(NAN);
            if (row == 0)
                return 0.0;
            return std::sin(static_cast<double>(i) * 0.7) *
                   std::pow(10.0, static_cast<double>(row % 9) - 4);
        })
        .late();
    k.in("expanded_to_permuted", {C::kRoutes})
        .each([](int, int64_t x) { return row_of<C>(x); })
        .late();
    k.in("gain", {C::kWidth}).normal(0.3, 0.7);
    k.in("weights", {C::kRows, C::kTopK})
        .each([](int, int64_t x) {
            return row_of<C>(x) < 0 || x / C::kTopK == 2 ? static_cast<double>(NAN)
                                                         : 1.0 / static_cast<double>(x + 2);
        })
        .late();
    k.out("m", {C::kRows, C::kWidth});
    k.launch({C::kRows}, C::kWarps * 32, C::kWarps * C::kTopK * 4);
    k.run();
}

int main() {
    check<Tiny>("tiny");
    check<Odd>("odd");
    check<Real>("real");
    return finish("moe/tail");
}
