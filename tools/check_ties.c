/* SPDX-License-Identifier: Apache-2.0
 * Rows that are off because of a tie inside a launch. A launch that covers several parts rounds
 * values to bf16 that nobody can read back. Where one lies so near a tie that arithmetic in fp32
 * may find it on either side, two correct launches differ by a whole step of it, and what follows
 * may magnify that: half a percent of one channel of a query moves all weights of a peaked softmax.
 * No tolerance could allow for it and still tell of anything; but a reference that rounds at the
 * tie as the launch did agrees as closely as ever. So a row that is off is compared with what the
 * reference gives with ties turned (lathe_ref_round): all of them, then some of them, drawn by
 * seed. It must keep to the rule against one of these. The whole value has kept to it untouched. */
#include <stdlib.h>
#include <string.h>

#include "check_state.h"

#define DRAWS 8 /* the first turns every tie: enough for a row that depends on one */

static int64_t count_elements(const lathe_ref *ref, int index) {
    return lathe_step_shape_count(&ref->launch->values[index].shape, 0);
}

static void free_values(lathe_ref *again) {
    for (int rank = 0; rank < again->ranks; ++rank) {
        for (int i = 0; again->values[rank] && i < again->launch->value_count; ++i)
            free(again->values[rank][i].out);
        free(again->values[rank]);
    }
}

/* What `ref` was given, and outputs of its own. False: no memory. */
static bool copy_values(lathe_ref *again, const lathe_ref *ref) {
    const size_t count = (size_t)ref->launch->value_count;
    bool whole = true;
    for (int rank = 0; rank < ref->ranks; ++rank) {
        lathe_ref_value *to = again->values[rank] = calloc(count + 1, sizeof *to);
        for (size_t i = 0; to && i < count; ++i) {
            const lathe_ref_value *from = &ref->values[rank][i];
            to[i] = (lathe_ref_value){from->before, from->after, NULL};
            to[i].out = from->out ? lathe_ref_new_output(count_elements(ref, (int)i)) : NULL;
            whole = whole && !from->out == !to[i].out;
        }
        whole = whole && to;
    }
    return whole;
}

/* The output with the ties of `draw` turned, in new memory; NULL where there is none. */
static double *draw_output(const lathe_ref *ref, uint64_t draw, int rank, int index) {
    lathe_ref again = *ref;
    double *out = NULL;
    again.draw = draw;
    if (copy_values(&again, ref) && lathe_ref_call(&again)) {
        out = again.values[rank][index].out;
        again.values[rank][index].out = NULL;
    }
    free_values(&again);
    return out;
}

/* Copies the row of `drawn` where that one keeps to the rule and the expected one does not. */
static bool take_row(double *expected, const double *drawn, const lathe_comparison *c,
                     lathe_scalar dtype, const void *found, int64_t width) {
    if (lathe_compare(c->rule, dtype, expected, found, width, width).pass ||
        !lathe_compare(c->rule, dtype, drawn, found, width, width).pass)
        return false;
    memcpy(expected, drawn, (size_t)width * sizeof *expected);
    return true;
}

static int64_t take_rows(double *expected, const double *drawn, const lathe_comparison *c,
                         lathe_scalar dtype, const void *found, int64_t count, int64_t width) {
    const size_t row = (size_t)width * lathe_scalar_bytes(dtype);
    int64_t taken = 0;
    for (int64_t i = 0; i < count / width; ++i)
        taken += take_row(expected + i * width, drawn + i * width, c, dtype,
                          (const char *)found + (size_t)i * row, width);
    return taken;
}

int64_t lathe_check_ties(const lathe_ref *ref, int rank, int index, int64_t width,
                         lathe_comparison *comparison) {
    const lathe_comparison plain = *comparison;
    if (plain.wrong || plain.relative > plain.allowed || plain.row <= plain.allowed)
        return 0;
    const lathe_scalar dtype = ref->launch->values[index].arg->dtype;
    const lathe_ref_value *value = &ref->values[rank][index];
    const int64_t count = count_elements(ref, index);
    const size_t bytes = (size_t)count * sizeof(double);
    double *expected = malloc(bytes);
    int64_t turned = 0;
    if (expected)
        memcpy(expected, value->out, bytes);
    for (uint64_t draw = 1; expected && draw <= DRAWS && !comparison->pass; ++draw) {
        double *drawn = draw_output(ref, draw, rank, index);
        if (!drawn || (draw == 1 && memcmp(drawn, value->out, bytes) == 0))
            draw = DRAWS; /* there is no tie */
        else
            turned += take_rows(expected, drawn, &plain, dtype, value->after, count, width);
        free(drawn);
        *comparison = lathe_compare(plain.rule, dtype, expected, value->after, count, width);
    }
    comparison->relative = plain.relative;
    free(expected);
    return turned;
}
