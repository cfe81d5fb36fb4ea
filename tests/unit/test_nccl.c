/* SPDX-License-Identifier: Apache-2.0
 * NCCL by dlopen: what is declared by hand equals nccl.h; what is missing or too old is said; every
 * call ends, though a rank does not come. */
#include "fakes.h"

#include <pthread.h>

#include "group.h"
#include "nccl.h"

#ifdef LATHE_NCCL_HEADER
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include LATHE_NCCL_HEADER
#pragma GCC diagnostic pop

#define SAME_FIELD(our_field, their_field)                                                         \
    _Static_assert(offsetof(nccl_config, our_field) == offsetof(ncclConfig_t, their_field),        \
                   #our_field)
#define SAME_NUMBER(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SAME_FIELD(magic, magic);
SAME_FIELD(version, version);
SAME_FIELD(blocking, blocking);
SAME_FIELD(cluster_size, cgaClusterSize);
SAME_FIELD(least_blocks, minCTAs);
SAME_FIELD(most_blocks, maxCTAs);
SAME_FIELD(net_name, netName);
SAME_FIELD(split_share, splitShare);
_Static_assert(sizeof(nccl_id) == sizeof(ncclUniqueId), "id");
SAME_NUMBER(NCCL_REMOTE, ncclRemoteError);
SAME_NUMBER(NCCL_IN_PROGRESS, ncclInProgress);
SAME_NUMBER(NCCL_BYTE, ncclUint8);
SAME_NUMBER(NCCL_INT32, ncclInt32);
SAME_NUMBER(NCCL_FLOAT32, ncclFloat32);
SAME_NUMBER(NCCL_BFLOAT16, ncclBfloat16);
SAME_NUMBER(NCCL_SUM, ncclSum);
SAME_NUMBER(NCCL_CONFIG_DEFAULT, NCCL_CONFIG_UNDEF_INT);

Test(nccl, the_configuration_begins_as_the_headers_does) {
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    cr_assert_eq(theirs.magic, NCCL_CONFIG_MAGIC);
    cr_assert_leq(sizeof(nccl_config), theirs.size);
}
#endif

#define SECOND 1000000000ull

static lathe_status open_nccl(const char *where, lathe_nccl *n, char *text, size_t size) {
    text[0] = '\0';
    return lathe_nccl_open(where, n, (lathe_message_buffer){text, size});
}

Test(nccl, what_is_missing_is_said) {
    lathe_nccl n;
    char text[512];
    cr_assert_eq(open_nccl("/nowhere/libnccl.so.2", &n, text, sizeof text), LATHE_NO_DEVICE);
    cr_assert(strstr(text, "NCCL is missing") && strstr(text, "/nowhere/libnccl.so.2"), "%s", text);
    setenv("LATHE_NCCL", "/nowhere", 1);
    cr_assert_eq(open_nccl(NULL, &n, text, sizeof text), LATHE_NO_DEVICE);
    cr_assert(strstr(text, "LATHE_NCCL"), "%s", text);
    cr_assert_eq(open_nccl(FAKE_NVRTC, &n, text, sizeof text), LATHE_NO_DEVICE);
    cr_assert(strstr(text, " is no NCCL: found a library without ncclGetVersion"), "%s", text);
}

Test(nccl, versions_are_read) {
    lathe_nccl n;
    char text[512];
    cr_assert_eq(open_nccl(FAKE_NCCL, &n, text, sizeof text), LATHE_OK, "%s", text);
    cr_assert_eq(n.version, 22809);
    setenv("FAKE_NCCL_VERSION", "21605", 1);
    cr_assert_eq(open_nccl(FAKE_NCCL, &n, text, sizeof text), LATHE_NO_DEVICE);
    cr_assert(strstr(text, "found number 21605, allowed: 21700"), "%s", text);
    char folder[] = FAKE_NCCL;
    *strrchr(folder, '/') = '\0';
    unsetenv("FAKE_NCCL_VERSION");
    cr_assert_eq(open_nccl(folder, &n, text, sizeof text), LATHE_OK, "%s", text);
}

/* A rank of a group, for the tests below. */
typedef struct {
    int rank, world, rounds;
    size_t bytes;
    uint64_t timeout_ns;
    const void *id;
    const char *file;
    lathe_status created, status;
    char message[512];
    int good;
} member;

static void *meet(void *context) {
    member *m = context;
    const lathe_nccl_group o = {.size = sizeof o,
                                .rank = m->rank,
                                .world = m->world,
                                .timeout_ns = m->timeout_ns,
                                .nccl = FAKE_NCCL,
                                .id = m->id,
                                .file = m->file};
    lathe_group *g = NULL;
    m->created = m->status = lathe_group_nccl_create(&o, &g, m->message, sizeof m->message);
    char *mine = calloc(1, m->bytes + 1), *all = calloc((size_t)m->world, m->bytes + 1);
    for (int i = 0; i < m->rounds && m->status == LATHE_OK; ++i) {
        memset(mine, m->rank * 16 + i % 16, m->bytes);
        m->status = lathe_group_all_gather(g, mine, m->bytes, all);
        int good = m->status == LATHE_OK;
        for (size_t b = 0; b < m->bytes * (size_t)m->world; ++b)
            good = good && (unsigned char)all[b] == b / m->bytes * 16 + (size_t)i % 16;
        m->good += good;
    }
    if (g) {
        snprintf(m->message, sizeof m->message, "%s", g->message);
        const lathe_status then = lathe_group_barrier(g);
        cr_expect(m->status == LATHE_OK || then == m->status, "a broken group works again");
    }
    lathe_group_destroy(g);
    free(mine);
    free(all);
    return NULL;
}

static void run_members(member *members, int present) {
    pthread_t threads[LATHE_GROUP_MAX];
    for (int r = 0; r < present; ++r)
        pthread_create(&threads[r], NULL, meet, &members[r]);
    for (int r = 0; r < present; ++r)
        pthread_join(threads[r], NULL);
}

TestSuite(nccl, .timeout = 60);

static void make_id(char id[128]) {
    char text[256];
    cr_assert_eq(lathe_group_nccl_id(FAKE_NCCL, id, text, sizeof text), LATHE_OK, "%s", text);
}

Test(nccl, ranks_gather_by_an_id_of_the_caller) {
    fake_cuda *gpu = fake_cuda_open();
    fake_nccl *nccl = fake_nccl_open();
    static const size_t sizes[] = {0, 1, 1000, 200000};
    member m[4];
    char id[128];
    for (size_t s = 0; s < 4; ++s) {
        make_id(id);
        for (int r = 0; r < 4; ++r)
            m[r] = (member){r, 4, 5, sizes[s], 20 * SECOND, id, NULL, 0, 0, "", 0};
        run_members(m, 4);
        for (int r = 0; r < 4; ++r) {
            cr_assert_eq(m[r].status, LATHE_OK, "%s", m[r].message);
            cr_assert_eq(m[r].good, 5);
        }
        cr_assert_eq(nccl->live, 0);
        cr_assert_eq(gpu->live, 0);
        cr_assert_eq(nccl->config_blocking, 0);
    }
    cr_assert_eq(nccl->aborts, 0);
}

Test(nccl, ranks_find_the_id_in_a_file) {
    fake_nccl *nccl = fake_nccl_open();
    char folder[] = "/tmp/lathe-nccl-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/id", folder);
    member m[3];
    for (int r = 0; r < 3; ++r)
        m[r] = (member){r, 3, 2, 8, 20 * SECOND, NULL, path, 0, 0, "", 0};
    run_members(m, 3);
    for (int r = 0; r < 3; ++r)
        cr_assert_eq(m[r].status, LATHE_OK, "%s", m[r].message);
    cr_assert_neq(access(path, F_OK), 0, "the file is removed once all have it");
    cr_assert_eq(nccl->live, 0);
    /* What is there already is another run's. */
    fclose(fopen(path, "w"));
    m[0] = (member){0, 1, 1, 8, SECOND, NULL, path, 0, 0, "", 0};
    run_members(m, 1);
    cr_assert_eq(m[0].created, LATHE_INVALID);
    cr_assert(strstr(m[0].message, "another run"), "%s", m[0].message);
    m[0] = (member){1, 2, 1, 8, SECOND, NULL, path, 0, 0, "", 0};
    run_members(m, 1);
    cr_assert(strstr(m[0].message, "are no id"), "%s", m[0].message);
    unlink(path);
    run_members(m, 1);
    cr_assert_eq(m[0].created, LATHE_PEER_LOST);
    cr_assert(strstr(m[0].message, "within 1.0 s"), "%s", m[0].message);
    rmdir(folder);
}

