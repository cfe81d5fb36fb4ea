/* SPDX-License-Identifier: Apache-2.0
 * A step whose sums over ranks go through NCCL, on the fakes: built, captured as step.json says,
 * run, and what becomes of it when a rank is lost. */
#include "fakes.h"

#include <time.h>
#include <unistd.h>

#include "files.h"
#include "generated.h"
#include "nccl.h"
#include "ranks.h"
#include "synthetic.h"
#include "weights.h"

static lathe_generated generated;
static char cache[] = "/tmp/lathe-step-XXXXXX";
static fake_cuda *gpu;
static fake_nccl *nccl;
static lathe_ranks ranks;
static char message[4096];

static void set_up(void) {
    cr_assert_not_null(mkdtemp(cache));
    setenv("LATHE_NCCL", FAKE_NCCL, 1);
    gpu = fake_cuda_open();
    nccl = fake_nccl_open();
    gpu->devices = 2;
    cr_assert_eq(lathe_generated_open("gen", LATHE_SOURCE_DIR "/layouts/attention_block.lua", "2",
                                      "sm_90a", "nccl", &generated),
                 0);
}

static void tear_down(void) {
    lathe_ranks_destroy(&ranks);
    lathe_generated_close(&generated);
    cr_assert_eq(lathe_folder_remove(cache), 0);
    cr_assert_eq(gpu->live, 0);
    cr_assert_eq(nccl->live, 0);
}

TestSuite(nccl_step, .init = set_up, .fini = tear_down, .timeout = 120);

static lathe_status build(void) {
    lathe_options o = LATHE_OPTIONS_INIT;
    lathe_synthetic synthetic;
    lathe_weights weights[2];
    lathe_weight_source sources[2];
    o.directory = generated.directory;
    o.device = LATHE_DEVICE_CUDA;
    o.cache = cache;
    o.nvrtc = FAKE_NVRTC;
    o.jobs = 1;
    o.no_probe = true; /* kernels of the fake driver do nothing */
    o.timeout_ns = 300000000;
    lathe_status status = lathe_ranks_create(&o, &ranks, message, sizeof message);
    cr_assert_eq(status, LATHE_OK, "%s", message);
    cr_assert(lathe_synthetic_parse("calm:1", &synthetic));
    for (int r = 0; r < 2; ++r) {
        weights[r] = (lathe_weights){lathe_engine_table(ranks.engines[0]), r,
                                     lathe_synthetic_reader(&synthetic)};
        sources[r] = lathe_weights_source(&weights[r]);
    }
    return lathe_ranks_build(&ranks, sources, message, sizeof message);
}

static lathe_status run(int rank) {
    lathe_engine *e = ranks.engines[rank];
    const lathe_step_table *t = lathe_engine_table(e);
    lathe_batch batch = {.size = sizeof batch,
                         .requests = 1,
                         .q = 1,
                         .longest = 20,
                         .table_width = t->groups[0].table_width,
                         .page_tokens = t->page_tokens};
    lathe_step_plan plan;
    const lathe_status status = lathe_plan(e, &batch, &plan);
    return status == LATHE_OK ? lathe_run(e, &plan) : status;
}

Test(nccl_step, is_captured_as_step_json_says) {
    cr_assert_eq(build(), LATHE_OK, "%s", message);
    for (int r = 0; r < 2; ++r) {
        lathe_engine *e = ranks.engines[r];
        const lathe_step_table *t = lathe_engine_table(e);
        for (int v = 0; v < t->variant_count; ++v)
            cr_assert_eq(lathe_engine_compare_graph(e, v), LATHE_OK, "%s", lathe_message(e));
        int count, sums = 0;
        const lathe_step_launch *l = lathe_engine_launches(e, 0, &count);
        for (int i = 0; i < count; ++i)
            sums += l[i].kind == LATHE_OP_COLLECTIVE && l[i].value_count == 2 &&
                    strcmp(l[i].collective->part, "sum") == 0;
        cr_assert_eq(sums, 2, "one a layer");
        const uint64_t allocations =
            lathe_engine_device(e)->ops->allocations(lathe_engine_device(e));
        cr_assert_eq(run(r), LATHE_OK, "%s", lathe_message(e));
        cr_assert_eq(lathe_finish(e), LATHE_OK, "%s", lathe_message(e));
        cr_assert_eq(lathe_engine_device(e)->ops->allocations(lathe_engine_device(e)), allocations);
    }
}

/* The whole model: where NCCL makes every exchange, no rank maps or addresses another's memory, so
 * that ranks may be on several hosts. */
Test(nccl_step, a_model_by_nccl_needs_no_peer_memory) {
    lathe_generated_close(&generated);
    cr_assert_eq(lathe_generated_open("gen", LATHE_SOURCE_DIR "/layouts/muse_spark_tiny.lua", "2",
                                      "sm_90a", "nccl", &generated),
                 0);
    gpu->no_sharing = 1;
    cr_assert_eq(build(), LATHE_OK, "%s", message);
    for (int r = 0; r < 2; ++r) {
        lathe_engine *e = ranks.engines[r];
        cr_assert_eq(lathe_engine_table(e)->mailbox_count, 0);
        cr_assert_eq(lathe_engine_compare_graph(e, 0), LATHE_OK, "%s", lathe_message(e));
        cr_assert_eq(run(r), LATHE_OK, "%s", lathe_message(e));
        cr_assert_eq(lathe_finish(e), LATHE_OK, "%s", lathe_message(e));
    }
}

