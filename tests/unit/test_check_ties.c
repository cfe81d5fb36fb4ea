/* SPDX-License-Identifier: Apache-2.0
 * A row that is off: right where a launch may have rounded at a tie inside it, wrong where it
 * rounded anything else otherwise. The launch is attention from the QKV product on, eight requests
 * of one token each over one old key and the token's own; its query is 1 in every channel before
 * RoPE, so that the cosines of a request decide what it rounds to. */
#include <criterion/criterion.h>
#include <math.h>

#include "check_state.h"

enum { ROWS = 8, DIM = 4, PAGE = 4, WIDTH = 4 * DIM, CACHE = ROWS * PAGE * 2 * DIM };
enum { CACHE_ARG = 4, Y_ARG = 7, ARGS };

#define TIE (1 + 0x1p-8)       /* between two values of bf16 */
#define NEXT (TIE + 0x1p-23)   /* rounds up, and fp32 cannot tell it from the tie */
#define BEYOND (TIE + 0x1p-19) /* rounds up however it is computed */
#define STEP 0x1p-7            /* of bf16 above 1 */

#define INTEGER(n, v)                                                                              \
    { .name = n, .integer = v, .real = v }
#define REAL(n, v)                                                                                 \
    { .name = n, .is_real = true, .real = v }
static const lathe_step_constant constants[] = {
    INTEGER("kRows", ROWS),      INTEGER("kRequests", ROWS),   INTEGER("kHeads", 1),
    INTEGER("kKvHeads", 1),      INTEGER("kDim", DIM),         INTEGER("kProductSplits", 0),
    INTEGER("kPositions", ROWS), INTEGER("kPageTokens", PAGE), INTEGER("kTableWidth", 1),
    INTEGER("kWindow", 0),       REAL("kQkEps", 1e-5),         REAL("kScale", 0.25),
    REAL("kEps", 1e-5)};
