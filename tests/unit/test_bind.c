/* SPDX-License-Identifier: Apache-2.0
 * Memory that the caller gives, and what lathe.h tells of a step: on the mini layout, whose logits
 * must be the same bits as with the engine's own memory. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "commands.h"
#include "decode.h"
#include "generated.h"
#include "step.h"

#define STEPS 3
#define VOCABULARY 128

static char message[4096];
static lathe_generated generated;
static lathe_engine *engine;
static lathe_checkpoint *checkpoint;
static float logits[2][STEPS][VOCABULARY];

static void set_up(void) {
    cr_assert_eq(lathe_generated_open("gen", LATHE_SOURCE_DIR "/layouts/cases/mini.lua", "1",
                                      "host", NULL, &generated),
                 LATHE_EXIT_OK);
}

static void close_engine(void) {
    lathe_checkpoint_close(checkpoint);
    lathe_destroy(engine);
    checkpoint = NULL;
    engine = NULL;
}

static void tear_down(void) {
    close_engine();
    lathe_generated_close(&generated);
}

TestSuite(bind, .init = set_up, .fini = tear_down);

#define OK(call) cr_assert_eq(call, LATHE_OK, "%s", lathe_message(engine))
#define REFUSED(call, words)                                                                       \
    do {                                                                                           \
        cr_assert_eq(call, LATHE_INVALID);                                                         \
        cr_assert(strstr(lathe_message(engine), words), "'%s' lacks '%s'", lathe_message(engine),  \
                  words);                                                                          \
    } while (0)

#define REFUSED_CREATE(options, words)                                                             \
    do {                                                                                           \
        cr_assert_eq(lathe_create(&(options), &engine, message, sizeof message), LATHE_INVALID);   \
        cr_assert(strstr(message, words), "'%s' lacks '%s'", message, words);                      \
    } while (0)

static lathe_options make_options(void) {
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = generated.directory;
    return o;
}

static void create(const lathe_options *o) {
    cr_assert_eq(lathe_create(o, &engine, message, sizeof message), LATHE_OK, "%s", message);
    cr_assert_eq(lathe_checkpoint_open(engine, "calm:3", &checkpoint, message, sizeof message),
                 LATHE_OK, "%s", message);
}

static void keep(void *context, int64_t number, int32_t token, const float *row, int64_t count) {
    (void)token;
    cr_assert_eq(count, VOCABULARY);
    memcpy(logits[*(int *)context][number], row, sizeof logits[0][0]);
}

static void decode(int which) {
    static const int32_t prompt[] = {5, 9, 100, 3, 77, 20, 6, 1, 90, 11, 14, 15, 16, 99, 8, 2, 4};
    const lathe_decode_options o = {.engines = &engine,
                                    .ranks = 1,
                                    .prompt = prompt,
                                    .prompt_count = sizeof prompt / sizeof prompt[0],
                                    .steps = STEPS,
                                    .emit = keep,
                                    .context = &which};
    lathe_decode_result result;
    cr_assert_eq(lathe_decode(&o, &result, message, sizeof message), LATHE_OK, "%s", message);
}

static void decode_plain(void) {
    const lathe_options o = make_options();
    create(&o);
    OK(lathe_build(engine, lathe_checkpoint_source(checkpoint)));
    decode(0);
    close_engine();
}

/* ---- weights ---- */

/* All arrays of a role, with memory of their own. */
static int collect(lathe_role wanted, lathe_array *arrays, size_t *bytes) {
    lathe_info info = {.size = sizeof info};
    int count = 0;
    OK(lathe_describe(engine, &info));
    for (int i = 0; i < info.arrays; ++i) {
        lathe_role role;
        OK(lathe_describe_array(engine, i, &arrays[count], &role));
        if (role != wanted)
            continue;
        bytes[count] =
            strcmp(arrays[count].dtype, "bf16") == 0 ? 2
            : strcmp(arrays[count].dtype, "u8") == 0 || strcmp(arrays[count].dtype, "e4m3") == 0
                ? 1
                : 4;
        for (int d = 0; d < arrays[count].rank; ++d)
            bytes[count] *= (size_t)arrays[count].shape[d];
        ++count;
    }
    return count;
}