Test(nccl, a_rank_that_never_comes_ends_the_others) {
    fake_cuda *gpu = fake_cuda_open();
    fake_nccl *nccl = fake_nccl_open();
    char id[128];
    member m[2];
    make_id(id);
    for (int r = 0; r < 2; ++r)
        m[r] = (member){r, 3, 1, 8, SECOND / 2, id, NULL, 0, 0, "", 0};
    run_members(m, 2);
    for (int r = 0; r < 2; ++r) {
        cr_assert_eq(m[r].created, LATHE_PEER_LOST);
        cr_assert(strstr(m[r].message, "ncclCommInitRankConfig"), "%s", m[r].message);
    }
    cr_assert_eq(nccl->aborts, 2);
    cr_assert_eq(nccl->live, 0);
    cr_assert_eq(gpu->live, 0);
}

Test(nccl, ranks_at_different_calls_are_told) {
    fake_nccl *nccl = fake_nccl_open();
    char id[128];
    member m[2];
    make_id(id);
    for (int r = 0; r < 2; ++r)
        m[r] = (member){r, 2, r ? 2 : 9, 8, SECOND, id, NULL, 0, 0, "", 0};
    run_members(m, 2); /* rank 1's barrier meets rank 0's third gather: sizes differ */
    cr_assert_eq(m[0].created, LATHE_OK);
    cr_assert_eq(m[0].status, LATHE_DISAGREE);
    cr_assert(strstr(m[0].message, "rank 1 gave 0 bytes to an all-gather, rank 0 gave 8"), "%s",
              m[0].message);
    cr_assert_eq(nccl->live, 0);
}

