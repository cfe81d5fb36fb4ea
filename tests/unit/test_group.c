/* SPDX-License-Identifier: Apache-2.0
 * The group of threads: all-gather, agreement, and what a lost or disagreeing rank does to the
 * others. */
#include "group.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#define SECOND 1000000000ull

typedef struct {
    lathe_meeting *meeting;
    int rank, world, rounds;
    lathe_status status;
    char message[256];
    int64_t sum;
} member;

static void run_members(int world, uint64_t timeout_ns, int present, void *(*body)(void *),
                        member *members) {
    lathe_meeting *meeting;
    pthread_t threads[LATHE_GROUP_MAX];
    cr_assert_eq(lathe_meeting_create(world, timeout_ns, &meeting), LATHE_OK);
    for (int r = 0; r < present; r++) {
        members[r].meeting = meeting;
        members[r].rank = r;
        members[r].world = world;
        pthread_create(&threads[r], NULL, body, &members[r]);
    }
    for (int r = 0; r < present; r++)
        pthread_join(threads[r], NULL);
    lathe_meeting_destroy(meeting);
}

static void *gather_many(void *context) {
    member *m = context;
    lathe_group *g;
    m->status = lathe_group_join(m->meeting, m->rank, &g);
    for (int i = 0; i < m->rounds && m->status == LATHE_OK; i++) {
        int64_t mine = m->rank * 1000 + i, all[LATHE_GROUP_MAX];
        m->status = lathe_group_all_gather(g, &mine, sizeof mine, all);
        for (int r = 0; r < m->world && m->status == LATHE_OK; r++)
            m->sum += all[r] == r * 1000 + i;
    }
    lathe_group_destroy(g);
    return NULL;
}

Test(group, all_gather_keeps_rounds_apart) {
    static member members[LATHE_GROUP_MAX];
    for (int world = 1; world <= LATHE_GROUP_MAX; world *= 2) {
        memset(members, 0, sizeof members);
        for (int r = 0; r < world; r++)
            members[r].rounds = 200;
        run_members(world, 20 * SECOND, world, gather_many, members);
        for (int r = 0; r < world; r++) {
            cr_assert_eq(members[r].status, LATHE_OK);
            cr_assert_eq(members[r].sum, 200 * world);
        }
    }
}

static void *agree(void *context) {
    member *m = context;
    lathe_group *g;
    m->status = lathe_group_join(m->meeting, m->rank, &g);
    int64_t value = 10 - m->rank;
    cr_assert_eq(lathe_group_agree_min(g, &value), LATHE_OK);
    m->sum = value;
    m->status = lathe_group_agree_hash(g, m->rank == 2 ? 7u : 5u, "step.json");
    strcpy(m->message, g->message);
    lathe_group_destroy(g);
    return NULL;
}

Test(group, names_the_rank_that_differs) {
    static member members[4];
    run_members(4, 20 * SECOND, 4, agree, members);
    for (int r = 0; r < 4; r++) {
        cr_assert_eq(members[r].sum, 7);
        cr_assert_eq(members[r].status, LATHE_DISAGREE);
        cr_assert(strstr(members[r].message, "differs on rank 2"), "%s", members[r].message);
    }
}

static void *wait_at_barrier(void *context) {
    member *m = context;
    lathe_group *g;
    m->status = lathe_group_join(m->meeting, m->rank, &g);
    m->status = lathe_group_barrier(g);
    strcpy(m->message, g->message);
    cr_assert_eq(lathe_group_barrier(g), LATHE_PEER_LOST, "a broken group stays broken");
    lathe_group_destroy(g);
    return NULL;
}

Test(group, a_lost_rank_ends_the_wait_and_is_named) {
    static member members[4];
    run_members(4, SECOND / 5, 3, wait_at_barrier, members);
    for (int r = 0; r < 3; r++) {
        cr_assert_eq(members[r].status, LATHE_PEER_LOST);
        cr_assert(strstr(members[r].message, "rank 3"), "%s", members[r].message);
    }
}

Test(group, refuses_worlds_and_ranks_out_of_range) {
    lathe_meeting *meeting;
    lathe_group *group;
    cr_assert_eq(lathe_meeting_create(0, SECOND, &meeting), LATHE_INVALID);
    cr_assert_eq(lathe_meeting_create(2, SECOND, NULL), LATHE_INVALID);
    cr_assert_eq(lathe_meeting_create(LATHE_GROUP_MAX + 1, SECOND, &meeting), LATHE_INVALID);
    cr_assert_eq(lathe_meeting_create(2, SECOND, &meeting), LATHE_OK);
    cr_assert_eq(lathe_group_join(meeting, 2, &group), LATHE_INVALID);
    cr_assert_null(group);
    cr_assert_eq(lathe_group_join(NULL, 0, &group), LATHE_INVALID);
    cr_assert_eq(lathe_group_join(meeting, 0, NULL), LATHE_INVALID);
    lathe_meeting_destroy(meeting);
}