/* Launches of rank `rank` that begin early, in all variants. */
static int count_early(int rank) {
    int early = 0;
    for (int v = 0; v < lathe_engine_table(ranks.engines[rank])->variant_count; ++v) {
        int count;
        const lathe_step_launch *l = lathe_engine_launches(ranks.engines[rank], v, &count);
        for (int i = 0; i < count; ++i)
            early += l[i].kind == LATHE_OP_LAUNCH && l[i].geometry.early;
    }
    return early;
}

/* Exchanges by mailbox: what waits early would keep the other rank off a GPU that both have. */
Test(nccl_step, ranks_of_one_gpu_begin_nothing_early) {
    for (int devices = 1; devices <= 2; ++devices) {
        lathe_generated_close(&generated);
        cr_assert_eq(lathe_generated_open("gen", LATHE_SOURCE_DIR "/layouts/attention_block.lua",
                                          "2", "sm_90a", "", &generated),
                     0);
        gpu->devices = devices;
        cr_assert_eq(build(), LATHE_OK, "%s", message);
        for (int r = 0; r < 2; ++r) {
            cr_assert_eq(count_early(r) > 0, devices == 2, "rank %d, %d GPUs: %d early", r, devices,
                         count_early(r));
            cr_assert_eq(lathe_engine_compare_graph(ranks.engines[r], 0), LATHE_OK, "%s",
                         lathe_message(ranks.engines[r]));
        }
        lathe_ranks_destroy(&ranks);
        ranks = (lathe_ranks){0};
    }
}

/* A library orders its own work; what the streams imply is no difference. */
Test(nccl_step, an_edge_that_others_imply_is_no_difference) {
    gpu->extra_edge = 1;
    cr_assert_eq(build(), LATHE_OK, "%s", message);
    cr_assert_eq(lathe_engine_compare_graph(ranks.engines[0], 0), LATHE_OK, "%s",
                 lathe_message(ranks.engines[0]));
}

static double read_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* NCCL's abort frees the stream, but comes back only when the graphs are gone. */
Test(nccl_step, a_lost_rank_ends_the_step_and_the_engine) {
    cr_assert_eq(build(), LATHE_OK, "%s", message);
    lathe_engine *e = ranks.engines[0];
    float word = 0;
    gpu->never_ready = 2;
    cr_assert_eq(run(0), LATHE_OK);
    const double began = read_seconds();
    cr_assert_eq(lathe_finish(e), LATHE_PEER_LOST);
    cr_assert_lt(read_seconds() - began, 0.3 + 0.5, "later than the bound and half a second");
    cr_assert(strstr(lathe_message(e), "did not come within 0.3 s"), "%s", lathe_message(e));
    cr_assert(strstr(lathe_message(e), "neither which nor where"), "%s", lathe_message(e));
    cr_assert_eq(run(0), LATHE_INVALID);
    cr_assert_eq(lathe_rejoin(e), LATHE_UNSUPPORTED);
    cr_assert(strstr(lathe_message(e), "build anew"), "%s", lathe_message(e));
    /* Nor does a second wait find the step well, though the device works on. */
    cr_assert_eq(lathe_engine_synchronize(e), LATHE_PEER_LOST);
    cr_assert(strstr(lathe_message(e), "the communicator is gone"), "%s", lathe_message(e));
    cr_assert_eq(lathe_engine_read(e, "x", -1, 0, &word, sizeof word), LATHE_OK);
    lathe_ranks_destroy(&ranks);
    ranks = (lathe_ranks){0};
    cr_assert_eq(nccl->aborts, 1);
    cr_assert_eq(nccl->stuck_aborts, 0);
    cr_assert_eq(gpu->blocked, 0, "a call waited for the stream");
}

/* A stream that even the abort does not free: nothing waits for it. */
Test(nccl_step, a_stream_that_never_ends_blocks_no_copy) {
    cr_assert_eq(build(), LATHE_OK, "%s", message);
    lathe_engine *e = ranks.engines[0];
    float word = 0;
    gpu->never_ready = 1;
    cr_assert_eq(run(0), LATHE_OK);
    cr_assert_eq(lathe_engine_read(e, "x", -1, 0, &word, sizeof word), LATHE_PEER_LOST);
    cr_assert_eq(lathe_finish(e), LATHE_PEER_LOST);
    cr_assert_eq(gpu->blocked, 0);
    gpu->never_ready = 0;
}

Test(nccl_step, a_failed_communicator_is_reported) {
    cr_assert_eq(build(), LATHE_OK, "%s", message);
    lathe_engine *e = ranks.engines[1];
    gpu->never_ready = 1;
    cr_assert_eq(run(1), LATHE_OK);
    nccl->state = NCCL_REMOTE;
    cr_assert_eq(lathe_finish(e), LATHE_PEER_LOST);
    cr_assert(strstr(lathe_message(e), "remote process exited"), "%s", lathe_message(e));
    nccl->state = 0;
    gpu->never_ready = 0;
}

Test(nccl_step, is_refused_on_every_rank_without_nccl) {
    setenv("LATHE_NCCL", "/nowhere", 1);
    cr_assert_eq(build(), LATHE_NO_DEVICE);
    for (int r = 0; r < 2; ++r)
        cr_assert(strstr(lathe_message(ranks.engines[r]), "NCCL is missing"), "%s",
                  lathe_message(ranks.engines[r]));
}
