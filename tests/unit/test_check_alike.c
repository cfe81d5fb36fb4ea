/* SPDX-License-Identifier: Apache-2.0
 * Values that all ranks hold must be the same bits; values of one rank need not. */
#include <criterion/criterion.h>
#include <string.h>

#include "check_state.h"

enum { RANKS = 3, ELEMENTS = 4 };

static const lathe_step_arg arg = {
    .name = "y", .dtype = LATHE_SCALAR_F32, .dir = LATHE_DIR_OUT, .shape = {1, {ELEMENTS}}};
static const lathe_step_buffer buffer = {.name = "b"};
static lathe_step_value value;
static lathe_step_launch launch;
static double out[RANKS][ELEMENTS];
static float after[RANKS][ELEMENTS];
static lathe_ref_value bound[RANKS];
static lathe_ref ref;

static void set_up(void) {
    value = (lathe_step_value){.arg = &arg, .buffer = &buffer, .shape = arg.shape};
    launch = (lathe_step_launch){.value_count = 1, .values = &value};
    lathe_ref_begin(&ref, &launch, RANKS, 1);
    for (int r = 0; r < RANKS; ++r) {
        for (int i = 0; i < ELEMENTS; ++i) {
            out[r][i] = 1.0 / (i + 1);
            after[r][i] = (float)out[r][i];
        }
        bound[r] = (lathe_ref_value){.after = after[r], .out = out[r]};
        ref.values[r] = &bound[r];
    }
}

TestSuite(check_alike, .init = set_up);

static void expect(int rank, int counted) {
    int count = 0;
    cr_assert_eq(lathe_check_alike(&ref, 0, &count), rank);
    cr_assert_eq(count, counted);
}

Test(check_alike, equal_bits_pass) {
    expect(0, 1);
}

Test(check_alike, one_ulp_is_reported_with_its_rank) {
    uint32_t word;
    memcpy(&word, &after[2][3], sizeof word);
    ++word;
    memcpy(&after[2][3], &word, sizeof word);
    expect(2, 1);
}

Test(check_alike, values_of_one_rank_may_differ) {
    out[1][0] = 7;
    after[1][0] = 7;
    expect(0, 0);
}

Test(check_alike, what_no_reference_defines_may_differ) {
    for (int r = 0; r < RANKS; ++r) {
        out[r][1] = LATHE_REF_UNSET;
        after[r][1] = (float)r;
    }
    expect(0, 1);
}

Test(check_alike, one_rank_has_nothing_to_be_like) {
    ref.ranks = 1;
    expect(0, 0);
}
