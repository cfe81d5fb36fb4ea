/* SPDX-License-Identifier: Apache-2.0
 * The comparison rules. */
#include "compare.h"

#include <math.h>
#include <stdlib.h>

#include "reference.h"
#include "synthetic.h"

static const double tolerances[] = {
    [LATHE_RULE_BF16] = 4e-3,      /* line 1 */
    [LATHE_RULE_F32] = 1e-5,       /* line 1 */
    [LATHE_RULE_F32_FUSED] = 1e-3, /* line 1 */
    [LATHE_RULE_EXACT] = 0,        /* line 1 */
    [LATHE_RULE_CODES] = 1e-3,     /* line 2 */
    [LATHE_RULE_SCALES] = 1e-3,    /* line 2 */
    [LATHE_RULE_STEP] = LATHE_STEP_TOLERANCE,
};

lathe_rule lathe_compare_rule(lathe_scalar dtype, bool fused) {
    switch (dtype) {
    case LATHE_SCALAR_BF16:
        return LATHE_RULE_BF16;
    case LATHE_SCALAR_F32:
    case LATHE_SCALAR_F64:
        return fused ? LATHE_RULE_F32_FUSED : LATHE_RULE_F32;
    case LATHE_SCALAR_U8:
        return LATHE_RULE_CODES;
    case LATHE_SCALAR_E4M3:
        return LATHE_RULE_SCALES;
    default:
        return LATHE_RULE_EXACT;
    }
}

static double e4m3_value(uint8_t bits) {
    const int exponent = bits >> 3 & 15;
    const int mantissa = bits & 7;
    if ((bits & 0x7f) == 0x7f)
        return (double)NAN;
    const double v = ldexp(exponent ? 8 + mantissa : mantissa, (exponent ? exponent : 1) - 10);
    return bits & 0x80 ? -v : v;
}

double lathe_compare_value(lathe_scalar dtype, const void *memory, int64_t i) {
    switch (dtype) {
    case LATHE_SCALAR_BF16:
        return lathe_bf16_value(((const uint16_t *)memory)[i]);
    case LATHE_SCALAR_F32:
        return (double)((const float *)memory)[i];
    case LATHE_SCALAR_F64:
        return ((const double *)memory)[i];
    case LATHE_SCALAR_I32:
        return (double)((const int32_t *)memory)[i];
    case LATHE_SCALAR_I64:
        return (double)((const int64_t *)memory)[i];
    case LATHE_SCALAR_U8:
        return (double)((const uint8_t *)memory)[i];
    case LATHE_SCALAR_U32:
        return (double)((const uint32_t *)memory)[i];
    case LATHE_SCALAR_E4M3:
        return e4m3_value(((const uint8_t *)memory)[i]);
    case LATHE_SCALAR_MAILBOX:
        break;
    }
    return (double)NAN;
}

void lathe_compare_store(lathe_scalar dtype, void *memory, int64_t i, double value) {
    switch (dtype) {
    case LATHE_SCALAR_BF16:
        ((uint16_t *)memory)[i] = lathe_bf16_bits(value);
        break;
    case LATHE_SCALAR_F32:
        ((float *)memory)[i] = (float)value;
        break;
    case LATHE_SCALAR_F64:
        ((double *)memory)[i] = value;
        break;
    case LATHE_SCALAR_I32:
        ((int32_t *)memory)[i] = (int32_t)value;
        break;
    case LATHE_SCALAR_I64:
        ((int64_t *)memory)[i] = (int64_t)value;
        break;
    case LATHE_SCALAR_U8:
        ((uint8_t *)memory)[i] = (uint8_t)value;
        break;
    case LATHE_SCALAR_U32:
        ((uint32_t *)memory)[i] = (uint32_t)value;
        break;
    case LATHE_SCALAR_E4M3:
        ((uint8_t *)memory)[i] = lathe_synthetic_e4m3(value);
        break;
    case LATHE_SCALAR_MAILBOX:
        break;
    }
}

/* A relative L2 in the making. */
typedef struct {
    double difference, norm; /* sums of squares */
    double most;             /* largest difference so far */
} distance;

static double finish(const distance *d) {
    if (d->difference == 0)
        return 0;
    return d->norm > 0 ? sqrt(d->difference / d->norm) : (double)INFINITY;
}

static void note(lathe_comparison *c, int64_t i, double expected, double found) {
    c->worst = i;
    c->expected_worst = expected;
    c->found_worst = found;
}

/* NaN and infinity must stand in the same places; the rest goes into the distance. */
static void add_real(lathe_comparison *c, distance *d, int64_t i, double expected, double found) {
    if (!isfinite(expected) || !isfinite(found)) {
        if ((isnan(expected) && isnan(found)) || expected == found)
            return;
        if (c->wrong++ == 0)
            note(c, i, expected, found);
        return;
    }
    const double off = fabs(expected - found);
    d->difference += off * off;
    d->norm += expected * expected;
    if (off > d->most && c->wrong == 0) {
        d->most = off;
        note(c, i, expected, found);
    }
}

