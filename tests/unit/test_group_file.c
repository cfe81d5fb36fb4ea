/* SPDX-License-Identifier: Apache-2.0
 * The group of processes that meet in a file, and what shares memory between them. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"
#include "group.h"

#define SECOND 1000000000ull

static char folder[64], path[96];

static void set_up(void) {
    snprintf(folder, sizeof folder, "/tmp/lathe-group-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/group", folder);
}

static void tear_down(void) {
    unlink(path);
    cr_assert_eq(rmdir(folder), 0, "something is left in the folder");
}

TestSuite(group_file, .init = set_up, .fini = tear_down, .timeout = 60);

typedef int (*body)(lathe_group *group, int rank, int world);

/* 0: well; 100 + status: no group; else what the body returned. */
static int be_rank(body b, int rank, int world, uint64_t timeout_ns) {
    char text[256];
    lathe_group *g;
    const lathe_status status =
        lathe_group_file_create(path, rank, world, timeout_ns, &g, text, sizeof text);
    if (status != LATHE_OK)
        return 100 + (int)status;
    const int result = b(g, rank, world);
    lathe_group_destroy(g);
    return result;
}

/* Processes of ranks 0 to present - 1; what each ended with. */
static void run_ranks(body b, int world, int present, uint64_t timeout_ns, int *results) {
    pid_t processes[LATHE_GROUP_MAX];
    for (int r = 0; r < present; ++r) {
        processes[r] = fork();
        if (processes[r] == 0)
            _exit(be_rank(b, r, world, timeout_ns));
    }
    for (int r = 0; r < present; ++r) {
        int status = 0;
        waitpid(processes[r], &status, 0);
        results[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
}

/* Sizes around the pieces in which it goes, many rounds each. */
static int gather(lathe_group *g, int rank, int world) {
    static const size_t sizes[] = {0, 1, 8, 65535, 65536, 65537, 200000};
    int good = 1;
    for (int i = 0; i < 70 && good; ++i) {
        const size_t bytes = sizes[i % 7];
        char *mine = malloc(bytes + 1), *all = malloc(bytes * (size_t)world + 1);
        memset(mine, rank * 16 + i % 16, bytes + 1);
        good = lathe_group_all_gather(g, mine, bytes, all) == LATHE_OK;
        for (size_t b = 0; b < bytes * (size_t)world && good; ++b)
            good = (unsigned char)all[b] == b / bytes * 16 + (size_t)(i % 16);
        free(mine);
        free(all);
    }
    return !good;
}

Test(group_file, all_gather_keeps_rounds_apart) {
    int results[LATHE_GROUP_MAX];
    for (int world = 1; world <= 8; world *= 2) {
        run_ranks(gather, world, world, 20 * SECOND, results);
        for (int r = 0; r < world; ++r)
            cr_assert_eq(results[r], 0, "rank %d of %d: %d", r, world, results[r]);
        cr_assert_neq(access(path, F_OK), 0, "the file is removed once all have it");
    }
}

static int nothing(lathe_group *g, int rank, int world) {
    (void)g, (void)rank, (void)world;
    return 0;
}

static int leave_early(lathe_group *g, int rank, int world) {
    (void)world;
    if (rank == 1)
        return 0;
    if (lathe_group_barrier(g) != LATHE_PEER_LOST)
        return 1;
    if (!strstr(g->message, "rank 1 ended or left"))
        return 2;
    return lathe_group_barrier(g) == LATHE_PEER_LOST ? 0 : 3; /* broken for good */
}

/* At once: the bound is beyond the test's. */
Test(group_file, a_rank_that_leaves_is_named) {
    int results[3];
    run_ranks(leave_early, 3, 3, 600 * SECOND, results);
    for (int r = 0; r < 3; ++r)
        cr_assert_eq(results[r], 0, "rank %d: %d", r, results[r]);
}

static int be_killed(lathe_group *g, int rank, int world) {
    if (rank == 1)
        raise(SIGKILL);
    return leave_early(g, rank, world);
}

Test(group_file, a_rank_that_is_killed_is_named) {
    int results[3];
    run_ranks(be_killed, 3, 3, 600 * SECOND, results);
    cr_assert_eq(results[0], 0);
    cr_assert_eq(results[1], -1, "killed");
    cr_assert_eq(results[2], 0);
}

static int stay_away(lathe_group *g, int rank, int world) {
    (void)world;
    if (rank == 1) {
        sleep(2);
        return 0;
    }
    if (lathe_group_barrier(g) != LATHE_PEER_LOST)
        return 1;
    return strstr(g->message, "no sign in time of rank 1") ? 0 : 2;
}

Test(group_file, a_rank_that_stops_is_named) {
    int results[3];
    run_ranks(stay_away, 3, 3, SECOND, results);
    for (int r = 0; r < 3; ++r)
        cr_assert_eq(results[r], 0, "rank %d: %d", r, results[r]);
}

static void refuses(int rank, int world, lathe_status expected, const char *reason) {
    char text[256];
    lathe_group *g;
    cr_assert_eq(lathe_group_file_create(path, rank, world, SECOND, &g, text, sizeof text),
                 expected);
    cr_assert(strstr(text, reason), "%s", text);
}

static void write_file(size_t bytes) {
    FILE *f = fopen(path, "w");
    for (size_t i = 0; i < bytes; ++i)
        fputc('g', f);
    fclose(f);
}

Test(group_file, a_file_of_something_else_is_refused) {
    refuses(2, 2, LATHE_INVALID, "found rank 2 of 2, allowed: at most 16 ranks, from 0");
    for (size_t bytes = 0; bytes <= 4 << 20; bytes = bytes * 8 + 1) {
        write_file(bytes);
        refuses(1, 2, LATHE_IO, "it is not of this group");
        refuses(0, 2, LATHE_IO, "found a file of another run, allowed: none there");
    }
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    refuses(1, 2, LATHE_IO, "it is not of this group");
}

Test(group_file, a_rank_comes_once) {
    pid_t processes[3];
    int results[3] = {0};
    for (int i = 0; i < 3; ++i) {
        processes[i] = fork();
        if (processes[i] == 0)
            _exit(be_rank(nothing, i == 0 ? 0 : 1, 3, SECOND));
    }
    int refused = 0, lost = 0;
    for (int i = 0; i < 3; ++i) {
        cr_assert_eq(waitpid(processes[i], &results[i], 0), processes[i]);
        refused += WEXITSTATUS(results[i]) == 100 + LATHE_INVALID;
        lost += WEXITSTATUS(results[i]) == 100 + LATHE_PEER_LOST;
    }
    cr_assert_eq(refused, 1, "one of the two that say they are rank 1");
    cr_assert_eq(lost, 2, "rank 2 never comes");
}

static int differ(lathe_group *g, int rank, int world) {
    int64_t mine[2] = {rank, rank}, all[2 * LATHE_GROUP_MAX];
    (void)world;
    const size_t bytes = rank == 1 ? sizeof mine : sizeof mine[0];
    if (lathe_group_all_gather(g, mine, bytes, all) != LATHE_DISAGREE)
        return 1;
    if (!strstr(g->message, "gave 8") || !strstr(g->message, "gave 16"))
        return 2;
    return lathe_group_barrier(g) == LATHE_DISAGREE ? 0 : 3; /* broken for good */
}

Test(group_file, different_sizes_are_said) {
    int results[2];
    run_ranks(differ, 2, 2, 20 * SECOND, results);
    cr_assert_eq(results[0], 0);
    cr_assert_eq(results[1], 0);
}

Test(group_file, a_rank_that_never_comes_and_a_file_that_is_there) {
    int results[2];
    run_ranks(nothing, 3, 2, SECOND / 2, results);
    cr_assert_eq(results[0], 100 + LATHE_PEER_LOST);
    cr_assert_eq(results[1], 100 + LATHE_PEER_LOST);
    fclose(fopen(path, "w"));
    run_ranks(nothing, 1, 1, SECOND, results);
    cr_assert_eq(results[0], 100 + LATHE_IO);
}

/* Memory of the host device across processes: each rank writes into the next one's. */
static int share(lathe_group *g, int rank, int world) {
    char text[256];
    lathe_device *d;
    void *memory, *peer;
    lathe_shared_handle mine, all[LATHE_GROUP_MAX];
    int32_t word = 1000 + rank, found = 0;
    if (lathe_device_host_create(rank, 1, &d, text, sizeof text) != LATHE_OK)
        return 1;
    const lathe_device_ops *ops = d->ops;
    if (ops->alloc_shared(d, 4096, &memory) != LATHE_OK || ops->share(d, memory, &mine) != LATHE_OK)
        return 2;
    if (lathe_group_all_gather(g, &mine, sizeof mine, all) != LATHE_OK)
        return 3;
    if (ops->open_shared(d, &all[(rank + 1) % world], &peer) != LATHE_OK)
        return 4;
    if (ops->copy_in(d, (char *)peer + 64, &word, sizeof word) != LATHE_OK ||
        lathe_group_barrier(g) != LATHE_OK)
        return 5;
    if (ops->copy_out(d, &found, (char *)memory + 64, sizeof found) != LATHE_OK)
        return 6;
    ops->close_shared(d, peer);
    if (lathe_group_barrier(g) != LATHE_OK)
        return 7;
    ops->release(d, memory);
    ops->destroy(d);
    return found == 1000 + (rank + world - 1) % world ? 0 : 8;
}

Test(group_file, memory_is_shared_between_processes) {
    int results[3];
    run_ranks(share, 3, 3, 20 * SECOND, results);
    for (int r = 0; r < 3; ++r)
        cr_assert_eq(results[r], 0, "rank %d: %d", r, results[r]);
}

Test(group_file, only_shared_memory_is_shared) {
    char text[256];
    lathe_device *d;
    void *memory, *other;
    lathe_shared_handle handle;
    cr_assert_eq(lathe_device_host_create(0, 1, &d, text, sizeof text), LATHE_OK);
    cr_assert_eq(d->ops->alloc(d, 64, &memory), LATHE_OK);
    cr_assert_eq(d->ops->share(d, memory, &handle), LATHE_INVALID);
    const int64_t nobody[3] = {999999999, 3, 4096};
    memcpy(handle.bytes, nobody, sizeof nobody);
    cr_assert_eq(d->ops->open_shared(d, &handle, &other), LATHE_UNSUPPORTED);
    cr_assert(strstr(d->message, "cannot be mapped"), "%s", d->message);
    d->ops->destroy(d);
}

/* Collectives of the host device, here of ranks in processes of their own. */
static float widen(uint16_t bits) {
    const uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static int collect(lathe_group *g, int rank, int world) {
    char text[256];
    lathe_device *d;
    void *from, *to, *all;
    /* 256 and three 0.5 make 257.5: in fp32 it is 258 in bf16, added one by one 256. */
    const uint16_t mine = rank == 0 ? 0x4380 : 0x3f00;
    uint16_t sum = 0, gathered[4] = {0};
    lathe_graph *graph;
    if (lathe_device_host_create(rank, 1, &d, text, sizeof text) != LATHE_OK)
        return 1;
    const lathe_device_ops *o = d->ops;
    if (o->alloc(d, 2, &from) || o->alloc(d, 2, &to) || o->alloc(d, 8, &all) ||
        o->copy_in(d, from, &mine, 2))
        return 2;
    if (o->collective(d, 0, LATHE_COLLECTIVE_ALL_REDUCE, LATHE_SCALAR_BF16, from, to, 1) !=
        LATHE_INVALID)
        return 3; /* not open yet */
    if (o->open_collectives(d, g, SECOND) || o->record_begin(d) ||
        o->collective(d, 0, LATHE_COLLECTIVE_ALL_REDUCE, LATHE_SCALAR_BF16, from, to, 1) ||
        o->collective(d, 0, LATHE_COLLECTIVE_ALL_GATHER, LATHE_SCALAR_BF16, to, all, 1) ||
        o->record_end(d, &graph) || o->replay(d, graph) || o->synchronize(d))
        return 4;
    if (o->collective(d, 0, LATHE_COLLECTIVE_ALL_REDUCE, LATHE_SCALAR_E4M3, from, to, 1) !=
        LATHE_UNSUPPORTED)
        return 5;
    lathe_graph_node nodes[2];
    int count = 0;
    if (o->graph_nodes(d, graph, nodes, 2, &count) || count != 2 || nodes[0].kernel ||
        nodes[1].depends[0] != 0)
        return 6;
    if (o->copy_out(d, &sum, to, 2) || o->copy_out(d, gathered, all, 8))
        return 7;
    for (int r = 0; r < world; ++r)
        if (gathered[r] != sum)
            return 8;
    o->graph_destroy(d, graph);
    o->destroy(d);
    return widen(sum) == 258.0f ? 0 : 9;
}

Test(group_file, collectives_add_in_fp32_and_round_once) {
    int results[4];
    run_ranks(collect, 4, 4, 20 * SECOND, results);
    for (int r = 0; r < 4; ++r)
        cr_assert_eq(results[r], 0, "rank %d: %d", r, results[r]);
}

/* One rank never comes to the collective. */
static int collect_alone(lathe_group *g, int rank, int world) {
    char text[256];
    lathe_device *d;
    void *memory;
    (void)world;
    if (rank == 1)
        return 0;
    if (lathe_device_host_create(rank, 1, &d, text, sizeof text) != LATHE_OK)
        return 1;
    const lathe_device_ops *o = d->ops;
    if (o->alloc(d, 64, &memory) || o->open_collectives(d, g, SECOND) ||
        o->collective(d, 0, LATHE_COLLECTIVE_ALL_GATHER, LATHE_SCALAR_F32, memory, memory, 1))
        return 2;
    if (o->synchronize(d) != LATHE_PEER_LOST || !strstr(d->message, "all_gather: rank 1 ended or left"))
        return 3;
    o->destroy(d);
    return 0;
}

Test(group_file, a_collective_without_a_rank_ends) {
    int results[2];
    run_ranks(collect_alone, 2, 2, SECOND, results);
    cr_assert_eq(results[0], 0, "%d", results[0]);
    cr_assert_eq(results[1], 0);
}
