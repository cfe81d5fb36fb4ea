/* SPDX-License-Identifier: Apache-2.0
 * Weights for timing: a large tensor is a stretch of synthetic values over and over, so that the
 * gigabytes of a whole model are made in seconds. Tensors of up to LATHE_BENCH_STRETCH elements (a
 * router, so that its choices spread) are synthetic throughout. */
#ifndef LATHE_BENCH_WEIGHTS_H
#define LATHE_BENCH_WEIGHTS_H

#include "synthetic.h"
#include "weights.h"

#define LATHE_BENCH_STRETCH ((int64_t)1 << 21)

typedef struct lathe_bench_weights lathe_bench_weights;

/* NULL where there is no memory. One thread reads at a time. */
lathe_bench_weights *lathe_bench_weights_create(uint64_t seed);
void lathe_bench_weights_destroy(lathe_bench_weights *weights); /* NULL is allowed */
lathe_weight_reader lathe_bench_weights_reader(lathe_bench_weights *weights);

#endif
