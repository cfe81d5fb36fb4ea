/* SPDX-License-Identifier: Apache-2.0
 * A collective of the library is checked like a launch: its provider has a reference, and here it
 * gets what a launch has besides, a kernel to be named by. */
#include <stdlib.h>
#include <string.h>

#include "check_state.h"

static lathe_step_kernel *name_collective(const lathe_step_collective *c) {
    lathe_step_kernel *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->name = c->gather ? "all_gather" : "all_reduce";
    k->provider = !c->gather                     ? "collective/all_reduce"
                  : c->dtype == LATHE_SCALAR_I32 ? "collective/all_gather_i32"
                                                 : "collective/all_gather";
    k->part_count = 1;
    k->parts = &c->part;
    return k;
}

const lathe_step_launch *lathe_check_collectives(const lathe_step_launch *launches, int count) {
    lathe_step_launch *copy = calloc((size_t)count + 1, sizeof *copy);
    for (int i = 0; copy && i < count; ++i) {
        copy[i] = launches[i];
        if (!copy[i].collective)
            continue;
        copy[i].kernel = name_collective(copy[i].collective);
        if (!copy[i].kernel) {
            lathe_check_collectives_free(copy, i);
            return NULL;
        }
    }
    return copy;
}

void lathe_check_collectives_free(const lathe_step_launch *launches, int count) {
    for (int i = 0; launches && i < count; ++i)
        if (launches[i].collective)
            free((void *)(uintptr_t)launches[i].kernel);
    free((void *)(uintptr_t)launches);
}
