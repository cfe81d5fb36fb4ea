/* SPDX-License-Identifier: Apache-2.0
 * Whether the ranks hold the same bits in their outputs: of ranks of this process directly, of
 * ranks that are processes of their own by the group. */
#ifndef LATHE_ALIKE_H
#define LATHE_ALIKE_H

#include "group.h"
#include "image.h"

typedef struct {
    lathe_engine *const *engines;
    lathe_image *const *images; /* what the outputs are compared in; one per engine */
    int count;                  /* engines of this process */
    lathe_group *group;         /* of the other processes' ranks, or NULL */
} lathe_alike;

typedef struct {
    int alike;     /* instances of outputs with the same bits on all ranks */
    int own;       /* those that differ: a rank's share, or a fault */
    char name[64]; /* the first of them */
} lathe_alike_result;

/* Collective where there is a group. */
LATHE_CHECKED lathe_status lathe_alike_outputs(const lathe_alike *what, lathe_alike_result *result,
                                               char *message, size_t size);

#endif
