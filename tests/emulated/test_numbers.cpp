// SPDX-License-Identifier: Apache-2.0
// Conversions and functions of the host prims against plain C.
#include "harness.h"

#include <cmath>
#include <cstdio>

static double e4m3_of(unsigned code) {
    const unsigned exponent = code >> 3 & 15u, mantissa = code & 7u;
    return exponent == 0 ? std::ldexp(mantissa, -9)
                         : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
}

// Nearest of codes 0 to `last`, the even one of two.
template <class Value>
static unsigned nearest(double x, unsigned last, Value value) {
    unsigned best = 0;
    for (unsigned code = 1; code <= last; code++) {
        const double here = std::fabs(x - value(code)), there = std::fabs(x - value(best));
        if (here < there || (here == there && code % 2 == 0))
            best = code;
    }
    return best;
}

static void check_small_floats(float x) {
    const auto e2m1_of = [](unsigned code) { return static_cast<double>(e2m1_to_float(code)); };
    const double magnitude = std::fmin(std::fabs(static_cast<double>(x)), 1000.0);
    const unsigned sign = std::signbit(x) ? 1 : 0;
    const unsigned wide = nearest(magnitude, 0x7e, e4m3_of) | sign << 7;
    const unsigned narrow = nearest(magnitude, 7, e2m1_of) | sign << 3;
    require(float_to_e4m3(x).bits == wide, "e4m3 of %a is %x, wanted %x", static_cast<double>(x),
            float_to_e4m3(x).bits, wide);
    require(float_to_e2m1(x) == narrow, "e2m1 of %a is %x, wanted %x", static_cast<double>(x),
            float_to_e2m1(x), narrow);
}

// A product of two bf16 is exact in double; what is left is one rounding, down to 2^-133.
static void check_product(u32 a, u32 b, u32 found) {
    const double exact =
        static_cast<double>(bits_float(a << 16)) * static_cast<double>(bits_float(b << 16));
    if (std::isnan(exact)) {
        require(found == 0x7fffu, "%04x * %04x is %04x, wanted a NaN", a, b, found);
        return;
    }
    int exponent = 0;
    std::frexp(exact, &exponent);
    const int unit = exponent - 8 < -133 ? -133 : exponent - 8;
    const double rounded =
        std::isinf(exact) ? exact : std::ldexp(std::nearbyint(std::ldexp(exact, -unit)), unit);
    const double got = static_cast<double>(bits_float(found << 16));
    const bool large = std::fabs(rounded) >= 0x1p128;
    require(large ? std::isinf(got) && std::signbit(got) == std::signbit(rounded)
                  : got == rounded && std::signbit(got) == std::signbit(exact),
            "%04x * %04x is %04x", a, b, found);
}

static void test_numbers() {
    for (unsigned code = 0; code < 0x7f; code++) {
        const float here = static_cast<float>(e4m3_of(code));
        require(e4m3_to_float(e4m3{static_cast<u8>(code)}) == here, "e4m3 code %u", code);
        require(e4m3_to_float(e4m3{static_cast<u8>(code | 0x80)}) == -here, "e4m3 code -%u", code);
        const float next = code < 0x7e ? static_cast<float>(e4m3_of(code + 1)) : here + 32.0f;
        const float middle = (here + next) / 2;
        for (float x : {here, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
            check_small_floats(x);
            check_small_floats(-x);
        }
    }
    const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (u32 code = 0; code < 8; code++) {
        require(e2m1_to_float(code) == e2m1[code], "e2m1 code %u", code);
        require(float_bits(e2m1_to_float(code | 8)) == float_bits(-e2m1[code]), "e2m1 -%u", code);
        const float middle = (e2m1[code] + (code < 7 ? e2m1[code + 1] : 8.0f)) / 2;
        for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 9.0f)}) {
            check_small_floats(x);
            check_small_floats(-x);
        }
    }
    for (float x : {1e30f, -1e30f, HUGE_VALF, -HUGE_VALF, 1e-30f, -0.0f, 464.0f, 463.99f})
        check_small_floats(x);
    require(float_to_e4m3(NAN).bits == 0x7f && float_to_e2m1(NAN) == 7, "NaN of small floats");
    u32 word = 12345;
    for (int i = 0; i < 2000000; i++) {
        word = word * 1664525u + 1013904223u;
        const float x = bits_float(word ^ (i % 3 == 0 ? 0x8000u : 0));
        if (std::isnan(x))
            require(float_to_bf16(x).bits == 0x7fff, "bf16 of NaN");
        else
            require(float_to_bf16(x).bits == lathe_bf16_bits(static_cast<double>(x)), "bf16 of %a",
                    static_cast<double>(x));
        if (i % 64 == 0) { /* the same mantissa where small floats have values */
            const u32 exponent = 107u + static_cast<u32>(i / 64 % 32);
            check_small_floats(bits_float((word & 0x807fffffu) | exponent << 23));
        }
    }
    require(pack_bf16(1.0f, -2.0f) == 0xc0003f80u, "pack_bf16");
    for (u32 i = 0; i < 1u << 20; i++) {
        const u32 a = i * 2654435761u;
        const u32 b = i % 3 == 0 ? a >> 7 : (a ^ i) * 2246822519u;
        const u32 product = multiply_bf16(a, b);
        check_product(a & 0xffffu, b & 0xffffu, product & 0xffffu);
        check_product(a >> 16, b >> 16, product >> 16);
    }
    require(permute_bytes(0x44332211u, 0x88776655u, 0x7250u) == 0x88336611u, "permute_bytes");
    require(bf16_low(0xc0003f80u) == 1.0f && bf16_high(0xc0003f80u) == -2.0f, "bf16 halves");
}

static void test_maths() {
    for (int i = -2000; i <= 2000; i++) {
        const float x = static_cast<float>(i) * 0.05f;
        const double d = static_cast<double>(x);
        const auto near = [&](float found, double want, const char *what) {
            const double off = std::fabs(static_cast<double>(found) - want);
            require(off <= std::fabs(want) * 0x1p-22 + 0x1p-149, "%s(%g) is %g, wanted %g", what, d,
                    static_cast<double>(found), want);
        };
        near(tanh_f32(x), std::tanh(d), "tanh");
        near(sigmoid_f32(x), 1 / (1 + std::exp(-d)), "sigmoid");
        if (std::fabs(d) < 80) {
            near(exp_f32(x), std::exp(d), "exp");
            near(exp2_f32(x), std::exp2(d), "exp2");
        }
        if (x > 0) {
            near(log2_f32(x), std::log2(d), "log2");
            near(rsqrt_f32(x), 1 / std::sqrt(d), "rsqrt");
        }
    }
    require(divide_f32(1.0f, 3.0f) == 1.0f / 3.0f && std::isinf(divide_f32(1.0f, 0.0f)), "divide");
    require(max_f32(NAN, 1.0f) == 1.0f && min_f32(2.0f, NAN) == 2.0f, "max and min of NaN");
    require(sigmoid_f32(-200.0f) >= 0.0f && sigmoid_f32(200.0f) == 1.0f, "sigmoid far out");
}

int main() {
    test_numbers();
    test_maths();
    std::puts("numbers: all conversions are exact, all functions within their bounds");
    return 0;
}
