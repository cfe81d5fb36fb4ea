/* SPDX-License-Identifier: Apache-2.0
 * Expert TP over two ranks: slices made out of the ranks' whole experts have the bits of those cut
 * from full weights, experts in other hands are refused on all ranks, and the probe names the layer
 * of a weight that is wrong on one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "generated.h"
#include "ranks.h"
#include "synthetic.h"
#include "weights.h"

enum { RANKS = 2, LAYER = 2 };

static char message[4096];
static char line[4096]; /* what the build said of expert TP */
static lathe_generated generated;
static lathe_synthetic synthetic = {false, 3};
static lathe_ranks ranks;
static lathe_weights weights[RANKS];
static lathe_expert_shards shards[RANKS];
static lathe_weight_source sources[RANKS];
static bool no_probe; /* on rank 1: then on none */

static void tear_down(void) {
    lathe_ranks_destroy(&ranks);
    lathe_generated_close(&generated);
}

TestSuite(experts, .fini = tear_down);

static void listen(void *context, lathe_log_kind kind, const char *text, int done, int total) {
    (void)context;
    (void)done;
    (void)total;
    if (kind == LATHE_LOG_NOTE && strncmp(text, "expert TP", 9) == 0)
        snprintf(line, sizeof line, "%s", text);
}

static void generate(const char *deployment) {
    cr_assert_eq(lathe_generated_open("gen", LATHE_SOURCE_DIR "/layouts/cases/mini.lua", "2",
                                      "host", deployment, &generated),
                 LATHE_EXIT_OK);
}

static void create(bool by_rank) {
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = generated.directory;
    o.log = listen;
    cr_assert_eq(lathe_ranks_create(&o, &ranks, message, sizeof message), LATHE_OK, "%s", message);
    if (no_probe) { /* the one rank's options */
        lathe_destroy(ranks.engines[1]);
        o.rank = 1;
        o.group = ranks.groups[1];
        o.no_probe = true;
        cr_assert_eq(lathe_create(&o, &ranks.engines[1], message, sizeof message), LATHE_OK);
    }
    for (int r = 0; r < RANKS; ++r) {
        weights[r] = (lathe_weights){lathe_engine_table(ranks.engines[r]), r,
                                     lathe_synthetic_reader(&synthetic)};
        shards[r] = (lathe_expert_shards){r, RANKS, 7};
        sources[r] = lathe_weights_source(&weights[r]);
        sources[r].experts = by_rank ? &shards[r] : NULL;
    }
}

static lathe_status build(void) {
    return lathe_ranks_build(&ranks, sources, message, sizeof message);
}

/* The build fails on every rank, and every rank says the same. */
static void expect_refused(lathe_status status, const char *text) {
    cr_assert_eq(build(), status, "%s", message);
    for (int r = 0; r < RANKS; ++r) {
        cr_assert(strstr(lathe_message(ranks.engines[r]), text), "rank %d: %s", r,
                  lathe_message(ranks.engines[r]));
        cr_assert_str_eq(lathe_message(ranks.engines[r]), lathe_message(ranks.engines[0]));
    }
}

/* All instances of all sliced weights of a rank, one after the other. */
static unsigned char *read_sliced(int rank, size_t *bytes) {
    lathe_engine *e = ranks.engines[rank];
    const lathe_step_table *t = lathe_engine_table(e);
    unsigned char *all = NULL;
    *bytes = 0;
    for (int w = 0; w < t->weight_count; ++w) {
        const lathe_step_buffer *b = &t->buffers[t->weights[w].buffer];
        for (int n = 0; t->weights[w].held && n < b->layer_count; ++n) {
            all = realloc(all, *bytes + (size_t)b->fixed_bytes);
            cr_assert_eq(lathe_engine_read(e, b->name, b->layers[n], 0, all + *bytes,
                                           (size_t)b->fixed_bytes),
                         LATHE_OK, "%s", lathe_message(e));
            *bytes += (size_t)b->fixed_bytes;
        }
    }
    return all;
}

