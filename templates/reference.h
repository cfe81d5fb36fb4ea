/* SPDX-License-Identifier: Apache-2.0
 * The interface of a provider's reference: one call computes one launch, for all ranks, in double.
 * Owned by the checker (tools/check.c), which implements these functions. */
#ifndef LATHE_REFERENCE_H
#define LATHE_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct lathe_ref lathe_ref;

/* Value of an integer or real constant of the kernel. A name the kernel lacks marks the call as failed and gives 0. */
int64_t lathe_ref_int(const lathe_ref *r, const char *constant);
double lathe_ref_real(const lathe_ref *r, const char *constant);

/* Number of ranks taking part; 1 without tensor parallelism. */
int lathe_ref_ranks(const lathe_ref *r);

/* Whether an optional argument is bound. */
bool lathe_ref_has(const lathe_ref *r, const char *arg);

/* Raw elements of an in or inout argument before the launch, in the argument's dtype; NULL when unbound. */
const void *lathe_ref_data(const lathe_ref *r, int rank, const char *arg);
/* Shape of an argument: number of elements along dimension d (1 past the last). */
int64_t lathe_ref_dim(const lathe_ref *r, const char *arg, int d);

/* Expected output, one double per element, preset to LATHE_REF_UNSET; NULL when unbound. What stays unset is not compared in an
 * out argument and must be unchanged in an inout argument. */
double *lathe_ref_out(lathe_ref *r, int rank, const char *arg);

/* What the launch itself wrote to an integer out argument, in its dtype; NULL when unbound. Only for a choice between scores that
 * are equal but for rounding (routing): where the written choice differs from the reference's, call lathe_ref_flip with the
 * distance between the two in ulp of the score; if it returns true, compute everything else from the written choice. */
const void *lathe_ref_observed(const lathe_ref *r, int rank, const char *arg);
/* True within 4 ulp, and always while a whole step is followed (there flips are listed). False: keep the own choice. */
bool lathe_ref_flip(lathe_ref *r, int rank, int64_t row, double ulps);

/* Whether column `column` of the output's last dimension is wanted. Large matrices are checked on a seeded sample of columns. */
bool lathe_ref_column(const lathe_ref *r, int64_t column);

/* The result of one matrix product, with relative noise of 2^-21 when the checker measures the noise of a step; otherwise unchanged. */
double lathe_ref_jitter(const lathe_ref *r, double product, uint64_t index);

/* A value that the launch rounds to bf16 and keeps to itself: as lathe_bf16_round. Where a row of an output is off, the checker asks
 * again: what is within 2^-21 of itself of a tie, which arithmetic in fp32 may find on either side, then goes to the other one. */
double lathe_ref_round(const lathe_ref *r, double value);

/* Runs body(context, i) for i in [0, n) on several threads. */
void lathe_ref_parallel(lathe_ref *r, int64_t n, void (*body)(void *context, int64_t i), void *context);

/* A failure that is the reference's own (an unsupported constant, no memory). The message is copied. */
void lathe_ref_fail(lathe_ref *r, const char *message);

/* Elements left at this value are not compared. One NaN payload that no arithmetic produces. */
static inline double lathe_ref_unset(void) {
    const uint64_t bits = 0x7ff4dead4ead4eadull;
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}
static inline bool lathe_ref_is_unset(double d) {
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits == 0x7ff4dead4ead4eadull || bits == 0x7ffcdead4ead4eadull;
}
#define LATHE_REF_UNSET lathe_ref_unset()

/* bf16 bits to double, exactly. */
static inline double lathe_bf16_value(uint16_t bits) {
    const uint32_t word = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &word, sizeof f);
    return (double)f;
}
/* Nearest bf16, ties to even, of a double that has first been rounded to float. NaN gives 0x7fc0. */
static inline uint16_t lathe_bf16_bits(double value) {
    const float f = (float)value;
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    if ((word & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    word += 0x7fffu + ((word >> 16) & 1u);
    return (uint16_t)(word >> 16);
}
static inline double lathe_bf16_round(double value) {
    return lathe_bf16_value(lathe_bf16_bits(value));
}

#endif
