/* SPDX-License-Identifier: Apache-2.0
 * Runs kernels compiled against templates/prims/host: a fibre per CUDA thread, one emulator per
 * rank, one host thread per emulator at a time. What a GPU leaves open, the seed decides. */
#ifndef LATHE_HOST_EMULATOR_H
#define LATHE_HOST_EMULATOR_H

#include "device.h"
#include "../templates/prims/host/emulator.h" /* the table that kernels call through */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lathe_emulator lathe_emulator;

#define LATHE_EMULATOR_ARGUMENTS 32 /* most a kernel may have */
#define LATHE_EMULATOR_BEFORE 4     /* most grids that one grid follows directly */

typedef struct {
    const char *name;    /* for messages */
    void (*entry)(void); /* the kernel, whatever its parameters: pointers only */
    void *const *arguments;
    int argument_count;
    lathe_geometry geometry;           /* `early` refers to before[0] */
    int before[LATHE_EMULATOR_BEFORE]; /* indices of grids earlier in the list that must end */
    int before_count;
} lathe_emulator_grid;

/* Finds the allocation that holds `p`. False where it is unknown; such memory is left alone. */
typedef bool (*lathe_emulator_find)(void *context, const void *p, void **base, size_t *bytes);

/* NULL when memory is short. */
lathe_emulator *lathe_emulator_create(uint64_t seed);
void lathe_emulator_destroy(lathe_emulator *e);

/* Lets the emulator keep what a grid wrote from an early successor until the grid has ended. */
void lathe_emulator_set_find(lathe_emulator *e, lathe_emulator_find find, void *context);

/* What lathe_emulator_bind() of a kernel's object is given. */
const lathe_emulator_table *lathe_emulator_interface(void);

/* Virtual time is one for all emulators of the process. It stands still for a rank that has work
 * and has not begun it; the next run of one that is delayed begins `ns` from now. */
void lathe_emulator_expect(lathe_emulator *e);
void lathe_emulator_delay(lathe_emulator *e, uint64_t ns);
/* Whether the rank has more to do after the run or wait that comes, so that time stands still for
 * it between the two. */
void lathe_emulator_goes_on(lathe_emulator *e, bool more);
/* The rank waits for others outside of a run: `ns` pass unless one of them can get on. Returns the
 * time. At the end: lathe_emulator_waited. */
uint64_t lathe_emulator_wait(lathe_emulator *e, uint64_t ns);
void lathe_emulator_waited(lathe_emulator *e);

/* Runs all grids to their end, in an order that their dependencies allow. False on a fault of a
 * kernel (deadlock, divergence, misuse of a prim); lathe_emulator_message() then says which kernel,
 * block and thread. */
LATHE_CHECKED bool lathe_emulator_run(lathe_emulator *e, const lathe_emulator_grid *grids,
                                      int count);
const char *lathe_emulator_message(const lathe_emulator *e);

#ifdef __cplusplus
}
#endif

#endif