Test(bind, bound_weights_are_used_in_place_and_stay) {
    static lathe_array weights[200], first;
    static size_t bytes[200];
    static void *copies[200];
    const lathe_options o = make_options();
    decode_plain();
    create(&o);
    const int count = collect(LATHE_ROLE_WEIGHT, weights, bytes);
    cr_assert(count > 20 && count < 200);
    const lathe_weight_source *source = lathe_checkpoint_source(checkpoint);
    const lathe_step_table *t = lathe_engine_table(engine);
    for (int i = 0; i < count; ++i) {
        int w = 0;
        while (strcmp(t->buffers[t->weights[w].buffer].name, weights[i].name) != 0)
            ++w;
        cr_assert_null(weights[i].data);
        weights[i].data = aligned_alloc(64, (bytes[i] + 63) / 64 * 64);
        copies[i] = malloc(bytes[i]);
        cr_assert_eq(source->fill(source->context, w, weights[i].layer, weights[i].data, bytes[i],
                                  message, sizeof message),
                     LATHE_OK, "%s", message);
        memcpy(copies[i], weights[i].data, bytes[i]);
    }
    OK(lathe_bind_weights(engine, weights, count));
    OK(lathe_build(engine, NULL));
    OK(lathe_find(engine, weights[0].name, weights[0].layer, &first));
    cr_assert_eq(first.data, weights[0].data);
    decode(1);
    cr_assert_arr_eq(logits[1], logits[0], sizeof logits[0]);
    close_engine();
    for (int i = 0; i < count; ++i) {
        cr_assert_eq(memcmp(copies[i], weights[i].data, bytes[i]), 0, "%s", weights[i].name);
        free(copies[i]);
        free(weights[i].data);
    }
}

Test(bind, what_differs_is_said) {
    static uint16_t memory[1 << 16] __attribute__((aligned(64)));
    const lathe_options o = make_options();
    create(&o);
    const lathe_array good = {.size = sizeof good,
                              .name = "attn.o.w",
                              .layer = 1,
                              .dtype = "bf16",
                              .rank = 2,
                              .shape = {128, 128},
                              .data = memory};
    lathe_array a = good;
    OK(lathe_bind_weights(engine, &a, 1));
    a.size = 8;
    REFUSED(lathe_bind_weights(engine, &a, 1), "found an array of size 8");
    a = good, a.name = "attn.o.v";
    REFUSED(lathe_bind_weights(engine, &a, 1), "no weight has the name \"attn.o.v\"");
    a = good, a.name = "hidden";
    REFUSED(lathe_bind_weights(engine, &a, 1), "no weight has the name \"hidden\"");
    a = good, a.layer = 9;
    REFUSED(lathe_bind_weights(engine, &a, 1), "layer 9 has no attn.o.w");
    a = good, a.dtype = "f32";
    REFUSED(lathe_bind_weights(engine, &a, 1),
            "attn.o.w of layer 1: dtype: found f32, allowed: bf16");
    a = good, a.shape[1] = 64;
    REFUSED(lathe_bind_weights(engine, &a, 1), "shape: found [128, 64], allowed: [128, 128]");
    a = good, a.rank = 99;
    REFUSED(lathe_bind_weights(engine, &a, 1), "shape: found 99 dimensions, allowed: [128, 128]");
    a = good, a.rank = 9;
    REFUSED(lathe_bind_weights(engine, &a, 1), "shape: found 9 dimensions, allowed: [128, 128]");
    REFUSED(lathe_bind_weights(engine, &good, -1), "found -1 arrays, allowed: 0 or more");
    REFUSED(lathe_bind_weights(engine, NULL, 1), "lathe_bind_weights: found NULL");
    OK(lathe_bind_weights(engine, NULL, 0));
    a = good, a.strides[0] = 1, a.strides[1] = 128;
    REFUSED(lathe_bind_weights(engine, &a, 1), "strides: found [1, 128], allowed: [128, 1]");
    a = good, a.data = memory + 4;
    REFUSED(lathe_bind_weights(engine, &a, 1), "allowed: a multiple of 16, not 0");
    a = good, a.data = NULL;
    REFUSED(lathe_bind_weights(engine, &a, 1), "address: found 0");
    REFUSED(lathe_bind_caches(engine, &a, 1), "the engine has caches of its own");
    /* The rest still needs a source, before anything is compiled. */
    REFUSED(lathe_build(engine, NULL), "there is no source to fill");
    REFUSED(lathe_bind_weights(engine, &good, 1), "allowed: before");
}

