/* SPDX-License-Identifier: Apache-2.0
 * What a reference is given, and that its choices and columns follow the rules. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>

#include "reference_call.h"

static const lathe_step_constant constants[] = {{.name = "kRows", .integer = 2, .real = 2},
                                                {.name = "kEps", .is_real = true, .real = 0.5}};
static const lathe_step_arg args[] = {
    {.name = "x", .dtype = LATHE_SCALAR_F32, .dir = LATHE_DIR_IN, .shape = {2, {2, 4}}},
    {.name = "aux", .dtype = LATHE_SCALAR_F32, .dir = LATHE_DIR_OUT, .shape = {1, {4}}},
    {.name = "y", .dtype = LATHE_SCALAR_F32, .dir = LATHE_DIR_OUT, .shape = {2, {2, 8192}}}};
static const lathe_step_buffer buffer = {.name = "b"};

static lathe_step_kernel kernel;
static lathe_step_value values[3];
static lathe_step_launch launch;
static lathe_ref_value bound[3];
static lathe_ref r;
static double out[4];

static void set_up(void) {
    kernel = (lathe_step_kernel){.name = "k",
                                 .provider = "gemm/skinny",
                                 .constant_count = 2,
                                 .constants = constants,
                                 .arg_count = 3,
                                 .args = args};
    for (int i = 0; i < 3; ++i)
        values[i] = (lathe_step_value){.arg = &args[i], .shape = args[i].shape};
    values[0].buffer = values[2].buffer = &buffer;
    values[0].address = values[2].address = out;
    launch = (lathe_step_launch){.kernel = &kernel, .value_count = 3, .values = values};
    lathe_ref_begin(&r, &launch, 1, 5);
    r.values[0] = bound;
    bound[0].before = out;
    bound[2].out = out;
}

TestSuite(reference_call, .init = set_up);

Test(reference_call, arguments_and_constants_are_found_by_name) {
    cr_assert_eq(lathe_ref_int(&r, "kRows"), 2);
    cr_assert_eq(lathe_ref_real(&r, "kEps"), 0.5);
    cr_assert(lathe_ref_has(&r, "x") && !lathe_ref_has(&r, "aux") && !lathe_ref_has(&r, "z"));
    cr_assert_eq(lathe_ref_data(&r, 0, "x"), out);
    cr_assert_null(lathe_ref_data(&r, 0, "aux"));
    cr_assert_eq(lathe_ref_out(&r, 0, "y"), out);
    cr_assert_eq(lathe_ref_dim(&r, "x", 1), 4);
    cr_assert_eq(lathe_ref_dim(&r, "x", 2), 1);
    cr_assert(!r.failed);
}

Test(reference_call, an_absent_constant_fails_the_call) {
    cr_assert_eq(lathe_ref_int(&r, "kNone"), 0);
    cr_assert(r.failed);
    cr_assert(strstr(r.message, "kNone"));
}

Test(reference_call, an_unknown_provider_fails_the_call) {
    kernel.provider = "gemm/none";
    cr_assert(!lathe_ref_call(&r));
    cr_assert(strstr(r.message, "built without templates/gemm/none.ref.c: build it again"));
    cr_assert_null(lathe_ref_find("gemm/none"));
}

Test(reference_call, small_launches_are_computed_whole) {
    lathe_ref_sample(&r);
    for (int64_t c = 0; c < 8192; ++c)
        cr_assert(lathe_ref_column(&r, c));
}

Test(reference_call, large_launches_are_sampled_in_256_columns_or_more) {
    kernel.operations = INT64_C(1) << 40;
    int64_t total[2] = {0, 0};
    int64_t different = 0;
    for (uint64_t seed = 0; seed < 2; ++seed) {
        lathe_ref_begin(&r, &launch, 1, seed);
        lathe_ref_sample(&r);
        for (int64_t c = 0; c < 8192; ++c)
            total[seed] += lathe_ref_column(&r, c);
        cr_assert_geq(total[seed], 256);
        cr_assert_leq(total[seed], 512);
    }
    lathe_ref other = r;
    other.seed = 99;
    for (int64_t c = 0; c < 8192; ++c)
        different += lathe_ref_column(&r, c) != lathe_ref_column(&other, c);
    cr_assert_gt(different, 256);
}

Test(reference_call, jitter_is_small_seeded_and_off_by_default) {
    cr_assert_eq(lathe_ref_jitter(&r, 3, 1), 3);
    r.jitter = 0x1p-21;
    double most = 0;
    for (uint64_t i = 0; i < 1000; ++i)
        most = fmax(most, fabs(lathe_ref_jitter(&r, 1, i) - 1));
    cr_assert_leq(most, 0x1p-21);
    cr_assert_geq(most, 0x1p-22);
    cr_assert_eq(lathe_ref_jitter(&r, 3, 7), lathe_ref_jitter(&r, 3, 7));
    cr_assert_neq(lathe_ref_jitter(&r, 3, 7), lathe_ref_jitter(&r, 3, 8));
}

Test(reference_call, inner_roundings_are_turned_at_ties_only) {
    const double tie = 1 + 0x1p-8, near[] = {tie + 0x1p-22, tie - 0x1p-22, -tie - 0x1p-22};
    const double other[] = {1, 1 + 0x1p-7, -1};
    int some = 0;
    for (int i = 0; i < 3; ++i) {
        r.draw = 0;
        const double nearest = lathe_ref_round(&r, near[i]);
        cr_assert_eq(nearest, lathe_bf16_round(near[i]));
        cr_assert_neq(nearest, other[i]);
        r.draw = 1;
        cr_assert_eq(lathe_ref_round(&r, near[i]), other[i]);
        for (r.draw = 2; r.draw < 18; ++r.draw)
            some += lathe_ref_round(&r, near[i]) == other[i];
    }
    cr_assert(some > 8 && some < 40, "%d of 48", some);
    r.draw = 1;
    cr_assert_eq(lathe_ref_round(&r, tie + 0x1p-20), 1 + 0x1p-7);
    cr_assert_eq(lathe_ref_round(&r, tie - 0x1p-20), 1);
    cr_assert_eq(lathe_ref_round(&r, 0), 0);
    cr_assert(isnan(lathe_ref_round(&r, (double)NAN)) &&
              isinf(lathe_ref_round(&r, (double)INFINITY)));
}

Test(reference_call, a_choice_is_open_within_four_ulp_only) {
    cr_assert(lathe_ref_flip(&r, 0, 1, 4));
    cr_assert(!lathe_ref_flip(&r, 0, 2, 5));
    r.follow = true;
    cr_assert(lathe_ref_flip(&r, 0, 3, 1e6));
    cr_assert_eq(r.flip_count, 3);
    cr_assert_eq(r.flips[1].row, 2);
}

static void count_call(void *context, int64_t i) {
    atomic_fetch_add((atomic_long *)context, i);
}

Test(reference_call, every_index_of_a_parallel_loop_is_called_once) {
    atomic_long sum = 0;
    lathe_ref_parallel(&r, 1000, count_call, &sum);
    cr_assert_eq(sum, 999 * 500);
    lathe_ref_parallel(&r, 0, count_call, &sum);
    cr_assert_eq(sum, 999 * 500);
}
