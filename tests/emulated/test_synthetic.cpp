// SPDX-License-Identifier: Apache-2.0
// The rounding of the generator of synthetic weights. Its values are held against the host's in
// tests/unit/test_generator.c; ties are too rare there.
#include "harness.h"
#include "synthetic/fill.cuh"

#include <cmath>

static double value_of(unsigned code) {
    const unsigned exponent = code >> 3 & 15u, mantissa = code & 7u;
    return exponent == 0 ? std::ldexp(mantissa, -9)
                         : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
}

static void expect(double x, unsigned wanted) {
    require(synthetic_e4m3(x) == wanted, "e4m3 of %a is %x, wanted %x", x, synthetic_e4m3(x),
            wanted);
    require(synthetic_e4m3(-x) == (wanted | 0x80), "e4m3 of -%a is %x", x, synthetic_e4m3(-x));
}

static void test_e4m3() {
    for (unsigned code = 0; code < 0x7f; code++) {
        expect(value_of(code), code);
        if (code == 0x7e)
            break;
        const double tie = (value_of(code) + value_of(code + 1)) / 2;
        expect(tie, code + (code & 1));
        expect(std::nextafter(tie, 0.0), code);
        expect(std::nextafter(tie, 1e9), code + 1);
    }
    expect(1e9, 0x7e);
    expect(1e-300, 0);
}

static void test_double_prims() {
    require(double_bits(-1.5) == 0xbff8000000000000ull, "bits of -1.5: %llx", double_bits(-1.5));
    require(bits_double(double_bits(0.1)) == 0.1, "bits and back");
    // 1 + 2^-30 squared is 1 + 2^-29 + 2^-60: an fma would keep the last term.
    const double x = 1.0 + 0x1p-30;
    require(mul_f64(x, x) - (1.0 + 0x1p-29) == 0.0, "mul_f64 is not rounded by itself");
}

int main() {
    test_e4m3();
    test_double_prims();
}
