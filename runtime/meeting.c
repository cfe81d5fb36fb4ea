/* SPDX-License-Identifier: Apache-2.0
 * Owns: the group whose ranks are threads of one process.
 *
 * A round of the all-gather has two phases under one mutex: every rank puts its bytes into the
 * meeting's table, the last one opens the round; every rank takes the table, the last one closes
 * it. A rank that waits past the deadline breaks the meeting, so that the others fail now and not
 * at their own deadline. */
#include "group.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deadline.h"

#define REST_NS 1000000u

struct lathe_meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int world;
    uint64_t timeout_ns;
    uint64_t round;      /* number of rounds closed */
    bool open;           /* all ranks of this round have arrived */
    bool broken;         /* a rank was lost, or ranks disagreed on the size */
    lathe_status status; /* then */
    int first;           /* rank that began this round */
    char reason[128];
    int arrived, left;
    bool here[LATHE_GROUP_MAX];
    uint8_t *table; /* [world][bytes] */
    size_t bytes, capacity;
};

typedef struct {
    lathe_group base;
    lathe_meeting *meeting;
} thread_group;

lathe_status lathe_meeting_create(int world, uint64_t timeout_ns, lathe_meeting **meeting) {
    if (!meeting)
        return LATHE_INVALID;
    *meeting = NULL;
    if (world < 1 || world > LATHE_GROUP_MAX)
        return LATHE_INVALID;
    lathe_meeting *m = calloc(1, sizeof *m);
    if (!m)
        return LATHE_NO_MEMORY;
    m->world = world;
    m->timeout_ns = timeout_ns;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, &clock);
    pthread_condattr_destroy(&clock);
    *meeting = m;
    return LATHE_OK;
}

void lathe_meeting_destroy(lathe_meeting *meeting) {
    if (!meeting)
        return;
    pthread_mutex_destroy(&meeting->lock);
    pthread_cond_destroy(&meeting->changed);
    free(meeting->table);
    free(meeting);
}

static void break_meeting(lathe_meeting *m, const char *reason) {
    if (!m->broken)
        snprintf(m->reason, sizeof m->reason, "%s", reason);
    m->broken = true;
    pthread_cond_broadcast(&m->changed);
}

static void break_for_absent(lathe_meeting *m) {
    char reason[128] = "no sign in time of rank";
    size_t used = strlen(reason);
    for (int r = 0; r < m->world && used < sizeof reason; r++)
        if (!m->here[r])
            used += (size_t)snprintf(reason + used, sizeof reason - used, " %d", r);
    break_meeting(m, reason);
}

/* Grows the table for this round; called by the first rank to arrive. */
static bool begin_round(lathe_meeting *m, size_t bytes) {
    const size_t need = bytes * (size_t)m->world;
    if (need > m->capacity) {
        uint8_t *table = realloc(m->table, need);
        if (!table)
            return false;
        m->table = table;
        m->capacity = need;
    }
    m->bytes = bytes;
    return true;
}

static void arrive(lathe_meeting *m, int rank, const void *mine, size_t bytes) {
    if (m->arrived == 0 && !begin_round(m, bytes)) {
        break_meeting(m, "no memory for an all-gather");
        return;
    }
    if (m->arrived == 0)
        m->first = rank;
    if (bytes != m->bytes) {
        char reason[128];
        snprintf(reason, sizeof reason,
                 "ranks are at different calls: rank %d gave %zu bytes to an all-gather, rank %d "
                 "gave %zu",
                 m->first, m->bytes, rank, bytes);
        m->status = LATHE_DISAGREE;
        break_meeting(m, reason);
        return;
    }
    if (bytes)
        memcpy(m->table + (size_t)rank * bytes, mine, bytes);
    m->here[rank] = true;
    if (++m->arrived == m->world) {
        m->open = true;
        pthread_cond_broadcast(&m->changed);
    }
}

static void leave(lathe_meeting *m, void *all) {
    if (m->bytes)
        memcpy(all, m->table, m->bytes * (size_t)m->world);
    if (++m->left < m->world)
        return;
    m->left = m->arrived = 0;
    memset(m->here, 0, sizeof m->here);
    m->open = false;
    m->round++;
    pthread_cond_broadcast(&m->changed);
}

/* Until something changed, or for a while where the rank has a clock of its own; false where it is
 * time to give up. */
static bool wait_patiently(lathe_meeting *m, lathe_group *g, const struct timespec *deadline) {
    if (!g->patience)
        return pthread_cond_timedwait(&m->changed, &m->lock, deadline) == 0;
    const lathe_deadline soon = lathe_deadline_in(REST_NS);
    const struct timespec rest = lathe_deadline_time(&soon);
    return pthread_cond_timedwait(&m->changed, &m->lock, &rest) == 0 ||
           g->patience(g->patience_context, REST_NS);
}

static lathe_status all_gather(lathe_group *g, const void *mine, size_t bytes, void *all) {
    lathe_meeting *m = ((thread_group *)g)->meeting;
    const bool limited = g->limit_ns && g->limit_ns < m->timeout_ns;
    const lathe_deadline end = lathe_deadline_in(limited ? g->limit_ns : m->timeout_ns);
    const struct timespec deadline = lathe_deadline_time(&end);
    pthread_mutex_lock(&m->lock);
    /* A fast rank may come back while slow ones still take the table of the round before. */
    while (m->open && !m->broken)
        if (pthread_cond_timedwait(&m->changed, &m->lock, &deadline))
            break_meeting(m, "a rank stayed in an all-gather past the deadline");
    if (!m->broken)
        arrive(m, g->rank, mine, bytes);
    while (!m->open && !m->broken)
        if (!wait_patiently(m, g, &deadline) && !m->open)
            break_for_absent(m);
    if (!m->broken)
        leave(m, all);
    const bool broken = m->broken;
    const lathe_status status = m->status == LATHE_OK ? LATHE_PEER_LOST : m->status;
    if (broken)
        snprintf(g->message, sizeof g->message, "%s", m->reason);
    pthread_mutex_unlock(&m->lock);
    return broken ? status : LATHE_OK;
}

static void destroy(lathe_group *g) {
    free(g);
}

lathe_status lathe_group_join(lathe_meeting *meeting, int rank, lathe_group **group) {
    static const lathe_group_ops ops = {all_gather, destroy};
    if (!group)
        return LATHE_INVALID;
    *group = NULL;
    if (!meeting || rank < 0 || rank >= meeting->world)
        return LATHE_INVALID;
    thread_group *g = calloc(1, sizeof *g);
    if (!g)
        return LATHE_NO_MEMORY;
    g->base = (lathe_group){.ops = &ops, .rank = rank, .world = meeting->world};
    g->meeting = meeting;
    *group = &g->base;
    return LATHE_OK;
}
