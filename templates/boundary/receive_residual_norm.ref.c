/* SPDX-License-Identifier: Apache-2.0
 * Reference of boundary/receive_residual_norm: what the ranks published is the data of the bound
 * mailbox argument. */
#include "boundary/exchange.ref.h"

void lathe_ref_boundary_receive_residual_norm(lathe_ref *r);

static double sent_columns(lathe_ref *r, int rank, int64_t at) {
    return lathe_bf16_value(((const uint16_t *)lathe_ref_data(r, rank, "columns"))[at]);
}

static double sent_parts(lathe_ref *r, int rank, int64_t at) {
    return lathe_bf16_value(((const uint16_t *)lathe_ref_data(r, rank, "parts"))[at]);
}

void lathe_ref_boundary_receive_residual_norm(lathe_ref *r) {
    const int64_t columns = lathe_ref_int(r, "kColumns");
    if (!lathe_ref_data(r, 0, columns > 0 ? "columns" : "parts"))
        lathe_ref_fail(r, "boundary/receive_residual_norm: nothing was published");
    else if (columns > 0)
        lathe_exchange_residual(r, sent_columns, columns);
    else
        lathe_exchange_residual(r, sent_parts, lathe_ref_int(r, "kHidden"));
}