Test(experts, slices_made_of_whole_experts_are_those_cut_from_full_weights) {
    size_t bytes[RANKS], again;
    unsigned char *cut[RANKS];
    generate(NULL);
    create(false);
    cr_assert_eq(build(), LATHE_OK, "%s", message);
    cr_assert(strstr(line, "cut from full weights"), "%s", line);
    for (int r = 0; r < RANKS; ++r)
        cut[r] = read_sliced(r, &bytes[r]);
    lathe_ranks_destroy(&ranks);
    create(true);
    cr_assert_eq(build(), LATHE_OK, "%s", message);
    for (int r = 0; r < RANKS; ++r) {
        unsigned char *made = read_sliced(r, &again);
        cr_assert(bytes[r] > 0 && again == bytes[r] && memcmp(made, cut[r], again) == 0, "rank %d",
                  r);
        free(made);
        free(cut[r]);
    }
    const char *const said[] = {"expert TP: TP2, layers: ",
                                "1 full_nvfp4",
                                "8 NVFP4 experts at intermediate width 32 of 64",
                                "resharded from experts by rank, +",
                                "GiB a rank, probe relative L2 0.00",
                                "(at most 0.01), moe_gemm1",
                                "(preference 1 of "};
    for (size_t i = 0; i < sizeof said / sizeof *said; ++i)
        cr_assert(strstr(line, said[i]), "%s lacks %s", line, said[i]);
    cr_assert_eq(lathe_engine_read(ranks.engines[0], "held.w13", LAYER, 0, line, 1), LATHE_INVALID);
    cr_assert(strstr(lathe_message(ranks.engines[0]), "no memory after build"));
}

Test(experts, of_another_rank_are_refused_on_all) {
    generate(NULL);
    create(true);
    shards[0].rank = 1;
    expect_refused(LATHE_UNSUPPORTED, "found those of rank 1 on rank 0");
}

Test(experts, of_a_larger_group_are_refused_on_all) {
    generate(NULL);
    create(true);
    shards[1].world = 4;
    expect_refused(LATHE_UNSUPPORTED, "rank 1 shares them in a group of 4");
}

/* Ranks and sizes may fit by accident where the groups cross. */
Test(experts, of_two_groups_are_refused_on_all) {
    generate(NULL);
    create(true);
    shards[1].group = 8;
    expect_refused(LATHE_UNSUPPORTED, "rank 1 shares them in a group of 2 (number 8)");
}

Test(experts, by_rank_on_one_rank_only_are_refused_on_all) {
    generate(NULL);
    create(true);
    sources[0].experts = NULL;
    expect_refused(LATHE_DISAGREE, "experts by rank: found on rank 1, not on rank 0");
}

Test(experts, by_rank_need_a_step_that_slices_them) {
    generate("ep");
    create(true);
    expect_refused(LATHE_UNSUPPORTED, "the step slices no experts (deployment \"ep\", tp 2)");
}

/* Whole experts of the caller's: bound, they are neither filled nor written. */
static lathe_status fill_but_w13(void *context, int weight, int layer, void *host, size_t bytes,
                                 char *text, size_t size) {
    const lathe_weights *w = context;
    const char *name = w->table->buffers[w->table->weights[weight].buffer].name;
    return strcmp(name, "held.w13") == 0
               ? LATHE_IO
               : lathe_weights_fill(w, weight, layer, host, bytes, text, size);
}

static void *bind_w13(int rank, int layer) {
    lathe_engine *e = ranks.engines[rank];
    const lathe_step_table *t = lathe_engine_table(e);
    const lathe_step_buffer *b = &t->buffers[lathe_step_table_find_buffer(t, "held.w13")];
    void *data = aligned_alloc(16, (size_t)b->fixed_bytes);
    lathe_array a = {.size = sizeof a, .name = b->name, .layer = layer, .dtype = "u8", .rank = 3};
    for (int d = 0; d < 3; ++d)
        a.shape[d] = b->shape.dim[d];
    a.data = data;
    for (int w = 0; w < t->weight_count; ++w)
        if (&t->buffers[t->weights[w].buffer] == b)
            cr_assert_eq(lathe_weights_fill(&weights[rank], w, layer, data, (size_t)b->fixed_bytes,
                                            message, sizeof message),
                         LATHE_OK);
    cr_assert_eq(lathe_bind_weights(e, &a, 1), LATHE_OK, "%s", lathe_message(e));
    return data;
}

Test(experts, that_the_caller_has_are_bound) {
    void *data[RANKS][2];
    generate(NULL);
    create(true);
    for (int r = 0; r < RANKS; ++r) {
        sources[r].fill = fill_but_w13;
        for (int l = 1; l <= 2; ++l)
            data[r][l - 1] = bind_w13(r, l);
    }
    cr_assert_eq(build(), LATHE_OK, "%s", message);
    cr_assert(strstr(line, "resharded from experts by rank"), "%s", line);
    cr_assert(strstr(line, "probe relative L2 0.00"), "%s", line);
    lathe_ranks_destroy(&ranks);
    memset(&ranks, 0, sizeof ranks);
    for (int r = 0; r < RANKS; ++r)
        for (int l = 0; l < 2; ++l)
            free(data[r][l]);
}

