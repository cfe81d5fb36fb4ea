// SPDX-License-Identifier: Apache-2.0
// Elements of every type, and the contract of design.md ("What a number may be off by").
#include "state.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace harness {

int element_bytes(Type type) {
    switch (type) {
    case Type::u8:
    case Type::e4m3:
        return 1;
    case Type::bf16:
        return 2;
    case Type::f64:
    case Type::i64:
        return 8;
    case Type::mailbox:
        return static_cast<int>(sizeof(Mailbox));
    default:
        return 4;
    }
}

template <class T>
static T read(const void *data, int64_t index) {
    T value;
    std::memcpy(&value, static_cast<const unsigned char *>(data) + index * int64_t{sizeof(T)},
                sizeof(T));
    return value;
}
template <class T>
static void write(void *data, int64_t index, T value) {
    std::memcpy(static_cast<unsigned char *>(data) + index * int64_t{sizeof(T)}, &value, sizeof(T));
}

static double e4m3_value(unsigned bits) {
    const unsigned exponent = bits >> 3 & 15u, mantissa = bits & 7u;
    if ((bits & 0x7fu) == 0x7fu)
        return NAN;
    const double magnitude = exponent == 0
                                 ? std::ldexp(mantissa, -9)
                                 : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
    return bits & 0x80u ? -magnitude : magnitude;
}
// By search, since no speed is needed: the nearest code, the even one of two.
static u8 e4m3_code(double value) {
    if (std::isnan(value))
        return 0x7f;
    unsigned best = 0;
    for (unsigned code = 1; code < 0x7f; code++) {
        const double here = std::fabs(std::fabs(value) - e4m3_value(code));
        const double there = std::fabs(std::fabs(value) - e4m3_value(best));
        if (here < there || (here == there && code % 2 == 0))
            best = code;
    }
    return static_cast<u8>(best | (std::signbit(value) ? 0x80u : 0u));
}

double element(Type type, const void *data, int64_t index) {
    switch (type) {
    case Type::bf16:
        return lathe_bf16_value(read<uint16_t>(data, index));
    case Type::f32:
        return static_cast<double>(read<float>(data, index));
    case Type::f64:
        return read<double>(data, index);
    case Type::i32:
        return read<int32_t>(data, index);
    case Type::i64:
        return static_cast<double>(read<int64_t>(data, index));
    case Type::u8:
        return read<uint8_t>(data, index);
    case Type::u32:
        return read<uint32_t>(data, index);
    case Type::e4m3:
        return e4m3_value(read<uint8_t>(data, index));
    default:
        return 0;
    }
}

void set_element(Type type, void *data, int64_t index, double value) {
    switch (type) {
    case Type::bf16:
        return write(data, index, lathe_bf16_bits(value));
    case Type::f32:
        return write(data, index, static_cast<float>(value));
    case Type::f64:
        return write(data, index, value);
    case Type::i32:
        return write(data, index, static_cast<int32_t>(value));
    case Type::i64:
        return write(data, index, static_cast<int64_t>(value));
    case Type::u8:
        return write(data, index, static_cast<uint8_t>(value));
    case Type::u32:
        return write(data, index, static_cast<uint32_t>(value));
    case Type::e4m3:
        return write(data, index, e4m3_code(value));
    default:
        return;
    }
}

static std::string place(const Argument &a, int64_t index) {
    std::string text;
    for (size_t d = a.shape.size(); d-- > 0;) {
        text = std::to_string(index % a.shape[d]) + (text.empty() ? "" : ", ") + text;
        index /= a.shape[d];
    }
    return a.name + "[" + text + "]";
}

static std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
static std::string format(const char *pattern, ...) {
    char text[512];
    va_list list;
    va_start(list, pattern);
    std::vsnprintf(text, sizeof text, pattern, list);
    va_end(list);
    return text;
}

static bool is_floating(Type type) {
    return type == Type::bf16 || type == Type::f32 || type == Type::f64;
}

// Both NaN, or the same infinity.
static bool same_special(double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || a == b;
}

static std::string compare_norm(const Argument &a, const std::vector<double> &expected,
                                const void *found, double allowed) {
    double error = 0, total = 0, worst = -1;
    int64_t at = 0;
    for (int64_t i = 0; i < a.count(); i++) {
        const double want = expected[static_cast<size_t>(i)], got = element(a.type, found, i);
        if (lathe_ref_is_unset(want))
            continue;
        if (!std::isfinite(want) || !std::isfinite(got)) {
            if (!same_special(want, got))
                return format("%s is %g, wanted %g", place(a, i).c_str(), got, want);
            continue;
        }
        const double off = (got - want) * (got - want);
        error += off;
        total += want * want;
        if (off > worst) {
            worst = off;
            at = i;
        }
    }
    const double relative = total > 0 ? std::sqrt(error / total) : (error > 0 ? INFINITY : 0);
    if (relative <= allowed)
        return "";
    return format("relative L2 of %s is %.3g, allowed %.3g; worst is %s: %g, wanted %g",
                  a.name.c_str(), relative, allowed, place(a, at).c_str(),
                  element(a.type, found, at), expected[static_cast<size_t>(at)]);
}

// Exact, but for a share of elements that somebody has given a reason for.
static std::string compare_exact(const Argument &a, const std::vector<double> &expected,
                                 const void *found, double share) {
    int64_t wrong = 0, compared = 0, at = -1;
    for (int64_t i = 0; i < a.count(); i++) {
        const double want = expected[static_cast<size_t>(i)], got = element(a.type, found, i);
        if (lathe_ref_is_unset(want))
            continue;
        compared++;
        if (!same_special(want, got)) {
            wrong++;
            at = at < 0 ? i : at;
        }
    }
    if (static_cast<double>(wrong) <= share * static_cast<double>(compared))
        return "";
    return format("%lld of %lld elements of %s differ; first is %s: %.17g, wanted %.17g",
                  static_cast<long long>(wrong), static_cast<long long>(compared), a.name.c_str(),
                  place(a, at).c_str(), element(a.type, found, at),
                  expected[static_cast<size_t>(at)]);
}

std::string compare(const Argument &a, const std::vector<double> &expected, const void *found) {
    if (!is_floating(a.type))
        return compare_exact(a, expected, found, std::max(a.tolerance, 0.0));
    const double line_1 = a.type == Type::bf16 ? 4e-3 : 1e-5;
    return compare_norm(a, expected, found, a.tolerance >= 0 ? a.tolerance : line_1);
}

std::string compare_bits(const Argument &a, const std::vector<double> *expected, const void *one,
                         const void *other) {
    const size_t bytes = static_cast<size_t>(element_bytes(a.type));
    for (int64_t i = 0; i < a.count(); i++) {
        if (expected && lathe_ref_is_unset((*expected)[static_cast<size_t>(i)]))
            continue;
        const size_t at = static_cast<size_t>(i) * bytes;
        if (std::memcmp(static_cast<const unsigned char *>(one) + at,
                        static_cast<const unsigned char *>(other) + at, bytes) != 0)
            return format("the bits of %s depend on the seed: %.9g, then %.9g", place(a, i).c_str(),
                          element(a.type, one, i), element(a.type, other, i));
    }
    return "";
}

} // namespace harness
