/* SPDX-License-Identifier: Apache-2.0
 * Reference of attention/paged. */
#include "attention/paged.ref.h"

void lathe_ref_attention_paged(lathe_ref *r);
void lathe_ref_attention_paged(lathe_ref *r) {
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        lathe_paged p = lathe_paged_read(r, rank);
        p.q = lathe_ref_data(r, rank, "q");
        p.gate = lathe_ref_data(r, rank, "gate");
        lathe_ref_parallel(r, p.rows * p.heads, lathe_paged_row, &p);
    }
}
