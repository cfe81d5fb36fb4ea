/* SPDX-License-Identifier: Apache-2.0
 * Reference of attention/qkv_front. */
#include "attention/front.ref.h"

void lathe_ref_attention_qkv_front(lathe_ref *r);
void lathe_ref_attention_qkv_front(lathe_ref *r) {
    const lathe_front f = lathe_front_read(r, "kSplits", "kEps");
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        double *q = lathe_ref_out(r, rank, "q");
        double *gate = lathe_ref_out(r, rank, "gate");
        lathe_front_keep(&f, rank);
        for (int64_t row = 0; row < f.rows; row++) {
            for (int64_t h = 0; h < f.heads; h++) {
                double *to = q + (row * f.heads + h) * f.dim;
                lathe_front_head(&f, rank, row, h, to);
                lathe_front_rotate(&f, rank, row, to);
                lathe_front_head(&f, rank, row, f.heads + 2 * f.kv_heads + h,
                                 gate + (row * f.heads + h) * f.dim);
            }
            lathe_front_insert(&f, rank, row);
        }
    }
}
