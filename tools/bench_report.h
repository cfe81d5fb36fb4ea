/* SPDX-License-Identifier: Apache-2.0
 * The tables of `lathe bench`. */
#ifndef LATHE_BENCH_REPORT_H
#define LATHE_BENCH_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "bench_result.h"

/* `against`: an earlier record whose times are the ratios' denominators; or NULL. */
void lathe_bench_report(const lathe_bench_result *result, const json_t *against, FILE *out);

#endif
