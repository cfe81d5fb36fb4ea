/* SPDX-License-Identifier: Apache-2.0
 * Reference: where a packed unit (moe/unit.cuh) keeps the codes and scales of a row of weights. */
#ifndef LATHE_MOE_UNIT_REF_H
#define LATHE_MOE_UNIT_REF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Bit of a word of eight codes that holds bit `bit` (3: the sign) of code `index`. */
static inline unsigned lathe_unit_bit(unsigned index, unsigned bit) {
    static const unsigned char at[8][4] = {{6, 7, 8, 15},   {22, 23, 24, 31}, {9, 10, 11, 18},
                                           {25, 26, 27, 2}, {12, 13, 14, 21}, {28, 29, 30, 5},
                                           {3, 4, 0, 1},    {19, 20, 16, 17}};
    return at[index][bit];
}

/* The weights of one expert, packed in units of `chunks` runs of 64. */
typedef struct {
    int64_t chunks, steps; /* steps: units along k */
    int64_t rows;          /* of the expert */
    int paired;            /* gates and ups: units of both halves of the rows in turn */
} lathe_unit_shape;

static inline int64_t lathe_unit_bytes(const lathe_unit_shape *s) {
    return s->chunks * 576;
}

/* Number of the unit, within its expert, that holds row `row` at step `step`. */
static inline int64_t lathe_unit_of(const lathe_unit_shape *s, int64_t row, int64_t step) {
    if (!s->paired)
        return row / 16 * s->steps + step;
    const int64_t half = row / (s->rows / 2), place = row % (s->rows / 2) / 16;
    return (place * s->steps + step) * 2 + half;
}

/* The code of row `row` (0 to 15) at k `k` of a unit. */
static inline unsigned lathe_unit_code(const uint8_t *unit, int64_t row, int64_t k) {
    const uint8_t *at =
        unit + k / 64 * 512 + (row % 8 * 4 + k % 64 / 16) * 16 + row / 8 * 8 + k % 16 / 8 * 4;
    uint32_t word;
    unsigned code = 0;
    memcpy(&word, at, sizeof word);
    for (unsigned bit = 0; bit < 4; ++bit)
        code |= (word >> lathe_unit_bit((unsigned)(k % 8), bit) & 1u) << bit;
    return code;
}

/* The scale byte of the same: 5 exponent and 3 mantissa bits. */
static inline unsigned lathe_unit_scale(const lathe_unit_shape *s, const uint8_t *unit, int64_t row,
                                        int64_t k) {
    const int64_t lane = row % 8 * 4 + k % 64 / 16;
    return unit[s->chunks * 512 + lane * s->chunks * 2 + k / 64 * 2 + row / 8];
}
static inline double lathe_unit_scale_value(unsigned byte) {
    return ldexp((double)(8 + (byte & 7u)), (int)(byte >> 3) - 26);
}

/* Row `row` of all experts' rows, without the global scale. */
static inline void lathe_unit_row(const lathe_unit_shape *s, const uint8_t *units, int64_t row,
                                  double *out) {
    static const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const int64_t expert_units = s->rows / 16 * s->steps;
    units += row / s->rows * expert_units * lathe_unit_bytes(s);
    for (int64_t i = 0; i < s->steps * s->chunks * 64; ++i) {
        const int64_t k = i % (s->chunks * 64);
        const uint8_t *unit =
            units + lathe_unit_of(s, row % s->rows, i / (s->chunks * 64)) * lathe_unit_bytes(s);
        const unsigned code = lathe_unit_code(unit, row % 16, k);
        const double size =
            magnitude[code & 7] * lathe_unit_scale_value(lathe_unit_scale(s, unit, row % 16, k));
        out[i] = code & 8 ? -size : size;
    }
}

#endif
