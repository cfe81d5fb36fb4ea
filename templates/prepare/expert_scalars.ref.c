/* SPDX-License-Identifier: Apache-2.0
 * Reference of prepare/expert_scalars (section 6.1 of the mathematics). The scalars are fp32 by
 * definition, so every product and quotient is formed in double, where it is exact or nearly so,
 * and rounded to fp32. */
#include "reference.h"

#include <math.h>

void lathe_ref_prepare_expert_scalars(lathe_ref *r);

static double greatest(const float *values, int64_t n) {
    double found = 0.0;
    for (int64_t i = 0; i < n; i++)
        found = fmax(found, (double)values[i]);
    return found;
}

static double fp32(double value) {
    return (double)(float)value;
}

static void one_rank(lathe_ref *r, int rank) {
    const int64_t experts = lathe_ref_int(r, "kExperts"), local = lathe_ref_int(r, "kLocal");
    const int32_t *place = lathe_ref_data(r, rank, "rank");
    const int64_t first = lathe_ref_int(r, "kScaled") == local ? 0 : place[0] * local;
    const float *scale13 = lathe_ref_data(r, rank, "scale13"),
                *scale2 = lathe_ref_data(r, rank, "scale2");
    const double a13 = greatest(lathe_ref_data(r, rank, "input13"), 2 * experts);
    const double a2 = greatest(lathe_ref_data(r, rank, "input2"), experts);
    double *gate = lathe_ref_out(r, rank, "gate_alpha"), *up = lathe_ref_out(r, rank, "up_alpha");
    double *down = lathe_ref_out(r, rank, "alpha");
    lathe_ref_out(r, rank, "input_gscale")[0] = fp32(1.0 / a13);
    for (int64_t e = 0; e < local; e++) {
        gate[e] = fp32(a13 * (double)scale13[2 * (first + e)]);
        up[e] = fp32(fp32(a13 * (double)scale13[2 * (first + e) + 1]) / a2);
        down[e] = fp32(a2 * (double)scale2[first + e]);
    }
}

void lathe_ref_prepare_expert_scalars(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
        one_rank(r, rank);
}
