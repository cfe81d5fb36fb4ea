/* SPDX-License-Identifier: Apache-2.0
 * Kernels of the host device that end the process, or never end. */
#ifndef LATHE_HOST_CRASH_H
#define LATHE_HOST_CRASH_H

#include "host_emulator.h"

/* lathe_emulator_run. A fatal signal of a kernel names it on stderr first; what was installed for
 * the signal before then has its turn. */
LATHE_CHECKED bool lathe_host_run_watched(lathe_emulator *e, const lathe_emulator_grid *grids,
                                          int count);

/* To be asked now and then by one thread: whether a kernel has called no prim and has not ended
 * since a call at least `limit_ns` ago; `text` then names it. `now_ns` is any clock's, above 0. */
bool lathe_host_stuck(uint64_t now_ns, uint64_t limit_ns, char *text, size_t size);

#endif
