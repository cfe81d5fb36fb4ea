/* SPDX-License-Identifier: Apache-2.0
 * Synthetic weights. Element i of a tensor depends on the seed, the tensor's name and i alone, by
 * integer arithmetic and a few exactly rounded operations, so that any machine (or a GPU) makes the
 * same bits in any order.
 *
 * calm: statistics of a trained checkpoint, so that rounding noise stays small over a whole step.
 * unkind: gains far from one, outliers, large and small scales, global scales of gate and up apart
 * by 8 in both directions, zero rows, pairs of experts with equal scores, experts that no token
 * picks. For launches, not for steps. */
#ifndef LATHE_SYNTHETIC_H
#define LATHE_SYNTHETIC_H

#include "lathe.h"
#include "weights.h"

typedef struct {
    bool unkind;
    uint64_t seed;
} lathe_synthetic;

/* "calm:7" or "unkind:7". False where `text` is neither. */
bool lathe_synthetic_parse(const char *text, lathe_synthetic *synthetic);

/* Gives the elements of any tensor. `synthetic` must outlive the reader. */
lathe_weight_reader lathe_synthetic_reader(lathe_synthetic *synthetic);

/* The key of a name, and the 64 hashed bits of element `index` under a key. */
uint64_t lathe_synthetic_key(uint64_t seed, const char *name);
uint64_t lathe_synthetic_bits(uint64_t key, uint64_t index);
/* From hashed bits: a value in [0, 1), and one that is about standard normal, within 3.5 of zero.
 */
double lathe_synthetic_uniform(uint64_t bits);
double lathe_synthetic_normal(uint64_t bits);

/* Nearest e4m3, ties to even, saturating at 448. */
uint8_t lathe_synthetic_e4m3(double value);
/* Nearest bf16, ties to even. */
uint16_t lathe_synthetic_bf16(double value);

#endif
