/* SPDX-License-Identifier: Apache-2.0
 * Eight bytes at a time, by sums that carry into a lane's highest bit where it is bad; blocks of
 * words without a branch, so that a compiler may take several words at once. */
#include "numbers.h"

#include <math.h>
#include <string.h>

#define BLOCK_WORDS 512
#define MOST_CHECKED_FIRST ((int64_t)1 << 20)

typedef uint64_t pair __attribute__((vector_size(16))); /* what every 64-bit processor has */

/* (x & keep) + add has the highest bit of a lane set where its exponent is all ones (of e4m3: where
 * it is NaN). */
typedef struct {
    uint64_t keep, add, high;
} lanes;

static const lanes of_bf16 = {0x7f807f807f807f80u, 0x0080008000800080u, 0x8000800080008000u};
static const lanes of_f32 = {0x7f8000007f800000u, 0x0080000000800000u, 0x8000000080000000u};
static const lanes of_e4m3 = {0x7f7f7f7f7f7f7f7fu, 0x0101010101010101u, 0x8080808080808080u};

lathe_numbers lathe_numbers_of(const lathe_step_source *s) {
    static const char *const scales[] = {"scales", "global_scale", "input_scale"};
    if (s->dtype != LATHE_SCALAR_BF16 && s->dtype != LATHE_SCALAR_F32 &&
        s->dtype != LATHE_SCALAR_F64 && s->dtype != LATHE_SCALAR_E4M3)
        return LATHE_NUMBERS_ANY;
    for (size_t i = 0; s->init && i < sizeof scales / sizeof scales[0]; ++i)
        if (strcmp(s->init, scales[i]) == 0)
            return s->dtype == LATHE_SCALAR_E4M3 ? LATHE_NUMBERS_UNSIGNED : LATHE_NUMBERS_POSITIVE;
    return LATHE_NUMBERS_FINITE;
}

const char *lathe_numbers_name(lathe_numbers numbers) {
    return numbers == LATHE_NUMBERS_POSITIVE   ? "finite and greater than zero"
           : numbers == LATHE_NUMBERS_UNSIGNED ? "finite and without a sign"
                                               : "finite";
}

static uint64_t find_not_finite(const unsigned char *data, const lanes *l) {
    pair a, b, bad_a = {0}, bad_b = {0};
    for (size_t i = 0; i < BLOCK_WORDS; i += 4) {
        memcpy(&a, data + 8 * i, sizeof a);
        memcpy(&b, data + 8 * i + 16, sizeof b);
        bad_a |= (a & l->keep) + l->add;
        bad_b |= (b & l->keep) + l->add;
    }
    bad_a |= bad_b;
    return (bad_a[0] | bad_a[1]) & l->high;
}

/* Of e4m3: NaN, or a sign. */
static uint64_t find_signed(const unsigned char *data) {
    pair a, bad = {0};
    for (size_t i = 0; i < BLOCK_WORDS; i += 2) {
        memcpy(&a, data + 8 * i, sizeof a);
        bad |= a | ((a & of_e4m3.keep) + of_e4m3.add);
    }
    return (bad[0] | bad[1]) & of_e4m3.high;
}

static double value_at(lathe_scalar dtype, const unsigned char *data, int64_t i) {
    uint32_t word = 0;
    uint16_t half;
    float single;
    double value;
    switch (dtype) {
    case LATHE_SCALAR_E4M3:
        if ((data[i] & 0x7f) == 0x7f)
            return (double)NAN;
        return data[i] & 0x80 ? -(double)(data[i] & 0x7f) : (double)data[i]; /* in its order */
    case LATHE_SCALAR_BF16:
        memcpy(&half, data + 2 * i, sizeof half);
        word = (uint32_t)half << 16;
        memcpy(&single, &word, sizeof single);
        return (double)single;
    case LATHE_SCALAR_F32:
        memcpy(&single, data + 4 * i, sizeof single);
        return (double)single;
    default:
        memcpy(&value, data + 8 * i, sizeof value);
        return value;
    }
}

bool lathe_numbers_are_checked_first(lathe_scalar dtype, int64_t count) {
    return dtype != LATHE_SCALAR_BF16 || count <= MOST_CHECKED_FIRST;
}

static const lanes *find_lanes(lathe_scalar dtype) {
    return dtype == LATHE_SCALAR_BF16   ? &of_bf16
           : dtype == LATHE_SCALAR_F32  ? &of_f32
           : dtype == LATHE_SCALAR_E4M3 ? &of_e4m3
                                        : NULL;
}

/* Elements from the front, whole blocks of them, that are good. */
static int64_t skip_blocks(lathe_scalar dtype, lathe_numbers numbers, const unsigned char *data,
                           int64_t count) {
    const lanes *l = find_lanes(dtype);
    const bool no_sign = numbers == LATHE_NUMBERS_UNSIGNED && dtype == LATHE_SCALAR_E4M3;
    int64_t i = 0;
    if (!l || (numbers != LATHE_NUMBERS_FINITE && !no_sign))
        return 0; /* few of them */
    const int64_t item = (int64_t)lathe_scalar_bytes(dtype), each = BLOCK_WORDS * 8 / item;
    while (count - i >= each &&
           !(no_sign ? find_signed(data + i * item) : find_not_finite(data + i * item, l)))
        i += each;
    return i;
}

static bool is_good(lathe_numbers numbers, double x) {
    return isfinite(x) && (numbers != LATHE_NUMBERS_POSITIVE || x > 0) &&
           (numbers != LATHE_NUMBERS_UNSIGNED || !signbit(x));
}

int64_t lathe_numbers_find_bad(lathe_scalar dtype, lathe_numbers numbers, const void *data,
                               int64_t count) {
    if (numbers == LATHE_NUMBERS_ANY)
        return count;
    for (int64_t i = skip_blocks(dtype, numbers, data, count); i < count; ++i)
        if (!is_good(numbers, value_at(dtype, data, i)))
            return i;
    return count;
}
