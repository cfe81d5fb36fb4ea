/* SPDX-License-Identifier: Apache-2.0
 * Reference of boundary/exchange_residual_norm. */
#include "boundary/exchange.ref.h"

void lathe_ref_boundary_exchange_residual_norm(lathe_ref *r);

static double sent(lathe_ref *r, int rank, int64_t at) {
    return lathe_residual_branch(r, rank, at,
                                 lathe_ref_int(r, "kRows") * lathe_ref_int(r, "kColumns"));
}

void lathe_ref_boundary_exchange_residual_norm(lathe_ref *r) {
    lathe_exchange_residual(r, sent, lathe_ref_int(r, "kColumns"));
}
