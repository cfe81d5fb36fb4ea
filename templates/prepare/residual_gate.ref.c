/* SPDX-License-Identifier: Apache-2.0
 * Reference of prepare/residual_gate (section 3.1 of the mathematics). */
#include "reference.h"

#include <math.h>

void lathe_ref_prepare_residual_gate(lathe_ref *r);

static double sigmoid(double u) {
    return 1.0 / (1.0 + exp(-u));
}

void lathe_ref_prepare_residual_gate(lathe_ref *r) {
    const int64_t n = lathe_ref_int(r, "kHidden");
    const double temperature = lathe_ref_real(r, "kTemperature"),
                 clamp = lathe_ref_real(r, "kClamp");
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        const uint16_t *gate = lathe_ref_data(r, rank, "gate");
        double *alpha = lathe_ref_out(r, rank, "alpha"), *beta = lathe_ref_out(r, rank, "beta");
        for (int64_t i = 0; i < n; i++) {
            const double u = lathe_bf16_value(gate[i]) / temperature;
            beta[i] = (double)(float)sigmoid(u);
            alpha[i] = (double)(float)sqrt(fmax(sigmoid(-u) * (1.0 + sigmoid(u)), clamp));
        }
    }
}
