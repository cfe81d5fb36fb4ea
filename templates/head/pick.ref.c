/* SPDX-License-Identifier: Apache-2.0
 * Reference of head/pick: ranks in ascending order, so equals go to the lowest id. */
#include "reference.h"

#include <string.h>

void lathe_ref_head_pick(lathe_ref *r);

static int64_t choose(const int32_t *best, int64_t ranks, int64_t rows, int64_t vocab) {
    float greatest = 0.0f;
    int64_t token = -1;
    for (int64_t rank = 0; rank < ranks; rank++) {
        const int32_t *of = best + rank * rows * 2;
        float value;
        memcpy(&value, of, sizeof value);
        if (of[1] < 0 || (token >= 0 && value <= greatest))
            continue;
        greatest = value;
        token = rank * vocab + of[1];
    }
    return token < 0 ? 0 : token;
}

void lathe_ref_head_pick(lathe_ref *r) {
    const int64_t rows = lathe_ref_int(r, "kRows"), ranks = lathe_ref_int(r, "kRanks");
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        const int32_t *best = lathe_ref_data(r, rank, "best");
        for (int64_t row = 0; row < rows; row++)
            lathe_ref_out(r, rank, "token")[row] =
                (double)choose(best + 2 * row, ranks, rows, lathe_ref_int(r, "kVocab"));
    }
}
