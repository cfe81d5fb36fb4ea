/* SPDX-License-Identifier: Apache-2.0
 * The comparison rules: what is within the contract passes, what is just outside fails. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "compare.h"
#include "reference.h"
#include "synthetic.h"

#define N 1000

static double expected[N];
static float reals[N];
static int32_t integers[N];
static uint8_t bytes[N];

static void make_reals(double relative) {
    for (int i = 0; i < N; ++i) {
        expected[i] = lathe_synthetic_normal(lathe_synthetic_bits(1, (uint64_t)i));
        reals[i] = (float)(expected[i] * (1 + relative));
    }
}

static lathe_comparison compare(lathe_rule rule) {
    return lathe_compare(rule, LATHE_SCALAR_F32, expected, reals, N, 0);
}

Test(compare, the_rule_follows_the_type) {
    cr_assert_eq(lathe_compare_rule(LATHE_SCALAR_BF16, true), LATHE_RULE_BF16);
    cr_assert_eq(lathe_compare_rule(LATHE_SCALAR_F32, false), LATHE_RULE_F32);
    cr_assert_eq(lathe_compare_rule(LATHE_SCALAR_F32, true), LATHE_RULE_F32_FUSED);
    cr_assert_eq(lathe_compare_rule(LATHE_SCALAR_I32, true), LATHE_RULE_EXACT);
    cr_assert_eq(lathe_compare_rule(LATHE_SCALAR_U8, false), LATHE_RULE_CODES);
    cr_assert_eq(lathe_compare_rule(LATHE_SCALAR_E4M3, false), LATHE_RULE_SCALES);
}

Test(compare, reals_pass_up_to_the_contract) {
    static const struct {
        lathe_rule rule;
        double bound;
    } cases[] = {{LATHE_RULE_BF16, 4e-3},
                 {LATHE_RULE_F32, 1e-5},
                 {LATHE_RULE_F32_FUSED, 1e-3},
                 {LATHE_RULE_STEP, 1.5e-2}};
    for (size_t i = 0; i < 4; ++i) {
        make_reals(0.98 * cases[i].bound);
        const lathe_comparison near = compare(cases[i].rule);
        cr_assert(near.pass && near.compared == N);
        cr_assert_float_eq(near.relative, 0.98 * cases[i].bound, 0.01 * cases[i].bound);
        make_reals(1.02 * cases[i].bound);
        cr_assert(!compare(cases[i].rule).pass);
    }
}

Test(compare, unset_elements_are_not_compared) {
    make_reals(0);
    for (int i = 0; i < N; i += 2) {
        expected[i] = LATHE_REF_UNSET;
        reals[i] = NAN;
    }
    const lathe_comparison c = compare(LATHE_RULE_F32);
    cr_assert(c.pass);
    cr_assert_eq(c.compared, N / 2);
}

Test(compare, nan_and_infinity_must_stand_in_the_same_places) {
    make_reals(0);
    expected[3] = (double)NAN;
    expected[4] = (double)INFINITY;
    cr_assert_eq(compare(LATHE_RULE_F32).wrong, 2);
    reals[3] = NAN;
    reals[4] = INFINITY;
    cr_assert(compare(LATHE_RULE_F32).pass);
    reals[4] = -INFINITY;
    cr_assert(!compare(LATHE_RULE_F32).pass);
    reals[4] = INFINITY;
    reals[5] = NAN;
    const lathe_comparison c = compare(LATHE_RULE_F32);
    cr_assert(!c.pass);
    cr_assert_eq(c.worst, 5);
}

Test(compare, anything_but_zero_is_far_from_zero) {
    memset(expected, 0, sizeof expected);
    memset(reals, 0, sizeof reals);
    cr_assert(compare(LATHE_RULE_F32).pass);
    reals[7] = 1e-30f;
    const lathe_comparison c = compare(LATHE_RULE_F32);
    cr_assert(!c.pass);
    cr_assert_eq(c.worst, 7);
}

Test(compare, a_small_row_must_be_right_beside_a_large_one) {
    make_reals(0);
    for (int i = 100; i < 200; ++i) {
        expected[i] = 1e-6;
        reals[i] = 2e-6f;
    }
    cr_assert(compare(LATHE_RULE_F32).pass);
    const lathe_comparison c =
        lathe_compare(LATHE_RULE_F32, LATHE_SCALAR_F32, expected, reals, N, 100);
    cr_assert(!c.pass);
    cr_assert_float_eq(c.row, 1, 1e-5);
}

Test(compare, integers_are_exact) {
    for (int i = 0; i < N; ++i)
        expected[i] = integers[i] = i - 3;
    cr_assert(lathe_compare(LATHE_RULE_EXACT, LATHE_SCALAR_I32, expected, integers, N, 0).pass);
    integers[9] ^= 1;
    const lathe_comparison c =
        lathe_compare(LATHE_RULE_EXACT, LATHE_SCALAR_I32, expected, integers, N, 0);
    cr_assert(!c.pass);
    cr_assert_eq(c.worst, 9);
    cr_assert_eq(c.wrong, 1);
}

static lathe_comparison compare_codes(void) {
    return lathe_compare(LATHE_RULE_CODES, LATHE_SCALAR_U8, expected, bytes, N, 0);
}

Test(compare, codes_may_step_over_a_tie_rarely) {
    for (int i = 0; i < N; ++i)
        expected[i] = bytes[i] = (uint8_t)(lathe_synthetic_bits(2, (uint64_t)i) & 0x33);
    bytes[10] = 0x01;
    expected[10] = 0x02;
    bytes[11] = 0x18;
    expected[11] = 0x10; /* minus zero is zero */
    lathe_comparison c = compare_codes();
    cr_assert(c.pass);
    cr_assert_eq(c.wrong, 1);
    cr_assert_eq(c.compared, 2 * N);
    bytes[10] = 0x03;
    expected[10] = 0x01; /* two steps are no tie */
    cr_assert(!compare_codes().pass);
    bytes[10] = 0x11;
    expected[10] = 0x22; /* two of two thousand */
    cr_assert(compare_codes().pass);
    bytes[12] = 0x11;
    expected[12] = 0x12; /* three of them are too many */
    c = compare_codes();
    cr_assert(!c.pass);
    cr_assert_eq(c.wrong, 3);
}

