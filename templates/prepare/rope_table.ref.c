/* SPDX-License-Identifier: Apache-2.0
 * Reference of prepare/rope_table: angles in double, cosines and sines rounded to fp32 (section 4
 * of the mathematics). */
#include "reference.h"

#include <math.h>

void lathe_ref_prepare_rope_table(lathe_ref *r);

typedef struct {
    double *table;
    int64_t width;
    double theta;
} rope;

static void fill_position(void *context, int64_t position) {
    const rope *t = context;
    const int64_t half = t->width / 2;
    double *row = t->table + position * t->width;
    for (int64_t j = 0; j < half; j++) {
        const double angle = (double)position / pow(t->theta, 2.0 * (double)j / (double)t->width);
        row[j] = (double)(float)cos(angle);
        row[half + j] = (double)(float)sin(angle);
    }
}

void lathe_ref_prepare_rope_table(lathe_ref *r) {
    rope t = {.width = lathe_ref_int(r, "kWidth"), .theta = lathe_ref_real(r, "kTheta")};
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++) {
        t.table = lathe_ref_out(r, rank, "table");
        lathe_ref_parallel(r, lathe_ref_int(r, "kPositions"), fill_position, &t);
    }
}