Test(experts, unprobed_are_said_to_be) {
    generate(NULL);
    no_probe = true;
    create(false);
    cr_assert_eq(build(), LATHE_OK, "%s", message);
    cr_assert(strstr(line, "GiB a rank, not probed, moe_gemm1"), "%s", line);
}

/* What one rank does to one weight of one layer on its way in. */
typedef struct {
    int rank;
    const char *weight;
    void (*change)(unsigned char *bytes, size_t size);
    int calls;          /* of `weight` that are changed, the first ones */
    const char *second; /* changed likewise; or NULL */
} damage;

static damage dealt;

static lathe_status fill_damaged(void *context, int weight, int layer, void *host, size_t bytes,
                                 char *text, size_t size) {
    const lathe_weights *w = context;
    const char *name = w->table->buffers[w->table->weights[weight].buffer].name;
    const lathe_status status = lathe_weights_fill(w, weight, layer, host, bytes, text, size);
    const bool meant =
        strcmp(name, dealt.weight) == 0 || (dealt.second && strcmp(name, dealt.second) == 0);
    if (status == LATHE_OK && meant && layer == LAYER && w->rank == dealt.rank && dealt.calls > 0) {
        dealt.change(host, bytes);
        --dealt.calls;
    }
    return status;
}

static void expect_found(bool by_rank, damage d) {
    dealt = d;
    generate(NULL);
    create(by_rank);
    for (int r = 0; r < RANKS; ++r)
        sources[r].fill = fill_damaged;
    expect_refused(LATHE_INVALID,
                   "probe, layer 2: moe.rows summed over the ranks is a relative L2");
    cr_assert_eq(dealt.calls, 0);
}

static void raise_first_scale(unsigned char *bytes, size_t size) {
    (void)size;
    bytes[0] = 0x7e; /* 448 */
}

static void spoil_first_scale(unsigned char *bytes, size_t size) {
    (void)size;
    bytes[0] = 0x7f; /* NaN */
}

static void swap(unsigned char *a, unsigned char *b, size_t size) {
    for (size_t i = 0; i < size; ++i) {
        const unsigned char kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

/* Of each of the 8 experts the gate rows and the up rows. */
static void swap_halves(unsigned char *bytes, size_t size) {
    for (size_t e = 0; e < 8; ++e)
        swap(bytes + e * (size / 8), bytes + e * (size / 8) + size / 16, size / 16);
}

static void swap_two_experts(unsigned char *bytes, size_t size) {
    swap(bytes, bytes + size / 8, size / 8);
}

static void double_first_scalar(unsigned char *bytes, size_t size) {
    float scalar;
    (void)size;
    memcpy(&scalar, bytes, sizeof scalar);
    scalar *= 2;
    memcpy(bytes, &scalar, sizeof scalar);
}

Test(experts, the_probe_finds_a_block_scale) {
    expect_found(false, (damage){1, "expert.w2.scales", raise_first_scale, 1, NULL});
    cr_assert(strstr(lathe_message(ranks.engines[1]), " (at most 0.01); finite are "), "%s",
              lathe_message(ranks.engines[1]));
}

Test(experts, the_probe_finds_a_number_that_is_none) {
    expect_found(false, (damage){0, "expert.w2.scales", spoil_first_scale, 1, NULL});
    long long finite, other, all;
    const char *at = strstr(lathe_message(ranks.engines[1]), "finite are ");
    cr_assert(at && sscanf(at, "finite are %lld and %lld of %lld", &finite, &other, &all) == 3);
    cr_assert(finite < all && other == all && strstr(lathe_message(ranks.engines[1]), "L2 of nan"),
              "%s", lathe_message(ranks.engines[1]));
}

Test(experts, the_probe_finds_gate_and_up_swapped) {
    expect_found(false, (damage){1, "expert.w13", swap_halves, 2, "expert.w13.scales"});
}

Test(experts, the_probe_finds_experts_out_of_order) {
    expect_found(false, (damage){0, "expert.w2", swap_two_experts, 1, NULL});
}

Test(experts, the_probe_finds_the_scalar_of_an_expert) {
    expect_found(false, (damage){1, "expert.scale2", double_first_scalar, 1, NULL});
}

/* Whole experts are asked for twice: those of the first time are sliced, those of the second
 * probed. */
Test(experts, the_probe_finds_what_went_wrong_in_resharding) {
    expect_found(true, (damage){1, "held.w13.scales", swap_two_experts, 1, NULL});
}