Test(compare, scales_may_step_over_a_tie_rarely) {
    for (int i = 0; i < N; ++i) {
        bytes[i] = (uint8_t)(i % 0x7f);
        expected[i] = lathe_compare_value(LATHE_SCALAR_E4M3, bytes, i);
    }
    expected[5] = (double)NAN;
    bytes[5] = 0xff;
    cr_assert(lathe_compare(LATHE_RULE_SCALES, LATHE_SCALAR_E4M3, expected, bytes, N, 0).pass);
    ++bytes[20];
    cr_assert(lathe_compare(LATHE_RULE_SCALES, LATHE_SCALAR_E4M3, expected, bytes, N, 0).pass);
    ++bytes[20];
    cr_assert(!lathe_compare(LATHE_RULE_SCALES, LATHE_SCALAR_E4M3, expected, bytes, N, 0).pass);
}

Test(compare, values_return_as_stored) {
    static const lathe_scalar types[] = {LATHE_SCALAR_BF16, LATHE_SCALAR_F32, LATHE_SCALAR_F64,
                                         LATHE_SCALAR_I32,  LATHE_SCALAR_I64, LATHE_SCALAR_U8,
                                         LATHE_SCALAR_U32,  LATHE_SCALAR_E4M3};
    unsigned char memory[64];
    for (size_t t = 0; t < sizeof types / sizeof types[0]; ++t)
        for (int i = 0; i < 4; ++i) {
            lathe_compare_store(types[t], memory, i, 3 + i);
            cr_assert_eq(lathe_compare_value(types[t], memory, i), 3 + i);
        }
    lathe_compare_store(LATHE_SCALAR_BF16, memory, 0, 1.00390625); /* a tie: to even */
    cr_assert_eq(lathe_compare_value(LATHE_SCALAR_BF16, memory, 0), 1);
    lathe_compare_store(LATHE_SCALAR_E4M3, memory, 0, -500);
    cr_assert_eq(lathe_compare_value(LATHE_SCALAR_E4M3, memory, 0), -448);
}

Test(compare, arrays_differ_by_their_relative_distance) {
    const float a[2] = {3, 4};
    const float b[2] = {3, 4.05f};
    const float n[2] = {3, NAN};
    cr_assert_float_eq(lathe_compare_arrays(LATHE_SCALAR_F32, a, b, 2), 0.01, 1e-6);
    cr_assert_eq(lathe_compare_arrays(LATHE_SCALAR_F32, n, n, 2), 0);
    cr_assert(isnan(lathe_compare_arrays(LATHE_SCALAR_F32, a, n, 2)));
}
