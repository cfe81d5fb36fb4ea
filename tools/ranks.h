/* SPDX-License-Identifier: Apache-2.0
 * The ranks of one step: one engine each, built together, as threads of this process; or the one
 * rank of this process, whose group are other processes. */
#ifndef LATHE_RANKS_H
#define LATHE_RANKS_H

#include "group.h"
#include "step.h"

typedef struct {
    int count;              /* engines of this process */
    int first;              /* rank of engines[0] */
    int world;              /* ranks of the step */
    lathe_meeting *meeting; /* NULL but for several threads */
    lathe_group *groups[LATHE_GROUP_MAX];
    lathe_engine *engines[LATHE_GROUP_MAX];
} lathe_ranks;

/* One engine per rank of the directory that `options` names; rank r takes GPU r modulo the number
 * of GPUs. In loop-back rank 0 alone. */
LATHE_CHECKED lathe_status lathe_ranks_create(const lathe_options *options, lathe_ranks *ranks,
                                              char *message, size_t size);
/* Ranks of the directory's step. */
LATHE_CHECKED lathe_status lathe_ranks_count(const char *directory, int *count, char *message,
                                             size_t size);
/* Rank `rank` alone, which meets the processes of the others in the folder `meet`: by NCCL on
 * CUDA, where there is one, else by a file. */
LATHE_CHECKED lathe_status lathe_ranks_create_one(const lathe_options *options, int rank,
                                                  const char *meet, lathe_ranks *ranks,
                                                  char *message, size_t size);
/* Builds all engines at once, rank r from sources[r]. */
LATHE_CHECKED lathe_status lathe_ranks_build(lathe_ranks *ranks, const lathe_weight_source *sources,
                                             char *message, size_t size);
/* After a fault of a rank: all engines rejoin at once. */
LATHE_CHECKED lathe_status lathe_ranks_rejoin(lathe_ranks *ranks, char *message, size_t size);
void lathe_ranks_destroy(lathe_ranks *ranks);

/* Waits for all engines together, since a rank's kernels may wait for another's. On failure *rank
 * is the first that failed. */
LATHE_CHECKED lathe_status lathe_ranks_synchronize(lathe_engine *const *engines, int count,
                                                   int *rank);

#endif
