/* SPDX-License-Identifier: Apache-2.0
 * Reference of one row of a gated residual with the norm after it (sections 3.1 and 3.2 of the
 * mathematics), shared by the references of this folder. */
#ifndef LATHE_BOUNDARY_RESIDUAL_REF_H
#define LATHE_BOUNDARY_RESIDUAL_REF_H

#include "reference.h"

#include <math.h>

typedef struct {
    int64_t hidden;
    double branch_eps, branch_center, eps, center;
    const float *s, *alpha, *beta;      /* s: of the row */
    const uint16_t *branch_gain, *gain; /* branch_gain: NULL where the branch has none */
    double *s_out, *aux, *x;            /* of the row; aux may be NULL */
} lathe_residual_row;

static inline double lathe_residual_gained(const lathe_residual_row *p, const double *branch,
                                           int64_t i) {
    return p->branch_gain ? branch[i] * (p->branch_center + lathe_bf16_value(p->branch_gain[i]))
                          : branch[i];
}

/* `branch`: the row of the branch, bf16 values. */
static inline void lathe_residual_compute(const lathe_residual_row *p, const double *branch) {
    double squares = 0.0;
    for (int64_t i = 0; i < p->hidden; i++) {
        const double b = lathe_residual_gained(p, branch, i);
        squares += b * b;
    }
    const double branch_scale = 1.0 / sqrt(squares / (double)p->hidden + p->branch_eps);
    squares = 0.0;
    for (int64_t i = 0; i < p->hidden; i++) {
        const double n = lathe_residual_gained(p, branch, i) * branch_scale;
        const double s = (double)p->alpha[i] * (double)p->s[i] + (double)p->beta[i] * n;
        p->s_out[i] = s;
        squares += s * s;
    }
    const double scale = 1.0 / sqrt(squares / (double)p->hidden + p->eps);
    for (int64_t i = 0; i < p->hidden; i++) {
        p->x[i] =
            lathe_bf16_round(p->s_out[i] * scale * (p->center + lathe_bf16_value(p->gain[i])));
        p->s_out[i] = (double)(float)p->s_out[i];
        if (p->aux)
            p->aux[i] = p->s_out[i];
    }
}

/* What a row needs of the call, at row 0 of `rank`. */
static inline lathe_residual_row lathe_residual_first_row(lathe_ref *r, int rank) {
    return (lathe_residual_row){
        .hidden = lathe_ref_int(r, "kHidden"),
        .branch_eps = lathe_ref_real(r, "kBranchEps"),
        .branch_center = (double)lathe_ref_int(r, "kBranchCenter"),
        .eps = lathe_ref_real(r, "kEps"),
        .center = (double)lathe_ref_int(r, "kCenter"),
        .s = lathe_ref_data(r, rank, "s"),
        .alpha = lathe_ref_data(r, rank, "alpha"),
        .beta = lathe_ref_data(r, rank, "beta"),
        .branch_gain = lathe_ref_data(r, rank, "branch_gain"),
        .gain = lathe_ref_data(r, rank, "gain"),
        .s_out = lathe_ref_out(r, rank, "s_out"),
        .aux = lathe_ref_out(r, rank, "aux"),
        .x = lathe_ref_out(r, rank, "x"),
    };
}

static inline void lathe_residual_next_row(lathe_residual_row *p) {
    p->s += p->hidden;
    p->s_out += p->hidden;
    p->x += p->hidden;
    if (p->aux)
        p->aux += p->hidden;
}

/* Element `at` of a rank's branch: whole, or the fp32 sum of its partials from +0 upwards, rounded
 * to bf16 once. The order is the definition's, so the sum is formed in fp32 here too. */
static inline double lathe_residual_branch(lathe_ref *r, int rank, int64_t at, int64_t elements) {
    const uint16_t *whole = lathe_ref_data(r, rank, "branch");
    if (whole)
        return lathe_bf16_value(whole[at]);
    const float *partials = lathe_ref_data(r, rank, "branch_partials");
    const int64_t splits = lathe_ref_int(r, "kSplits");
    float sum = 0.0f;
    for (int64_t i = 0; i < splits; i++)
        sum += partials[i * elements + at];
    return lathe_bf16_round((double)sum);
}

#endif
