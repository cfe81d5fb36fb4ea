/* SPDX-License-Identifier: Apache-2.0
 * Owns: what numbers a checkpoint's tensor may hold. Everything is finite. No scale is below
 * zero, and those of whole tensors and of activations are greater: they are divided by. The scale
 * of a block may be zero: so rounds, in e4m3, that of weights far smaller than their tensor's. */
#ifndef LATHE_NUMBERS_H
#define LATHE_NUMBERS_H

#include <stdbool.h>

#include "step_table.h"

typedef enum {
    LATHE_NUMBERS_ANY,
    LATHE_NUMBERS_FINITE,
    LATHE_NUMBERS_POSITIVE,
    LATHE_NUMBERS_UNSIGNED /* no sign: zero or greater */
} lathe_numbers;

lathe_numbers lathe_numbers_of(const lathe_step_source *source);
/* "finite", "finite and greater than zero", "finite and without a sign". */
const char *lathe_numbers_name(lathe_numbers numbers);
/* The first element that is not so, or `count`. `data` has any alignment. NaN is neither; e4m3 has
 * no infinity. Integers are always good. As fast as memory is read. */
int64_t lathe_numbers_find_bad(lathe_scalar dtype, lathe_numbers numbers, const void *data,
                               int64_t count);

/* Whether a tensor of `count` elements is looked at before anything is built: all but wide matrices
 * of bf16, which would have to be read once more for it. */
bool lathe_numbers_are_checked_first(lathe_scalar dtype, int64_t count);

#endif
