/* SPDX-License-Identifier: Apache-2.0
 * Synthetic weights. Element i of a tensor depends on the seed, the tensor's name and i alone, by
 * integer arithmetic and a few exactly rounded operations, so that any machine (or a GPU) makes the
 * same bits in any order. templates/synthetic/fill.cuh makes them on a device.
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

/* What an element is; the names stand in layouts/README.md. As templates/synthetic/fill.cuh has
 * them. */
typedef enum {
    LATHE_SYNTHETIC_WEIGHT,
    LATHE_SYNTHETIC_EMBEDDING,
    LATHE_SYNTHETIC_OFFSET,
    LATHE_SYNTHETIC_GAIN,
    LATHE_SYNTHETIC_GATE,
    LATHE_SYNTHETIC_ROUTER,
    LATHE_SYNTHETIC_BIAS,
    LATHE_SYNTHETIC_CODES,
    LATHE_SYNTHETIC_SCALES,
    LATHE_SYNTHETIC_GLOBAL_SCALE,
    LATHE_SYNTHETIC_INPUT_SCALE,
    LATHE_SYNTHETIC_HEAD,
    LATHE_SYNTHETIC_KINDS
} lathe_synthetic_kind;

/* All that the elements of one tensor follow from, beside their numbers. fill.cuh reads it as it
 * stands: SyntheticTensor. */
typedef struct lathe_synthetic_tensor {
    uint64_t kind;   /* lathe_synthetic_kind */
    uint64_t unkind; /* 0 or 1 */
    uint64_t key;
    uint64_t pair_key, idle_key; /* of the seed alone: router and bias must agree */
    uint64_t embedding;          /* key of the embedding that a head answers */
    uint64_t shift;              /* from a token to the one that follows it */
    uint64_t rows;               /* size of the first dimension */
    uint64_t last;               /* size of the last dimension */
    double spread;               /* 1 / sqrt(last) */
} lathe_synthetic_tensor;

/* LATHE_INVALID for an init that is no kind, LATHE_UNSUPPORTED for a type without values. */
LATHE_CHECKED lathe_status lathe_synthetic_describe(const lathe_synthetic *synthetic,
                                                    const lathe_step_source *source,
                                                    const char *name, lathe_synthetic_tensor *out,
                                                    char *message, size_t size);

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
