/* SPDX-License-Identifier: Apache-2.0
 * One call of a provider's reference: what reference.h's functions read and fill. Owns the table of
 * references that were compiled in. */
#ifndef LATHE_REFERENCE_CALL_H
#define LATHE_REFERENCE_CALL_H

#include "reference.h"
#include "step.h"

#define LATHE_REF_RANKS 16
#define LATHE_REF_FLIPS 64 /* kept; more are counted only */

/* Relative: as far as two correct evaluations in fp32 of one value may lie apart. */
#define LATHE_REF_NOISE 0x1p-21

typedef void lathe_ref_function(lathe_ref *r);

/* `count` elements, none of them defined yet, for free(); NULL: no memory. */
double *lathe_ref_new_output(int64_t count);

/* The reference of a provider ("gemm/skinny"), or NULL. */
lathe_ref_function *lathe_ref_find(const char *provider);

typedef struct {
    const void *before; /* raw elements before the launch */
    const void *after;  /* raw elements after it, for lathe_ref_observed; or NULL */
    double *out;        /* one per element of an out or inout argument; or NULL */
} lathe_ref_value;

typedef struct {
    int rank;
    int64_t row;
    double ulps;
} lathe_ref_flip_record;

struct lathe_ref {
    const lathe_step_launch *launch; /* rank 0's: names, shapes and constants are the same on all */
    int ranks;
    lathe_ref_value *values[LATHE_REF_RANKS]; /* one per argument, in the kernel's order */
    int64_t block;                            /* columns of which one is wanted; 1: all */
    uint64_t seed;                            /* of the sample and of the jitter */
    double jitter;                            /* relative noise of products; 0: none */
    uint64_t draw; /* which inner roundings are turned at a tie; 0: none */
    bool follow;   /* take every choice from `after` */
    int flip_count;
    lathe_ref_flip_record flips[LATHE_REF_FLIPS];
    bool failed;
    char message[256];
};

/* Clears `r` for a launch on `ranks` ranks. */
void lathe_ref_begin(lathe_ref *r, const lathe_step_launch *launch, int ranks, uint64_t seed);
/* Samples at least 256 columns of the outputs' last dimension where the launch is large. */
void lathe_ref_sample(lathe_ref *r);
/* Calls the reference. False, with r->message, where there is none or it failed. */
bool lathe_ref_call(lathe_ref *r);

#endif
