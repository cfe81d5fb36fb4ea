/* SPDX-License-Identifier: Apache-2.0
 * Owns: the group whose ranks are processes of one machine: they meet in a file that all map.
 *
 * A long all-gather goes in pieces. Each piece is a round: a rank writes its piece, counts itself
 * in, and reads the others' once all have counted. Two halves take turns: whoever writes a half
 * again has seen every rank in the round between, and so past its reading of that half.
 *
 * A rank holds a lock on a byte of the file as long as it has it open: the system gives it back
 * when a process ends, however it ends, so that the others need not wait for one that is dead. */
#include "deadline.h"
#include "group.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE 65536
#define MARK UINT64_C(0x70756f7267) /* "group" */
#define POLL_NS 50000
#define SPINS 200
#define LOOK_AFTER 64 /* polls between two looks at the locks */

typedef enum { VACANT = 0, TAKEN, LOCKED } presence; /* TAKEN: the file system has no locks */

typedef struct {
    _Atomic uint64_t round; /* rounds to which this rank has come */
    uint64_t bytes[2];      /* of the whole all-gather, per half */
    _Atomic int32_t presence;
    char pad[36];
} seat;

typedef struct {
    uint64_t mark;
    int32_t world;
    _Atomic int32_t broken; /* 2 once status and reason are there */
    int32_t status;
    char reason[128];
    seat seats[LATHE_GROUP_MAX];
    uint8_t pieces[2][LATHE_GROUP_MAX][PIECE];
} table;

typedef struct {
    lathe_group base;
    table *shared;
    int file; /* -1: none */
    uint64_t timeout_ns;
    uint64_t round;
} file_group;

/* The first reason stays. */
static lathe_status break_group(file_group *g, lathe_status status, const char *reason) {
    int32_t whole = 0;
    if (atomic_compare_exchange_strong(&g->shared->broken, &whole, 1)) {
        snprintf(g->shared->reason, sizeof g->shared->reason, "%s", reason);
        g->shared->status = (int32_t)status;
        atomic_store(&g->shared->broken, 2);
    }
    snprintf(g->base.message, sizeof g->base.message, "%s", reason);
    return status;
}

static lathe_status refuse_broken(file_group *g) {
    const bool worded = atomic_load(&g->shared->broken) == 2;
    snprintf(g->base.message, sizeof g->base.message, "%.127s",
             worded ? g->shared->reason : "another rank gave up");
    return worded && g->shared->status == LATHE_DISAGREE ? LATHE_DISAGREE : LATHE_PEER_LOST;
}

static lathe_status break_for_absent(file_group *g) {
    char reason[128] = "no sign in time of rank";
    size_t used = strlen(reason);
    for (int r = 0; r < g->base.world && used < sizeof reason; ++r)
        if (atomic_load(&g->shared->seats[r].round) < g->round)
            used += (size_t)snprintf(reason + used, sizeof reason - used, " %d", r);
    return break_group(g, LATHE_PEER_LOST, reason);
}

