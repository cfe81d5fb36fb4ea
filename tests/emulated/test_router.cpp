// SPDX-License-Identifier: Apache-2.0
// moe/router: chunks that do not divide by the threads, several pieces, tokens and experts of very
// different size.
#include "harness.h"
#include "moe/router.cuh"

#include <cmath>

extern "C" void lathe_ref_moe_router(lathe_ref *r);

struct Tiny {
    static constexpr int kRows = 3, kHidden = 128, kExperts = 8, kBlockExperts = 2, kWarps = 1,
                         kHeld = 1;
};
struct Odd {
    static constexpr int kRows = 5, kHidden = 1060, kExperts = 9, kBlockExperts = 1, kWarps = 2,
                         kHeld = 3; // two pieces, the second nearly empty
};
struct Real {
    static constexpr int kRows = 8, kHidden = 8192, kExperts = 16, kBlockExperts = 4, kWarps = 8,
                         kHeld = 8;
};
struct Many {
    static constexpr int kRows = 32, kHidden = 256, kExperts = 4, kBlockExperts = 2, kWarps = 2,
                         kHeld = 1;
};

template <class C>
static void check(const char *name) {
    Kernel k(name, router<C>, lathe_ref_moe_router);
    LATHE_CONSTANTS(k, C, kRows, kHidden, kExperts);
    k.in("x", {C::kRows, C::kHidden})
        .each([](int, int64_t i) {
            const double size = i / C::kHidden == 1 ? 1e-4 : 1; // a small token
            return size * std::sin(static_cast<double>(i) * 0.7 + 0.3);
        })
        .late();
    k.in("w", {C::kExperts, C::kHidden}).each([](int, int64_t i) {
        const double size = std::ldexp(1.0, static_cast<int>(i / C::kHidden % 5) * 3 - 6);
        return size * std::cos(static_cast<double>(i) * 1.3);
    });
    k.out("logits", {C::kRows, C::kExperts});
    k.launch({C::kExperts / C::kBlockExperts}, C::kWarps * 32,
             C::kWarps * C::kBlockExperts * C::kRows * 4);
    k.run();
}

int main() {
    check<Tiny>("tiny");
    check<Odd>("odd");
    check<Real>("real");
    check<Many>("many rows");
    return finish("moe/router");
}
