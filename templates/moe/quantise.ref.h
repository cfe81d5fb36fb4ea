/* SPDX-License-Identifier: Apache-2.0
 * Reference of the NVFP4 quantiser of expert inputs. Its scalar steps are fp32 as the format
 * defines them, because they decide ties. */
#ifndef LATHE_MOE_QUANTISE_REF_H
#define LATHE_MOE_QUANTISE_REF_H

#include <float.h>
#include <math.h>

#include "reference.h"

static inline double lathe_e4m3_value(unsigned code) {
    const int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
    if ((code & 127) == 127)
        return (double)NAN;
    const double magnitude =
        exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    return code & 128 ? -magnitude : magnitude;
}

/* Nearest e4m3 of a number that is not negative, ties to the even code, saturating. */
static inline unsigned lathe_e4m3_code(double v) {
    unsigned best = 0;
    if (isnan(v))
        return 127;
    v = fmin(v, 448);
    for (unsigned code = 1; code < 127; ++code) {
        const double here = fabs(lathe_e4m3_value(code) - v),
                     there = fabs(lathe_e4m3_value(best) - v);
        if (here < there || (here == there && code % 2 == 0))
            best = code;
    }
    return best;
}

/* Nearest e2m1, ties to the even code, saturating; NaN gives 7. */
static inline unsigned lathe_e2m1_code(double v) {
    static const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const double size = fmin(fabs(v), 6);
    unsigned best = 0;
    if (isnan(v))
        return 7;
    for (unsigned code = 1; code < 8; ++code) {
        const double here = fabs(magnitude[code] - size), there = fabs(magnitude[best] - size);
        if (here < there || (here == there && code % 2 == 0))
            best = code;
    }
    return best | (signbit(v) ? 8u : 0u);
}

/* Codes of 16 values into out[8], two to a byte, the even one low; returns the scale. */
static inline double lathe_quantise(const double *y, float global, double *out) {
    double most = 0;
    for (int i = 0; i < 16; ++i)
        most = isnan(y[i]) || isnan(most) ? (double)NAN : fmax(most, fabs(y[i]));
    const float ratio = (float)most / 6.0f;
    const unsigned scale = lathe_e4m3_code((double)(global * ratio));
    const float step = (float)lathe_e4m3_value(scale);
    float inverse = 1.0f / (step / global);
    if (inverse > FLT_MAX)
        inverse = FLT_MAX;
    if (most == 0)
        inverse = 0;
    for (int i = 0; i < 16; i += 2) {
        unsigned low = lathe_e2m1_code((double)((float)y[i] * inverse));
        unsigned high = lathe_e2m1_code((double)((float)y[i + 1] * inverse));
        if (most != 0 && step == 0.0f)
            low = high = 0;
        out[i / 2] = (double)(low | high << 4);
    }
    return (double)step;
}

/* Codes and scales of rank `rank`'s rows, out of h1 in double. */
static inline void lathe_quantise_rows(lathe_ref *r, int rank, const double *h1) {
    const int64_t rows = lathe_ref_int(r, "kRows"), blocks = lathe_ref_int(r, "kBlocks");
    const float global = *(const float *)lathe_ref_data(r, rank, "input_gscale");
    double *codes = lathe_ref_out(r, rank, "codes"), *scales = lathe_ref_out(r, rank, "scales");
    for (int64_t b = 0; b < rows * blocks; ++b)
        scales[b] = lathe_quantise(h1 + b * 16, global, codes + b * 8);
}

#endif