/* Whether `rank` had come and its process has ended or left the group since. */
static bool is_gone(const file_group *g, int rank) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return rank != g->base.rank && atomic_load(&g->shared->seats[rank].presence) == LOCKED &&
           fcntl(g->file, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

/* The look at the lock comes first: who has left may have come to this round before. */
static lathe_status look_for_gone(file_group *g) {
    char reason[128];
    for (int r = 0; r < g->base.world; ++r) {
        if (!is_gone(g, r) || atomic_load(&g->shared->seats[r].round) >= g->round)
            continue;
        snprintf(reason, sizeof reason, "rank %d ended or left before the others were done", r);
        return break_group(g, LATHE_PEER_LOST, reason);
    }
    return LATHE_OK;
}

static lathe_status break_for_size(file_group *g, int rank, uint64_t theirs, uint64_t mine) {
    char reason[128];
    snprintf(reason, sizeof reason,
             "ranks are at different calls: rank %d gave %llu bytes to an all-gather, rank %d gave "
             "%llu",
             rank, (unsigned long long)theirs, g->base.rank, (unsigned long long)mine);
    return break_group(g, LATHE_DISAGREE, reason);
}

static bool all_here(const file_group *g) {
    for (int r = 0; r < g->base.world; ++r)
        if (atomic_load_explicit(&g->shared->seats[r].round, memory_order_acquire) < g->round)
            return false;
    return true;
}

/* Processes share processors, and what they wait for may take its turns: a rest counts for less. */
static bool is_patient(const file_group *g, int polls) {
    return polls <= SPINS || !g->base.patience ||
           g->base.patience(g->base.patience_context, POLL_NS / 4);
}

static lathe_status wait_for_all(file_group *g, lathe_deadline end) {
    for (int polls = 1; !all_here(g); ++polls) {
        if (atomic_load(&g->shared->broken))
            return refuse_broken(g);
        const lathe_status status = polls % LOOK_AFTER == 0 ? look_for_gone(g) : LATHE_OK;
        if (status != LATHE_OK)
            return status;
        if (!lathe_deadline_rest(&end, SPINS, POLL_NS) || !is_patient(g, polls))
            return break_for_absent(g);
    }
    return LATHE_OK;
}

/* One round: at most PIECE bytes of each rank, at `offset` of `bytes`. */
static lathe_status gather_piece(file_group *g, const uint8_t *mine, size_t offset, size_t bytes,
                                 uint8_t *all, lathe_deadline end) {
    table *t = g->shared;
    const int half = (int)(++g->round & 1u);
    const size_t piece = bytes - offset < PIECE ? bytes - offset : PIECE;
    seat *own = &t->seats[g->base.rank];
    if (piece)
        memcpy(t->pieces[half][g->base.rank], mine + offset, piece);
    own->bytes[half] = bytes;
    atomic_store_explicit(&own->round, g->round, memory_order_release);
    const lathe_status status = wait_for_all(g, end);
    if (status != LATHE_OK)
        return status;
    for (int r = 0; r < g->base.world; ++r) {
        if (t->seats[r].bytes[half] != bytes)
            return break_for_size(g, r, t->seats[r].bytes[half], bytes);
        if (piece)
            memcpy(all + (size_t)r * bytes + offset, t->pieces[half][r], piece);
    }
    return LATHE_OK;
}

static lathe_status all_gather(lathe_group *base, const void *mine, size_t bytes, void *all) {
    file_group *g = (file_group *)base;
    const bool limited = base->limit_ns && base->limit_ns < g->timeout_ns;
    const lathe_deadline end = lathe_deadline_in(limited ? base->limit_ns : g->timeout_ns);
    size_t offset = 0;
    if (atomic_load(&g->shared->broken))
        return refuse_broken(g);
    do {
        const lathe_status status = gather_piece(g, mine, offset, bytes, all, end);
        if (status != LATHE_OK)
            return status;
        offset += PIECE;
    } while (offset < bytes);
    return LATHE_OK;
}

static void destroy(lathe_group *base) {
    file_group *g = (file_group *)base;
    if (g->shared)
        munmap(g->shared, sizeof *g->shared);
    if (g->file >= 0)
        close(g->file);
    free(g);
}

static table *map_file(int file) {
    void *p = mmap(NULL, sizeof(table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Complete before it has its name; aside under a name that no other run has. */
static int make_table(file_group *g, const char *path) {
    char aside[4096];
    if ((size_t)snprintf(aside, sizeof aside, "%s.XXXXXX", path) >= sizeof aside)
        return ENAMETOOLONG;
    g->file = mkostemp(aside, O_CLOEXEC);
    if (g->file < 0)
        return errno;
    int error = ftruncate(g->file, (off_t)sizeof(table)) == 0 ? 0 : errno;
    if (!error && !(g->shared = map_file(g->file)))
        error = errno;
    if (!error) {
        g->shared->mark = MARK;
        g->shared->world = g->base.world;
        if (link(aside, path) != 0) /* never over a file of another run */
            error = errno;
    }
    unlink(aside);
    return error;
}

static int find_table(file_group *g, const char *path) {
    lathe_deadline end = lathe_deadline_in(g->timeout_ns);
    struct stat found;
    while ((g->file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK)) < 0) {
        if (errno != ENOENT)
            return errno;
        if (!lathe_deadline_rest(&end, SPINS, POLL_NS))
            return ETIMEDOUT;
    }
    if (fstat(g->file, &found) != 0)
        return errno;
    if (!S_ISREG(found.st_mode) || found.st_size != (off_t)sizeof(table))
        return EINVAL; /* what lies beyond the end of a file cannot be read in a mapping */
    if (!(g->shared = map_file(g->file)))
        return errno;
    return g->shared->mark == MARK && g->shared->world == g->base.world ? 0 : EINVAL;
}

/* A rank comes once. */
static bool take_seat(const file_group *g) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = g->base.rank, .l_len = 1};
    const bool locked = fcntl(g->file, F_OFD_SETLK, &lock) == 0;
    int32_t vacant = VACANT;
    return atomic_compare_exchange_strong(&g->shared->seats[g->base.rank].presence, &vacant,
                                          locked ? LOCKED : TAKEN);
}

static lathe_status fail_file(int rank, const char *path, int error, lathe_message_buffer out) {
    switch (error) {
    case ETIMEDOUT:
        return lathe_fail(out, LATHE_PEER_LOST, "rank %d: %s: rank 0 did not make it in time", rank,
                          path);
    case EEXIST:
        return lathe_fail(out, LATHE_IO,
                          "rank %d: %s: found a file of another run, allowed: none there", rank,
                          path);
    case EINVAL:
        return lathe_fail(out, LATHE_IO, "rank %d: %s: it is not of this group", rank, path);
    default:
        return lathe_fail(out, LATHE_IO, "rank %d: %s: %s", rank, path, strerror(error));
    }
}

static lathe_status enter(file_group *g, const char *path, lathe_message_buffer message) {
    const bool first = g->base.rank == 0;
    const int error = first ? make_table(g, path) : find_table(g, path);
    if (error)
        return fail_file(g->base.rank, path, error, message);
    if (!take_seat(g))
        return lathe_fail(message, LATHE_INVALID,
                          "rank %d: %s: found this rank there already, allowed: one process for "
                          "each rank",
                          g->base.rank, path);
    const lathe_status status = lathe_group_barrier(&g->base);
    if (first)
        unlink(path);
    return status == LATHE_OK
               ? status
               : lathe_fail(message, status, "rank %d: %s", g->base.rank, g->base.message);
}

lathe_status lathe_group_file_create(const char *path, int rank, int world, uint64_t timeout_ns,
                                     lathe_group **group, char *message, size_t size) {
    static const lathe_group_ops ops = {all_gather, destroy};
    const lathe_message_buffer out = {message, size};
    *group = NULL;
    if (world < 1 || world > LATHE_GROUP_MAX || rank < 0 || rank >= world)
        return lathe_fail(out, LATHE_INVALID,
                          "group: found rank %d of %d, allowed: at most %d ranks, from 0", rank,
                          world, LATHE_GROUP_MAX);
    file_group *g = calloc(1, sizeof *g);
    if (!g)
        return lathe_fail(out, LATHE_NO_MEMORY, "no memory for a group");
    g->base = (lathe_group){.ops = &ops, .rank = rank, .world = world};
    g->timeout_ns = timeout_ns;
    g->file = -1;
    const lathe_status status = enter(g, path, out);
    if (status == LATHE_OK)
        *group = &g->base;
    else
        destroy(&g->base);
    return status;
}