/* Two devices of one process whose steps hold a collective. */
typedef struct {
    lathe_meeting *meeting;
    int rank, stuck;
    lathe_status status, replayed;
    char message[1024];
    float sum[4], all[8];
    int nodes;
    lathe_graph_node node[8];
} stepper;

static void *step(void *context) {
    stepper *s = context;
    lathe_group *g = NULL;
    lathe_device *d = NULL;
    lathe_graph *graph = NULL;
    void *from = NULL, *to = NULL;
    float mine[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; ++i)
        mine[i] *= s->rank ? 10.0f : 1.0f;
    cr_assert_eq(lathe_group_join(s->meeting, s->rank, &g), LATHE_OK);
    cr_assert_eq(lathe_device_cuda_create(0, &d, s->message, sizeof s->message), LATHE_OK);
    cr_assert_eq(d->ops->alloc(d, sizeof mine, &from), LATHE_OK);
    cr_assert_eq(d->ops->alloc(d, sizeof s->all, &to), LATHE_OK);
    cr_assert_eq(d->ops->copy_in(d, from, mine, sizeof mine), LATHE_OK);
    s->status =
        d->ops->collective(d, 0, LATHE_COLLECTIVE_ALL_REDUCE, LATHE_SCALAR_F32, from, to, 4);
    cr_assert_eq(s->status, LATHE_INVALID); /* not open yet */
    s->status = d->ops->open_collectives(d, g, SECOND);
    cr_assert_eq(lathe_group_barrier(g), LATHE_OK);
    fake_cuda_open()->never_ready = s->stuck;
    if (s->status == LATHE_OK)
        s->status = d->ops->record_begin(d);
    if (s->status == LATHE_OK)
        s->status =
            d->ops->collective(d, 0, LATHE_COLLECTIVE_ALL_REDUCE, LATHE_SCALAR_F32, from, to, 4);
    if (s->status == LATHE_OK)
        s->status =
            d->ops->collective(d, 0, LATHE_COLLECTIVE_ALL_REDUCE, LATHE_SCALAR_F32, from, to, 4);
    if (s->status == LATHE_OK)
        s->status = d->ops->record_end(d, &graph);
    if (s->status == LATHE_OK)
        s->status = d->ops->graph_nodes(d, graph, s->node, 8, &s->nodes);
    if (s->status == LATHE_OK)
        s->status = d->ops->copy_out(d, s->sum, to, sizeof s->sum);
    if (s->status == LATHE_OK)
        s->status =
            d->ops->collective(d, 0, LATHE_COLLECTIVE_ALL_GATHER, LATHE_SCALAR_F32, from, to, 4);
    if (s->status == LATHE_OK)
        s->status = d->ops->synchronize(d);
    if (s->status == LATHE_OK)
        s->status = d->ops->copy_out(d, s->all, to, sizeof s->all);
    snprintf(s->message, sizeof s->message, "%s", d->message);
    if (graph) {
        s->replayed = d->ops->replay(d, graph);
        d->ops->graph_destroy(d, graph);
    }
    d->ops->release(d, from);
    d->ops->release(d, to);
    d->ops->destroy(d);
    lathe_group_destroy(g);
    return NULL;
}

