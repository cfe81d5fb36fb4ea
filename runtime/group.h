/* SPDX-License-Identifier: Apache-2.0
 * Ranks that build and run one step together: rendezvous, agreement, all-gather. Used while
 * building and between steps, never inside one.
 *
 * Every call is collective and bounded: a rank that does not come in time ends it with
 * LATHE_PEER_LOST, which names the rank. After a failure the group is broken and every later call
 * on any rank fails at once. */
#ifndef LATHE_GROUP_H
#define LATHE_GROUP_H

#include "lathe.h"

#define LATHE_GROUP_MAX 16 /* ranks; what a Mailbox has room for */

typedef struct {
    lathe_status (*all_gather)(lathe_group *g, const void *mine, size_t bytes, void *all);
    void (*destroy)(lathe_group *g);
} lathe_group_ops;

struct lathe_group {
    const lathe_group_ops *ops;
    int rank, world;
    uint64_t limit_ns; /* bound of the next calls where it is below the group's own; 0: none */
    char message[256]; /* of the last failure */
};

/* Where the ranks of one process meet. Create once, join once per rank, destroy after the last
 * rank's group. */
typedef struct lathe_meeting lathe_meeting;
LATHE_CHECKED lathe_status lathe_meeting_create(int world, uint64_t timeout_ns,
                                                lathe_meeting **meeting);
void lathe_meeting_destroy(lathe_meeting *meeting);

/* Rank `rank` of the meeting, for use by one thread. */
LATHE_CHECKED lathe_status lathe_group_join(lathe_meeting *meeting, int rank, lathe_group **group);
void lathe_group_destroy(lathe_group *group);

/* Ranks that are processes of one machine and meet in a file: rank 0 makes it at `path`, aside and
 * renamed, the others wait for it, and it is unlinked once all have it open. */
LATHE_CHECKED lathe_status lathe_group_file_create(const char *path, int rank, int world,
                                                   uint64_t timeout_ns, lathe_group **group,
                                                   char *message, size_t size);

/* Ranks anywhere, a GPU each, that meet through NCCL. */
typedef struct {
    size_t size; /* sizeof(lathe_nccl_group) */
    int rank, world;
    int ordinal;         /* of the CUDA device */
    uint64_t timeout_ns; /* of every call */
    const char *nccl;    /* libnccl or its folder; NULL: LATHE_NCCL, else the usual places */
    const void *id;      /* 128 bytes that lathe_group_nccl_id made on one rank; NULL: by file */
    const char *file;    /* where rank 0 puts the id and the others find it; absent before */
} lathe_nccl_group;
LATHE_CHECKED lathe_status lathe_group_nccl_create(const lathe_nccl_group *options,
                                                   lathe_group **group, char *message, size_t size);
LATHE_CHECKED lathe_status lathe_group_nccl_id(const char *nccl, void *id, char *message,
                                               size_t size);

/* all[r * bytes] receives what rank r gave. bytes must be equal on all ranks and may be 0. */
LATHE_CHECKED lathe_status lathe_group_all_gather(lathe_group *g, const void *mine, size_t bytes,
                                                  void *all);
LATHE_CHECKED lathe_status lathe_group_barrier(lathe_group *g);
/* *value becomes the smallest over the ranks. */
LATHE_CHECKED lathe_status lathe_group_agree_min(lathe_group *g, int64_t *value);
/* LATHE_DISAGREE, naming the ranks whose `hash` differs from rank 0's, on every rank alike. `what`
 * goes into the message. */
LATHE_CHECKED lathe_status lathe_group_agree_hash(lathe_group *g, uint64_t hash, const char *what);

#endif