#define ARG(n, t, d, ...)                                                                          \
    { .name = n, .dtype = LATHE_SCALAR_##t, .dir = LATHE_DIR_##d, .shape = __VA_ARGS__ }
static const lathe_step_arg args[ARGS] = {ARG("qkvg", BF16, IN, {2, {ROWS, WIDTH}}),
                                          ARG("positions", I64, IN, {1, {ROWS}}),
                                          ARG("rope", F32, IN, {2, {ROWS, DIM}}),
                                          ARG("slots", I64, IN, {1, {ROWS}}),
                                          ARG("cache", BF16, INOUT, {4, {ROWS, 1, PAGE, 2 * DIM}}),
                                          ARG("block_tables", I32, IN, {2, {ROWS, 1}}),
                                          ARG("seq_lens", I32, IN, {1, {ROWS}}),
                                          ARG("y", BF16, OUT, {2, {ROWS, DIM}})};
static const lathe_step_buffer buffer = {.name = "b"};
static const lathe_step_kernel kernel = {.name = "k",
                                         .provider = "attention/front_paged",
                                         .constant_count = sizeof constants / sizeof *constants,
                                         .constants = constants,
                                         .arg_count = ARGS,
                                         .args = args};

static uint16_t qkvg[ROWS][WIDTH], cache[ROWS][PAGE][2][DIM], y[ROWS * DIM];
static int64_t positions[ROWS], slots[ROWS];
static float rope[ROWS][DIM]; /* two cosines, two sines */
static int32_t tables[ROWS], lengths[ROWS];
static double cache_out[CACHE], y_out[ROWS * DIM];
static lathe_step_value values[16];
static lathe_step_launch launch;
static lathe_ref_value bound[16];
static lathe_ref r;

static void set_row(uint16_t *to, double a, double b, double c, double d) {
    const double row[DIM] = {a, b, c, d};
    for (int i = 0; i < DIM; ++i)
        to[i] = lathe_bf16_bits(row[i]);
}

static void set_up(void) {
    for (int row = 0; row < ROWS; ++row) {
        set_row(&qkvg[row][0], 1, 1, 1, 1);
        set_row(&qkvg[row][DIM], 1, -1, -1, 1);
        set_row(&qkvg[row][2 * DIM], 4, 1, -2, 1);
        set_row(&qkvg[row][3 * DIM], 0.5, -0.5, 1, 2);
        set_row(cache[row][0][0], 4, -4, 4, -4);
        set_row(cache[row][0][1], 1, 2, 3, 4);
        positions[row] = tables[row] = row;
        slots[row] = row * PAGE + 1;
        lengths[row] = 2;
        rope[row][0] = rope[row][1] = 1;
    }
    const void *before[ARGS] = {qkvg, positions, rope, slots, cache, tables, lengths, NULL};
    for (int i = 0; i < ARGS; ++i) {
        values[i] = (lathe_step_value){.arg = &args[i], .shape = args[i].shape, .buffer = &buffer};
        bound[i].before = before[i];
    }
    bound[CACHE_ARG].out = cache_out;
    bound[Y_ARG] = (lathe_ref_value){NULL, y, y_out};
    launch = (lathe_step_launch){.kernel = &kernel, .value_count = ARGS, .values = values};
    lathe_ref_begin(&r, &launch, 1, 5);
    r.values[0] = bound;
}

TestSuite(check_ties, .init = set_up);

/* What the launch wrote: the reference with the ties of `draw` turned, as bf16. */
static void write_y(uint64_t draw) {
    r.draw = draw;
    cr_assert(lathe_ref_call(&r), "%s", r.message);
    r.draw = 0;
    for (int i = 0; i < ROWS * DIM; ++i)
        y[i] = lathe_bf16_bits(y_out[i]);
}

/* Compares it with the reference as the inputs are now; *turned: rows taken with a tie turned. */
static lathe_comparison compare(int64_t *turned) {
    cr_assert(lathe_ref_call(&r), "%s", r.message);
    lathe_comparison c =
        lathe_compare(LATHE_RULE_BF16, LATHE_SCALAR_BF16, y_out, y, ROWS * DIM, DIM);
    *turned = lathe_check_ties(&r, 0, Y_ARG, DIM, &c);
    return c;
}

static int64_t turned;

Test(check_ties, a_row_with_a_tie_inside_is_right_either_way) {
    rope[3][0] = (float)NEXT;
    write_y(0);
    cr_assert(compare(&turned).pass && turned == 0);
    write_y(1);
    const lathe_comparison c = compare(&turned);
    cr_assert_eq(turned, 1);
    cr_assert(c.pass && c.row <= c.allowed, "row %g", c.row);
    cr_assert_gt(c.relative, 0.4 * c.allowed); /* the whole value's is that of the untouched one */
}

Test(check_ties, what_is_no_tie_may_not_be_turned) {
    rope[3][0] = 1;
    write_y(0);
    rope[3][0] = (float)BEYOND;
    const lathe_comparison c = compare(&turned);
    cr_assert_eq(turned, 0);
    cr_assert(!c.pass && c.row > c.allowed && c.relative < c.allowed, "row %g", c.row);
}

/* A tie in another row, or in another channel of the same, excuses nothing. */
Test(check_ties, another_element_than_that_on_the_tie_may_not_be_off) {
    for (int row = 3; row < 5; ++row) {
        rope[3][0] = (float)NEXT;
        rope[row][1] = (float)(1 + STEP);
        write_y(1);
        rope[row][1] = 1;
        const lathe_comparison c = compare(&turned);
        cr_assert(!c.pass && c.row > c.allowed, "row %d: %g", row, c.row);
    }
}

Test(check_ties, a_value_that_is_off_as_a_whole_is_left_so) {
    for (int row = 0; row < ROWS; ++row)
        rope[row][0] = (float)NEXT;
    write_y(1);
    const lathe_comparison c = compare(&turned);
    cr_assert_eq(turned, 0);
    cr_assert(!c.pass && c.relative > c.allowed);
}

/* Routing of an edge layer: of two experts, weights that it rounds to bf16 before it writes them.
 */
enum { ROUTE_ARGS = 13, WEIGHTS = 4, ROUTED = 64, EXPERTS = 2 };

static const lathe_step_constant route_constants[] = {
    INTEGER("kRows", ROUTED),  INTEGER("kExperts", EXPERTS), INTEGER("kLogitSplits", 1),
    INTEGER("kTopK", EXPERTS), INTEGER("kTile", ROUTED),     INTEGER("kLocal", EXPERTS),
    INTEGER("kMaxCtas", 2),    INTEGER("kHistogram", 2),     INTEGER("kBf16Weights", 1),
    REAL("kScale", 1),         REAL("kEpsilon", 0)};
static const lathe_step_arg route_args[ROUTE_ARGS] = {
    ARG("logits", F32, IN, {2, {ROUTED, EXPERTS}}),
    ARG("bias", F32, IN, {1, {EXPERTS}}),
    ARG("slots", I64, IN, {1, {ROUTED}}),
    ARG("ids", I32, OUT, {2, {ROUTED, EXPERTS}}),
    ARG("weights", F32, OUT, {2, {ROUTED, EXPERTS}}),
    ARG("expanded_to_permuted", I32, OUT, {1, {ROUTED * EXPERTS}}),
    ARG("permuted_to_token", I32, OUT, {1, {2 * ROUTED + 1}}),
    ARG("histogram", I32, OUT, {1, {2}}),
    ARG("counts", I32, OUT, {1, {EXPERTS}}),
    ARG("cta_expert", I32, OUT, {1, {2}}),
    ARG("cta_limit", I32, OUT, {1, {2}}),
    ARG("ctas", I32, OUT, {1, {1}}),
    ARG("total_padded", I32, OUT, {1, {1}})};
static const lathe_step_kernel route_kernel = {.name = "k",
                                               .provider = "moe/routing",
                                               .constant_count =
                                                   sizeof route_constants / sizeof *route_constants,
                                               .constants = route_constants,
                                               .arg_count = ROUTE_ARGS,
                                               .args = route_args};

static float route_logits[ROUTED][EXPERTS], route_bias[EXPERTS], route_found[ROUTED * EXPERTS];
static int64_t route_slots[ROUTED];
static double route_out[ROUTE_ARGS][2 * ROUTED + 1];

/* Of which the first weight of row 3 is `weight`. */
static void set_up_route(double weight) {
    const void *before[] = {route_logits, route_bias, route_slots};
    launch.kernel = &route_kernel;
    launch.value_count = ROUTE_ARGS;
    for (int i = 0; i < ROUTE_ARGS; ++i) {
        values[i] = (lathe_step_value){
            .arg = &route_args[i], .shape = route_args[i].shape, .buffer = &buffer};
        bound[i] = (lathe_ref_value){i < 3 ? before[i] : NULL, NULL, i < 3 ? NULL : route_out[i]};
    }
    bound[WEIGHTS].after = route_found;
    route_logits[3][0] = (float)log(weight / (1 - weight) / (2 - weight / (1 - weight)));
}

static lathe_comparison compare_route(uint64_t draw) {
    r.draw = draw;
    cr_assert(lathe_ref_call(&r), "%s", r.message);
    r.draw = 0;
    for (int i = 0; i < ROUTED * EXPERTS; ++i)
        route_found[i] = (float)route_out[WEIGHTS][i];
    cr_assert(lathe_ref_call(&r), "%s", r.message);
    lathe_comparison c = lathe_compare(LATHE_RULE_F32_FUSED, LATHE_SCALAR_F32, route_out[WEIGHTS],
                                       route_found, ROUTED * EXPERTS, EXPERTS);
    turned = lathe_check_ties(&r, 0, WEIGHTS, EXPERTS, &c);
    return c;
}

Test(check_ties, a_weight_of_a_route_may_be_rounded_either_way_at_a_tie) {
    set_up_route(0.5 * TIE);
    cr_assert(compare_route(1).pass && turned == 1, "%lld rows", (long long)turned);
    set_up_route(0.5 * BEYOND);
    cr_assert(compare_route(1).pass && turned == 0, "%lld rows", (long long)turned);
}
