/* SPDX-License-Identifier: Apache-2.0
 * Two builds of one step against each other, in turn on the same GPUs, so that what drifts falls on
 * both: a difference counts where it exceeds the spread of the pairs. */
#ifndef LATHE_BENCH_PAIRS_H
#define LATHE_BENCH_PAIRS_H

#include <stdio.h>

#include "bench_engine.h"

/* `first` holds the options and nothing yet; the other directory is their `versus`. Writes a line a
 * variant. Returns an exit status, the reason on stderr. */
int lathe_bench_versus(lathe_bench_engine *first, FILE *out);

#endif
