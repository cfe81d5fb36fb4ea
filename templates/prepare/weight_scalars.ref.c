/* SPDX-License-Identifier: Apache-2.0
 * Reference of prepare/weight_scalars (section 6.4 of the mathematics). */
#include "reference.h"

void lathe_ref_prepare_weight_scalars(lathe_ref *r);
void lathe_ref_prepare_weight_scalars(lathe_ref *r) {
    const int64_t scaled = lathe_ref_int(r, "kScaled"), local = lathe_ref_int(r, "kLocal");
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        const float *scale13 = lathe_ref_data(r, rank, "scale13"),
                    *scale2 = lathe_ref_data(r, rank, "scale2");
        const int32_t *place = lathe_ref_data(r, rank, "rank");
        const int64_t first = local == scaled ? 0 : place[0] * local;
        for (int64_t e = 0; e < local; e++) {
            lathe_ref_out(r, rank, "gate_alpha")[e] = (double)scale13[2 * (first + e)];
            lathe_ref_out(r, rank, "up_alpha")[e] = (double)scale13[2 * (first + e) + 1];
            lathe_ref_out(r, rank, "alpha")[e] = (double)scale2[first + e];
        }
    }
}
