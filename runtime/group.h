/* SPDX-License-Identifier: Apache-2.0
 * Ranks that build and run one step together: rendezvous, agreement, all-gather. Used while
 * building and between steps, never inside one.
 *
 * Every call is collective and bounded: a rank that does not come in time ends it with
 * LATHE_PEER_LOST, which names the rank. After a failure the group is broken and every later call
 * on any rank fails at once. */
#ifndef LATHE_GROUP_H
#define LATHE_GROUP_H

#include <stdbool.h>

#include "lathe.h"

#define LATHE_GROUP_MAX 16 /* ranks; what a Mailbox has room for */

/* How groups are made stands in lathe.h. */

typedef struct {
    lathe_status (*all_gather)(lathe_group *g, const void *mine, size_t bytes, void *all);
    void (*destroy)(lathe_group *g);
} lathe_group_ops;

struct lathe_group {
    const lathe_group_ops *ops;
    int rank, world;
    uint64_t limit_ns; /* bound of the next calls where it is below the group's own; 0: none */
    /* NULL, or asked again and again while a call waits, with the time that this stands for; false
     * ends it like the deadline. For those who count time in another way. */
    bool (*patience)(void *context, uint64_t ns);
    void *patience_context;
    char message[256]; /* of the last failure */
};

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
