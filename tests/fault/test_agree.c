/* SPDX-License-Identifier: Apache-2.0
 * Ranks that do not hold the same step, or cannot build the same kernels: what they agree on. */
#include "generated.h"
#include "inject.h"
#include "synthetic.h"
#include "weights.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
#define KERNEL "first_1x1"

typedef struct {
    lathe_generated generated[2]; /* each rank its own directory, so that they may differ */
    lathe_ranks ranks;
    lathe_status status[2];
    char warnings[4096];
} fixture;

static void keep_warnings(void *context, lathe_log_kind kind, const char *text, int done,
                          int total) {
    fixture *f = context;
    const size_t used = strlen(f->warnings);
    (void)done;
    (void)total;
    if (kind == LATHE_LOG_WARNING)
        snprintf(f->warnings + used, sizeof f->warnings - used, "%s\n", text);
}

static void generate(fixture *f) {
    memset(f, 0, sizeof *f);
    for (int r = 0; r < 2; ++r)
        cr_assert_eq(lathe_generated_open("gen", LATHE_SOURCE_DIR "/layouts/attention_block.lua",
                                          "2", "host", NULL, &f->generated[r]),
                     0);
}

static void join(fixture *f, int world) {
    char message[1024];
    f->ranks.count = f->ranks.world = 2;
    cr_assert_eq(lathe_meeting_create(world, 100 * SECOND, &f->ranks.meeting), LATHE_OK);
    for (int r = 0; r < 2; ++r) {
        lathe_options o = LATHE_OPTIONS_INIT;
        cr_assert_eq(lathe_group_join(f->ranks.meeting, r, &f->ranks.groups[r]), LATHE_OK);
        o.directory = f->generated[r].directory;
        o.rank = r;
        o.group = f->ranks.groups[r];
        o.log = keep_warnings;
        o.log_context = f;
        cr_assert_eq(lathe_create(&o, &f->ranks.engines[r], message, sizeof message), LATHE_OK,
                     "%s", message);
    }
}

typedef struct {
    lathe_engine *engine;
    lathe_weight_source source;
    lathe_status status;
} builder;

static void *build_rank(void *context) {
    builder *b = context;
    b->status = lathe_build(b->engine, &b->source);
    return NULL;
}

static void build(fixture *f) {
    lathe_synthetic synthetic;
    lathe_weights weights[2];
    builder builders[2];
    pthread_t threads[2];
    cr_assert(lathe_synthetic_parse("calm:1", &synthetic));
    for (int r = 0; r < 2; ++r) {
        weights[r] = (lathe_weights){lathe_engine_table(f->ranks.engines[r]), r,
                                     lathe_synthetic_reader(&synthetic)};
        builders[r] = (builder){f->ranks.engines[r], lathe_weights_source(&weights[r]), LATHE_OK};
        cr_assert_eq(pthread_create(&threads[r], NULL, build_rank, &builders[r]), 0);
    }
    for (int r = 0; r < 2; ++r) {
        pthread_join(threads[r], NULL);
        f->status[r] = builders[r].status;
    }
}

static void close_all(fixture *f) {
    lathe_ranks_destroy(&f->ranks);
    for (int r = 0; r < 2; ++r)
        lathe_generated_close(&f->generated[r]);
}

static const char *message_of(const fixture *f, int rank) {
    return lathe_message(f->ranks.engines[rank]);
}

static void write_file(const fixture *f, int rank, const char *name, const char *text) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", f->generated[rank].directory, name);
    FILE *out = fopen(path, "w");
    cr_assert_not_null(out);
    cr_assert_geq(fputs(text, out), 0);
    cr_assert_eq(fclose(out), 0);
}

static char *read_file(const fixture *f, int rank, const char *name) {
    static char text[1 << 16];
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", f->generated[rank].directory, name);
    FILE *in = fopen(path, "r");
    cr_assert_not_null(in);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    return text;
}

/* Puts a preferred tactic, "fast", in front of the kernel's own, with a file of the same text. */
static void prefer_another(const fixture *f, int rank) {
    char path[1200];
    snprintf(path, sizeof path, "%s/step.json", f->generated[rank].directory);
    json_t *step = json_load_file(path, 0, NULL), *kernel;
    cr_assert_not_null(step);
    size_t i;
    json_array_foreach(json_object_get(step, "kernels"), i, kernel) {
        json_t *tactics = json_object_get(kernel, "tactics");
        if (strcmp(json_string_value(json_object_get(kernel, "name")), KERNEL) != 0)
            continue;
        json_t *fast = json_deep_copy(json_array_get(tactics, 0));
        json_object_set_new(fast, "name", json_string("fast"));
        json_object_set_new(fast, "file", json_string("fast.cu"));
        json_array_insert_new(tactics, 0, fast);
    }
    cr_assert_eq(json_dump_file(step, path, JSON_INDENT(1) | JSON_SORT_KEYS), 0);
    json_decref(step);
    write_file(f, rank, "fast.cu", read_file(f, rank, KERNEL ".cu"));
}

