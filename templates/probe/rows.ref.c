/* SPDX-License-Identifier: Apache-2.0
 * Reference of probe/rows. */
#include "../moe/quantise.ref.h"

#include <stdlib.h>

void lathe_ref_probe_rows(lathe_ref *r);

static uint32_t scatter(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* To bf16: nearest, ties to even. */
static double round16(float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    word = (word + 0x7fffu + (word >> 16 & 1u)) & 0xffff0000u;
    memcpy(&value, &word, sizeof word);
    return (double)value;
}

static double element(int64_t i) {
    int32_t sum = -131070;
    for (uint32_t half = 1; half <= 2; half++) {
        const uint32_t word = scatter(2 * (uint32_t)i + half);
        sum += (int32_t)(word & 0xffffu) + (int32_t)(word >> 16);
    }
    return round16((float)sum * 2.6428968e-5f);
}

void lathe_ref_probe_rows(lathe_ref *r) {
    const bool quantised = lathe_ref_int(r, "kQuantised") == 1;
    const int64_t width = quantised ? 16 * lathe_ref_int(r, "kBlocks") : lathe_ref_int(r, "kWidth");
    const int64_t count = lathe_ref_int(r, "kRows") * width;
    double *values = malloc((size_t)count * sizeof *values);
    if (!values) {
        lathe_ref_fail(r, "no memory");
        return;
    }
    for (int64_t i = 0; i < count; i++)
        values[i] = element(i);
    for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
        if (quantised)
            lathe_quantise_rows(r, rank, values);
        else
            memcpy(lathe_ref_out(r, rank, "h1"), values, (size_t)count * sizeof *values);
    free(values);
}