static void compare_reals(lathe_comparison *c, lathe_scalar dtype, const double *expected,
                          const void *found, int64_t count, int64_t width) {
    distance all = {0, 0, 0};
    for (int64_t begin = 0; begin < count; begin += width) {
        distance row = {0, 0, all.most};
        for (int64_t i = begin; i < begin + width && i < count; ++i) {
            if (lathe_ref_is_unset(expected[i]))
                continue;
            ++c->compared;
            add_real(c, &row, i, expected[i], lathe_compare_value(dtype, found, i));
        }
        all = (distance){all.difference + row.difference, all.norm + row.norm, row.most};
        c->row = fmax(c->row, finish(&row));
    }
    c->relative = finish(&all);
    c->pass = c->wrong == 0 && c->relative <= c->allowed && c->row <= c->allowed;
}

static void compare_integers(lathe_comparison *c, lathe_scalar dtype, const double *expected,
                             const void *found, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        if (lathe_ref_is_unset(expected[i]))
            continue;
        ++c->compared;
        const double f = lathe_compare_value(dtype, found, i);
        if (expected[i] != f && c->wrong++ == 0)
            note(c, i, expected[i], f);
    }
    c->relative = c->compared ? (double)c->wrong / (double)c->compared : 0;
    c->pass = c->wrong == 0;
}

/* Place of a 4-bit code on the grid of e2m1, -7 .. 7: neighbours differ by one, both zeros are
 * equal. */
static int code_place(unsigned code) {
    const int magnitude = (int)(code & 7);
    return code & 8 ? -magnitude : magnitude;
}

/* `step`: how far apart on the grid the two are. One step may be a tie that rounding decided; more
 * is plainly wrong. */
static void add_step(lathe_comparison *c, int64_t i, double expected, double found, int step,
                     bool *far) {
    ++c->compared;
    if (step == 0)
        return;
    if (c->wrong++ == 0 || (step > 1 && !*far))
        note(c, i, expected, found);
    *far = *far || step > 1;
}

static void compare_codes(lathe_comparison *c, const double *expected, const uint8_t *found,
                          int64_t count) {
    bool far = false;
    for (int64_t i = 0; i < count; ++i) {
        if (lathe_ref_is_unset(expected[i]))
            continue;
        const unsigned e = (unsigned)expected[i];
        for (unsigned shift = 0; shift < 8; shift += 4)
            add_step(c, i, expected[i], found[i],
                     abs(code_place(e >> shift) - code_place((unsigned)found[i] >> shift)), &far);
    }
    c->relative = c->compared ? (double)c->wrong / (double)c->compared : 0;
    c->pass = !far && c->relative <= c->allowed;
}

static int scale_place(uint8_t bits) {
    const int magnitude = bits & 0x7f;
    return bits & 0x80 && magnitude != 0x7f ? -magnitude : magnitude;
}

/* A reference gives scales as values. */
static void compare_scales(lathe_comparison *c, const double *expected, const uint8_t *found,
                           int64_t count) {
    bool far = false;
    for (int64_t i = 0; i < count; ++i) {
        if (lathe_ref_is_unset(expected[i]))
            continue;
        const int place = scale_place(lathe_synthetic_e4m3(expected[i]));
        add_step(c, i, expected[i], e4m3_value(found[i]), abs(place - scale_place(found[i])), &far);
    }
    c->relative = c->compared ? (double)c->wrong / (double)c->compared : 0;
    c->pass = !far && c->relative <= c->allowed;
}

lathe_comparison lathe_compare(lathe_rule rule, lathe_scalar dtype, const double *expected,
                               const void *found, int64_t count, int64_t width) {
    lathe_comparison c = {.rule = rule, .allowed = tolerances[rule], .worst = -1};
    switch (rule) {
    case LATHE_RULE_CODES:
        compare_codes(&c, expected, found, count);
        break;
    case LATHE_RULE_SCALES:
        compare_scales(&c, expected, found, count);
        break;
    case LATHE_RULE_EXACT:
        compare_integers(&c, dtype, expected, found, count);
        break;
    default:
        compare_reals(&c, dtype, expected, found, count, width > 0 ? width : count);
    }
    return c;
}

double lathe_compare_arrays(lathe_scalar dtype, const void *expected, const void *found,
                            int64_t count) {
    lathe_comparison c = {.worst = -1};
    distance d = {0, 0, 0};
    for (int64_t i = 0; i < count; ++i)
        add_real(&c, &d, i, lathe_compare_value(dtype, expected, i),
                 lathe_compare_value(dtype, found, i));
    return c.wrong ? (double)NAN : finish(&d);
}