static const char *pinned(const fixture *f, int rank) {
    int count;
    const lathe_step_launch *launches = lathe_engine_launches(f->ranks.engines[rank], 0, &count);
    for (int i = 0; i < count; ++i)
        if (launches[i].kernel && strcmp(launches[i].kernel->name, KERNEL) == 0)
            return launches[i].tactic->name;
    return "";
}

Test(agree, the_first_tactic_where_all_ranks_have_it) {
    fixture f;
    generate(&f);
    prefer_another(&f, 0);
    prefer_another(&f, 1);
    join(&f, 2);
    build(&f);
    for (int r = 0; r < 2; ++r) {
        cr_assert_eq(f.status[r], LATHE_OK, "%s", message_of(&f, r));
        cr_assert_str_eq(pinned(&f, r), "fast");
    }
    cr_assert_str_eq(f.warnings, "");
    close_all(&f);
}

Test(agree, a_tactic_that_one_rank_refuses_is_taken_by_none) {
    fixture f;
    generate(&f);
    prefer_another(&f, 0);
    prefer_another(&f, 1);
    write_file(&f, 1, "fast.cu", "#error \"not on this machine\"\n");
    join(&f, 2);
    build(&f);
    for (int r = 0; r < 2; ++r) {
        cr_assert_eq(f.status[r], LATHE_OK, "%s", message_of(&f, r));
        cr_assert_str_eq(pinned(&f, r), "kThreads=32,kBlocks=1");
    }
    cr_assert(strstr(f.warnings,
                     KERNEL ": tactic kThreads=32,kBlocks=1 for all ranks: rank 1 refused fast"),
              "%s", f.warnings);
    cr_assert(strstr(f.warnings, "not on this machine"), "%s", f.warnings);
    close_all(&f);
}

Test(agree, a_kernel_that_one_rank_cannot_build_is_refused_by_all) {
    fixture f;
    generate(&f);
    write_file(&f, 1, KERNEL ".cu", "#error \"not on this machine\"\n");
    join(&f, 2);
    build(&f);
    cr_assert_eq(f.status[0], LATHE_DISAGREE);
    cr_assert(strstr(message_of(&f, 0), "rank 1"), "%s", message_of(&f, 0));
    cr_assert_eq(f.status[1], LATHE_COMPILE);
    cr_assert(strstr(message_of(&f, 1), KERNEL), "%s", message_of(&f, 1));
    close_all(&f);
}

Test(agree, another_step_is_named) {
    fixture f;
    generate(&f);
    prefer_another(&f, 1);
    join(&f, 2);
    build(&f);
    for (int r = 0; r < 2; ++r) {
        cr_assert_eq(f.status[r], LATHE_DISAGREE);
        cr_assert(strstr(message_of(&f, r), "differs on rank 1"), "%s", message_of(&f, r));
    }
    close_all(&f);
}

Test(agree, a_group_of_another_size_is_refused) {
    fixture f;
    generate(&f);
    join(&f, 3);
    for (int r = 0; r < 2; ++r) {
        const char *reason = lathe_unsupported(f.ranks.engines[r]);
        cr_assert(reason && strstr(reason, "2 ranks") && strstr(reason, "has 3"), "%s", reason);
    }
    close_all(&f);
}

static void *meet_only(void *group) {
    (void)!lathe_group_barrier(group);
    return NULL;
}

/* Rank 1 is at another call than rank 0, which builds. */
Test(agree, calls_out_of_order_are_named) {
    fixture f;
    generate(&f);
    join(&f, 2);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, meet_only, f.ranks.groups[1]), 0);
    const lathe_status status = lathe_build(f.ranks.engines[0], NULL);
    pthread_join(thread, NULL);
    cr_assert_eq(status, LATHE_DISAGREE, "%s", message_of(&f, 0));
    cr_assert(strstr(message_of(&f, 0), "rank 0") && strstr(message_of(&f, 0), "rank 1"), "%s",
              message_of(&f, 0));
    cr_assert_eq(lathe_build(f.ranks.engines[0], NULL), LATHE_INVALID);
    close_all(&f);
}
