/* SPDX-License-Identifier: Apache-2.0
 * Reference of collective/all_gather_i32: what every rank had, one rank after the other. */
#include "reference.h"

void lathe_ref_collective_all_gather_i32(lathe_ref *r);

void lathe_ref_collective_all_gather_i32(lathe_ref *r) {
    const int64_t count = lathe_ref_dim(r, "from", 0);
    for (int source = 0; source < lathe_ref_ranks(r); source++) {
        const int32_t *from = lathe_ref_data(r, source, "from");
        for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
            for (int64_t i = 0; i < count; i++)
                lathe_ref_out(r, rank, "to")[source * count + i] = from[i];
    }
}
