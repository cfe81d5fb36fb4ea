/* SPDX-License-Identifier: Apache-2.0
 * Reference of collective/all_reduce: the library's order is its own, so the sum is formed in
 * double and rounded once. */
#include "reference.h"

void lathe_ref_collective_all_reduce(lathe_ref *r);

void lathe_ref_collective_all_reduce(lathe_ref *r) {
    const int64_t count = lathe_ref_dim(r, "from", 0);
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
            sum += lathe_bf16_value(((const uint16_t *)lathe_ref_data(r, rank, "from"))[i]);
        for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
            lathe_ref_out(r, rank, "to")[i] = lathe_bf16_round(sum);
    }
}