static void run_steppers(stepper s[2], int stuck) {
    pthread_t threads[2];
    lathe_meeting *meeting;
    cr_assert_eq(lathe_meeting_create(2, 20 * SECOND, &meeting), LATHE_OK);
    for (int r = 0; r < 2; ++r) {
        s[r] = (stepper){.meeting = meeting, .rank = r, .stuck = stuck};
        pthread_create(&threads[r], NULL, step, &s[r]);
    }
    for (int r = 0; r < 2; ++r)
        pthread_join(threads[r], NULL);
    lathe_meeting_destroy(meeting);
}

Test(nccl, a_step_holds_collectives) {
    fake_nccl *nccl = fake_nccl_open();
    stepper s[2];
    setenv("LATHE_NCCL", FAKE_NCCL, 1);
    run_steppers(s, 0);
    for (int r = 0; r < 2; ++r) {
        cr_assert_eq(s[r].status, LATHE_OK, "%s", s[r].message);
        for (int i = 0; i < 4; ++i) {
            cr_assert_eq(s[r].sum[i], 11.0f * (float)(i + 1));
            cr_assert_eq(s[r].all[i], (float)(i + 1));
            cr_assert_eq(s[r].all[4 + i], 10.0f * (float)(i + 1));
        }
        /* Each is one node, whatever the library put there. */
        cr_assert_eq(s[r].nodes, 2);
        cr_assert_null(s[r].node[1].kernel);
        cr_assert_eq(s[r].node[0].depends[0], -1);
        cr_assert_eq(s[r].node[1].depends[0], 0);
        cr_assert_eq(s[r].node[1].depends[1], -1);
    }
    cr_assert_eq(nccl->live, 0);
}

Test(nccl, collectives_end_when_their_stream_does_not) {
    fake_nccl *nccl = fake_nccl_open();
    stepper s[2];
    setenv("LATHE_NCCL", FAKE_NCCL, 1);
    run_steppers(s, 1);
    for (int r = 0; r < 2; ++r) {
        cr_assert_eq(s[r].status, LATHE_PEER_LOST);
        cr_assert_eq(s[r].replayed, LATHE_PEER_LOST, "a graph without its communicator");
        cr_assert(strstr(s[r].message, "did not come within 1.0 s") ||
                      strstr(s[r].message, "remote"),
                  "%s", s[r].message);
    }
    cr_assert_eq(nccl->live, 0);
    cr_assert_eq(nccl->aborts, 2);
}

Test(nccl, without_nccl_no_rank_goes_on) {
    stepper s[2];
    setenv("LATHE_NCCL", "/nowhere", 1);
    run_steppers(s, 0);
    for (int r = 0; r < 2; ++r) {
        cr_assert_eq(s[r].status, LATHE_NO_DEVICE);
        cr_assert(strstr(s[r].message, "NCCL is missing"), "%s", s[r].message);
    }
}
