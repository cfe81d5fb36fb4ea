/* SPDX-License-Identifier: Apache-2.0
 * Reference of moe/norm_quantise. The norm is in double up to its rounding to bf16; the quantiser's
 * scalar steps are fp32 as the format defines them, because they decide ties. */
#include <float.h>
#include <math.h>

#include "reference.h"

typedef struct {
    int64_t rows, width, splits;
    const uint16_t *columns, *gain;
    const float *partials;
    double eps, center;
    float global;
} norm_job;

/* Pooled value before the norm. */
static double pooled(const norm_job *job, int64_t row, int64_t i) {
    double sum = 0;
    if (job->columns != NULL)
        return lathe_bf16_value(job->columns[row * job->width + i]);
    for (int64_t s = 0; s < job->splits; ++s)
        sum += (double)job->partials[(s * job->rows + row) * job->width + i];
    return lathe_bf16_round(sum);
}

static void normalise(const norm_job *job, int64_t row, double *h1) {
    double squares = 0;
    for (int64_t i = 0; i < job->width; ++i) {
        h1[i] = pooled(job, row, i);
        squares += h1[i] * h1[i];
    }
    const double inverse = 1 / sqrt(squares / (double)job->width + job->eps);
    for (int64_t i = 0; i < job->width; ++i)
        h1[i] = lathe_bf16_round(h1[i] * inverse * (job->center + lathe_bf16_value(job->gain[i])));
}

static double e4m3_value(unsigned code) {
    const int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
    if ((code & 127) == 127)
        return (double)NAN;
    const double magnitude =
        exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    return code & 128 ? -magnitude : magnitude;
}

/* Nearest e4m3 of a number that is not negative, ties to the even code, saturating. */
static unsigned e4m3_code(double v) {
    unsigned best = 0;
    if (isnan(v))
        return 127;
    v = fmin(v, 448);
    for (unsigned code = 1; code < 127; ++code) {
        const double here = fabs(e4m3_value(code) - v), there = fabs(e4m3_value(best) - v);
        if (here < there || (here == there && code % 2 == 0))
            best = code;
    }
    return best;
}

/* Nearest e2m1, ties to the even code, saturating; NaN gives 7. */
static unsigned e2m1_code(double v) {
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
static double quantise(const double *y, float global, double *out) {
    double most = 0;
    for (int i = 0; i < 16; ++i)
        most = isnan(y[i]) || isnan(most) ? (double)NAN : fmax(most, fabs(y[i]));
    const float ratio = (float)most / 6.0f;
    const unsigned scale = e4m3_code((double)(global * ratio));
    const float step = (float)e4m3_value(scale);
    float inverse = 1.0f / (step / global);
    if (inverse > FLT_MAX)
        inverse = FLT_MAX;
    if (most == 0)
        inverse = 0;
    for (int i = 0; i < 16; i += 2) {
        unsigned low = e2m1_code((double)((float)y[i] * inverse));
        unsigned high = e2m1_code((double)((float)y[i + 1] * inverse));
        if (most != 0 && step == 0.0f)
            low = high = 0;
        out[i / 2] = (double)(low | high << 4);
    }
    return (double)step;
}

static void reference_row(const norm_job *job, lathe_ref *r, int rank, int64_t row) {
    double h1[16384];
    double *out = lathe_ref_out(r, rank, "h1");
    double *codes = lathe_ref_out(r, rank, "codes");
    double *scales = lathe_ref_out(r, rank, "scales");
    const int64_t blocks = job->width / 16;
    normalise(job, row, h1);
    if (out != NULL)
        memcpy(out + row * job->width, h1, sizeof *h1 * (size_t)job->width);
    for (int64_t b = 0; b < blocks; ++b)
        scales[row * blocks + b] =
            quantise(h1 + b * 16, job->global, codes + (row * blocks + b) * 8);
}

void lathe_ref_moe_norm_quantise(lathe_ref *r);
void lathe_ref_moe_norm_quantise(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        norm_job job = {.rows = lathe_ref_int(r, "kRows"),
                        .width = lathe_ref_int(r, "kWidth"),
                        .splits = lathe_ref_int(r, "kSplits"),
                        .columns = lathe_ref_data(r, rank, "columns"),
                        .gain = lathe_ref_data(r, rank, "gain"),
                        .partials = lathe_ref_data(r, rank, "partials"),
                        .eps = lathe_ref_real(r, "kEps"),
                        .center = (double)lathe_ref_int(r, "kCenter"),
                        .global = *(const float *)lathe_ref_data(r, rank, "input_gscale")};
        if (job.width % 16 != 0 || job.width > 16384) {
            lathe_ref_fail(r, "norm_quantise: the width must be a multiple of 16, at most 16384");
            return;
        }
        for (int64_t row = 0; row < job.rows; ++row)
            reference_row(&job, r, rank, row);
    }
}