/* ---- caches ---- */

#define FAR_PAGES ((1 << 20) + 64) /* of 2048 elements: the last ones lie beyond 2^31 */

/* Memory that costs nothing until it is touched. */
static void give_pages(lathe_array *caches, int count, int64_t pages) {
    for (int i = 0; i < count; ++i) {
        caches[i].shape[0] = pages;
        memset(caches[i].strides, 0, sizeof caches[i].strides);
        caches[i].data = NULL;
        if (pages == 0)
            continue;
        caches[i].data = mmap(NULL, (size_t)pages * 4096, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        cr_assert_neq(caches[i].data, MAP_FAILED);
    }
}

static lathe_status plan_length(int64_t longest) {
    const lathe_batch b = {sizeof b, 1, 8, longest, 4, 16};
    lathe_step_plan p;
    return lathe_plan(engine, &b, &p);
}

static lathe_status plan(void) {
    return plan_length(8);
}

Test(bind, caches_are_bound_and_bound_again_beyond_2_to_the_31) {
    lathe_array caches[8], found;
    size_t bytes[8];
    lathe_options o = make_options();
    decode_plain();
    o.external_caches = true;
    create(&o);
    OK(lathe_build(engine, lathe_checkpoint_source(checkpoint)));
    const int count = collect(LATHE_ROLE_KV, caches, bytes);
    cr_assert_eq(count, 4);
    REFUSED(plan(), "no real cache is bound");
    give_pages(caches, count, 0); /* a profiling run's */
    OK(lathe_bind_caches(engine, caches, count));
    REFUSED(plan(), "no real cache is bound");
    give_pages(caches, count, 8);
    for (int i = 0; i < count; ++i) {
        OK(lathe_bind_caches(engine, &caches[i], 1));
        if (i + 1 < count)
            REFUSED(plan(), "no real cache is bound");
    }
    OK(plan());
    decode(1);
    cr_assert_arr_eq(logits[1], logits[0], sizeof logits[0]);
    give_pages(caches, count, 2);
    OK(lathe_bind_caches(engine, caches, count));
    OK(plan_length(32));
    cr_assert_eq(plan_length(33), LATHE_UNSUPPORTED);
    cr_assert_str_eq(lathe_message(engine), "KV cache kv.full of layer 1: found 2 pages, a request "
                                            "of 33 tokens wants 3");
    /* A window of 24 keys: eight tokens see 31, which lie in three pages mostly, in two here. */
    for (int i = 0; i < count; ++i)
        if (strcmp(caches[i].name, "kv.full") == 0) {
            give_pages(&caches[i], 1, 8);
            OK(lathe_bind_caches(engine, &caches[i], 1));
        }
    cr_assert_eq(plan_length(46), LATHE_UNSUPPORTED);
    cr_assert(strstr(lathe_message(engine), "KV cache kv.sliding of layer 0: found 2 pages"), "%s",
              lathe_message(engine));
    OK(plan_length(47));
    OK(plan_length(48));
    REFUSED(lathe_bind_caches(engine, caches, -1), "found -1 arrays");
    give_pages(caches, count, FAR_PAGES);
    OK(lathe_bind_caches(engine, caches, count));
    OK(lathe_find(engine, caches[0].name, caches[0].layer, &found));
    cr_assert(found.shape[0] == FAR_PAGES && found.data == caches[0].data);
    memset(logits[1], 0, sizeof logits[1]);
    decode(1);
    cr_assert_arr_eq(logits[1], logits[0], sizeof logits[0]);
    /* The pages that were written are the far ones (tools/decode_pages.c takes from the end). */
    cr_assert_neq(((uint16_t *)caches[0].data)[(size_t)(FAR_PAGES - 1) * 2048], 0);
}

Test(bind, a_cache_of_another_layout_is_refused) {
    static uint16_t memory[4 * 2048] __attribute__((aligned(64)));
    lathe_options o = make_options();
    o.external_caches = true;
    create(&o);
    const lathe_array good = {.size = sizeof good,
                              .name = "kv.full",
                              .layer = 1,
                              .dtype = "bf16",
                              .rank = 4,
                              .shape = {4, 2, 16, 64},
                              .data = memory};
    lathe_array a = good;
    OK(lathe_bind_caches(engine, &a, 1)); /* before the build too */
    a.shape[1] = 16, a.shape[2] = 2;
    REFUSED(lathe_bind_caches(engine, &a, 1),
            "shape: found [4, 16, 2, 64], allowed: [0, 2, 16, 64] with 0 to 2^31 - 1 pages");
    a = good, a.strides[0] = 4096, a.strides[1] = 1024, a.strides[2] = 64, a.strides[3] = 1;
    REFUSED(lathe_bind_caches(engine, &a, 1), "strides: found [4096, 1024, 64, 1], allowed: "
                                              "[2048, 1024, 64, 1]");
    a = good, a.dtype = "e4m3";
    REFUSED(lathe_bind_caches(engine, &a, 1), "dtype: found e4m3, allowed: bf16");
    a = good, a.data = memory + 1;
    REFUSED(lathe_bind_caches(engine, &a, 1), "a multiple of 16");
    a = good, a.layer = 0;
    REFUSED(lathe_bind_caches(engine, &a, 1), "layer 0 has no kv.full");
    a = good, a.shape[0] = (int64_t)1 << 31;
    REFUSED(lathe_bind_caches(engine, &a, 1), "shape: found");
}

/* ---- running and telling ---- */

static int taken, returned;

static void *take(void *context, size_t bytes) {
    cr_assert_eq(context, &taken);
    ++taken;
    return aligned_alloc(256, (bytes + 256) / 256 * 256);
}

static void give_back(void *context, void *memory) {
    cr_assert_eq(context, &taken);
    ++returned;
    free(memory);
}

Test(bind, the_callers_allocator_gives_all_and_gets_all_back) {
    lathe_options o = make_options();
    lathe_info info = {.size = sizeof info};
    decode_plain();
    o.allocate = take;
    REFUSED_CREATE(o, "one of allocate and release");
    o.release = give_back;
    o.allocator_context = &taken;
    create(&o);
    OK(lathe_build(engine, lathe_checkpoint_source(checkpoint)));
    OK(lathe_describe(engine, &info));
    cr_assert_geq(taken, info.arrays);
    decode(1);
    cr_assert_arr_eq(logits[1], logits[0], sizeof logits[0]);
    close_engine();
    cr_assert_eq(returned, taken);
}

/* Some weights are the caller's and some are not: the caller's are neither written nor given back.
 */
Test(bind, a_bound_weight_beside_loaded_ones_is_left_alone) {
    static uint16_t gain[128] __attribute__((aligned(64)));
    lathe_options o = make_options();
    o.allocate = take;
    o.release = give_back;
    o.allocator_context = &taken;
    create(&o);
    const lathe_array a = {.size = sizeof a,
                           .name = "final.gain",
                           .layer = -1,
                           .dtype = "bf16",
                           .rank = 1,
                           .shape = {128},
                           .data = gain};
    memset(gain, 0x3f, sizeof gain);
    OK(lathe_bind_weights(engine, &a, 1));
    OK(lathe_build(engine, lathe_checkpoint_source(checkpoint)));
    for (int i = 0; i < 128; ++i)
        cr_assert_eq(gain[i], 0x3f3f);
    close_engine();
    cr_assert_eq(returned, taken);
}

Test(bind, launches_one_by_one_leave_the_same_bits) {
    static uint16_t replayed[8 * 128], launched[8 * 128];
    const lathe_options o = make_options();
    const lathe_batch b = {sizeof b, 1, 8, 8, 4, 16};
    const int64_t slots[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int32_t length = 8;
    lathe_step_plan p;
    create(&o);
    OK(lathe_build(engine, lathe_checkpoint_source(checkpoint)));
    OK(lathe_plan(engine, &b, &p));
    OK(lathe_write(engine, "positions", -1, 0, slots, sizeof slots));
    OK(lathe_write(engine, "slot_mapping.full", -1, 0, slots, sizeof slots));
    OK(lathe_write(engine, "slot_mapping.sliding", -1, 0, slots, sizeof slots));
    OK(lathe_write(engine, "seq_lens.full", -1, 0, &length, sizeof length));
    OK(lathe_write(engine, "seq_lens.sliding", -1, 0, &length, sizeof length));
    OK(lathe_run(engine, &p));
    OK(lathe_finish(engine));
    OK(lathe_read(engine, "hidden", -1, 0, replayed, sizeof replayed));
    memset(launched, 0, sizeof launched);
    OK(lathe_write(engine, "hidden", -1, 0, launched, sizeof launched));
    OK(lathe_enqueue(engine, &p));
    OK(lathe_finish(engine));
    OK(lathe_read(engine, "hidden", -1, 0, launched, sizeof launched));
    cr_assert_arr_eq(launched, replayed, sizeof launched);
    p.ticket ^= 1;
    REFUSED(lathe_enqueue(engine, &p), "lathe_enqueue: the plan is none");
}

Test(bind, a_source_must_be_one) {
    const lathe_options o = make_options();
    lathe_weight_source s = {.size = 8};
    create(&o);
    REFUSED(lathe_build(engine, &s), "weights: found a source of size 8, allowed: ");
    close_engine();
    create(&o);
    s.size = sizeof s;
    REFUSED(lathe_build(engine, &s), "weights: its `fill` is NULL");
}

Test(bind, a_step_is_described) {
    lathe_info info = {.size = sizeof info};
    lathe_array a;
    lathe_role role;
    const char *name;
    int64_t requests, q, window, pages;
    const lathe_options o = make_options();
    create(&o);
    OK(lathe_describe(engine, &info));
    cr_assert_str_eq(info.layout, "mini");
    cr_assert(info.tensor_parallel == 1 && info.layers == 4 && info.variants == 1 &&
              info.groups == 2 && info.max_context == 64 && info.page_tokens == 16);
    OK(lathe_describe_variant(engine, 0, &requests, &q));
    cr_assert(requests == 1 && q == 8);
    REFUSED(lathe_describe_variant(engine, 1, &requests, &q), "found number 1, allowed: 0 to 0");
    OK(lathe_describe_group(engine, 0, &name, &window, &pages));
    cr_assert(strcmp(name, "sliding") == 0 && window == 24 && pages == 4);
    REFUSED(lathe_describe_group(engine, -1, &name, &window, &pages), "found number -1");
    char words[80];
    snprintf(words, sizeof words, "found number -5, allowed: 0 to %d", info.arrays - 1);
    REFUSED(lathe_describe_array(engine, -5, &a, &role), words);
    int inputs = 0, outputs = 0;
    for (int i = 0; i < info.arrays; ++i) {
        OK(lathe_describe_array(engine, i, &a, &role));
        inputs += role == LATHE_ROLE_INPUT;
        outputs += role == LATHE_ROLE_OUTPUT;
        cr_assert_null(a.data);
    }
    cr_assert_eq(inputs, 8); /* tokens, positions, three a group */
    cr_assert_eq(outputs, 3);
    REFUSED(lathe_describe_array(engine, info.arrays, &a, &role), "lathe_describe_array");
    REFUSED(lathe_describe_array(engine, -1, &a, &role), "lathe_describe_array");
    REFUSED(lathe_find(engine, "hidden", -1, &a), "before build");
    info.size = 3;
    REFUSED(lathe_describe(engine, &info), "found an info of 3 bytes");
}

Test(bind, a_checkpoint_that_does_not_fit_is_no_checkpoint) {
    const lathe_options o = make_options();
    lathe_checkpoint *none = (lathe_checkpoint *)&none;
    create(&o);
    cr_assert_eq(lathe_checkpoint_open(engine, "no/such", &none, message, sizeof message),
                 LATHE_IO);
    cr_assert_null(none);
    cr_assert_null(lathe_checkpoint_source(none));
    lathe_checkpoint_close(none);
}
