/* SPDX-License-Identifier: Apache-2.0
 * The rate at which a GPU reads memory it has not in its caches: the ceiling that floors are
 * counted from. */
#ifndef LATHE_BENCH_CEILING_H
#define LATHE_BENCH_CEILING_H

#include "device.h"

/* Bytes a second, the median of several reads of about a gigabyte (less where memory is short). On
 * failure 0 with a reason in `message`. */
double lathe_bench_ceiling(lathe_device *device, char *message, size_t size);

#endif
