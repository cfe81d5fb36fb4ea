/* SPDX-License-Identifier: Apache-2.0
 * Reference: NVFP4 weights as numbers, and their products with bf16 activations. */
#ifndef LATHE_MOE_NVFP4_REF_H
#define LATHE_MOE_NVFP4_REF_H

#include <math.h>
#include <stdlib.h>

#include "moe/quantise.ref.h"
#include "reference.h"

/* Row `row` of `width` codes with its scales, without the global scale. */
static inline void lathe_nvfp4_row(const uint8_t *codes, const uint8_t *scales, int64_t row,
                                   int64_t width, double *out) {
    static const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    codes += row * (width / 2);
    scales += row * (width / 16);
    for (int64_t i = 0; i < width; ++i) {
        const unsigned code = (unsigned)codes[i / 2] >> (i % 2 * 4) & 15u;
        const double size = lathe_e4m3_value(scales[i / 16]) * magnitude[code & 7];
        out[i] = code & 8 ? -size : size;
    }
}

static inline double lathe_nvfp4_dot(const double *w, const uint16_t *x, int64_t width) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i)
        sum += w[i] * lathe_bf16_value(x[i]);
    return sum;
}

#endif
