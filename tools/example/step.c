/* SPDX-License-Identifier: Apache-2.0
 * An engine of fifty lines around a decode step: one request, one token at a time, greedy.
 *
 *     lathe gen LAYOUT --tp 1 --arch host --out DIRECTORY
 *     cc step.c $(pkg-config --cflags --libs lathe) -o step
 *     ./step DIRECTORY calm:3 7 91 10       prints the six tokens that follow
 *
 * It runs on the host device, where memory of the device is memory. On a GPU set
 * options.device = LATHE_DEVICE_CUDA and take the caches from cuMemAlloc; nothing else changes. */
#include <inttypes.h>
#include <lathe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEW_TOKENS 6
#define MOST 64

static lathe_engine *engine;

/* Every status is looked at; the message says what was wrong. */
static void must(lathe_status status, const char *what) {
    if (status == LATHE_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, lathe_status_name(status), lathe_message(engine));
    exit(1);
}

static void open_engine(const char *directory) {
    char message[4096];
    const lathe_serving serving = {
        .size = sizeof serving, .requests = 1, .q = 1, .max_context = MOST, .kv_dtype = "bf16"};
    lathe_options options = LATHE_OPTIONS_INIT;
    options.directory = directory;
    options.device = LATHE_DEVICE_HOST;
    options.serving = &serving;
    options.external_caches = true; /* bind_caches gives them */
    if (lathe_create(&options, &engine, message, sizeof message) != LATHE_OK) {
        fprintf(stderr, "%s\n", message);
        exit(1);
    }
    const char *reason = lathe_unsupported(engine);
    if (reason) {
        fprintf(stderr, "this step cannot serve: %s\n", reason);
        exit(1);
    }
}

static void build(const char *weights) {
    static char message[65536]; /* everything that is wrong with a checkpoint */
    lathe_checkpoint *checkpoint;
    if (lathe_checkpoint_open(engine, weights, &checkpoint, message, sizeof message) != LATHE_OK) {
        fprintf(stderr, "%s\n", message);
        exit(1);
    }
    must(lathe_build(engine, lathe_checkpoint_source(checkpoint)), "build");
    lathe_checkpoint_close(checkpoint);
}

/* A cache per layer, with pages for one request. The last dimensions are the step's own. */
static void bind_caches(const lathe_info *info) {
    lathe_array *caches = calloc((size_t)info->arrays, sizeof *caches);
    int count = 0;
    for (int i = 0; i < info->arrays; ++i) {
        lathe_role role;
        lathe_array *a = &caches[count];
        must(lathe_describe_array(engine, i, a, &role), "describe");
        if (role != LATHE_ROLE_KV)
            continue;
        a->shape[0] = MOST / info->page_tokens;
        memset(a->strides, 0, sizeof a->strides); /* dense */
        size_t bytes = 2;                         /* bf16 */
        for (int d = 0; d < a->rank; ++d)
            bytes *= (size_t)a->shape[d];
        a->data = aligned_alloc(64, (bytes + 63) / 64 * 64); /* kept until the process ends */
        ++count;
    }
    must(lathe_bind_caches(engine, caches, count), "bind");
    free(caches);
}

static void write_input(const char *format, const char *group, const void *data, size_t bytes) {
    char name[64];
    snprintf(name, sizeof name, format, group);
    must(lathe_write(engine, name, -1, 0, data, bytes), name);
}

/* One token at `position`; page p of the request is page p of every cache. */
static int32_t step(const lathe_info *info, int32_t token, int64_t position) {
    int32_t next;
    lathe_step_plan plan;
    lathe_batch batch = {.size = sizeof batch,
                         .requests = 1,
                         .q = 1,
                         .longest = position + 1,
                         .page_tokens = info->page_tokens};
    const int32_t length = (int32_t)position + 1;
    write_input("tokens%s", "", &token, sizeof token);
    write_input("positions%s", "", &position, sizeof position);
    for (int g = 0; g < info->groups; ++g) {
        const char *name;
        int64_t window, pages;
        int32_t table[MOST] = {0};
        must(lathe_describe_group(engine, g, &name, &window, &pages), "describe");
        for (int32_t p = 0; p < MOST / info->page_tokens; ++p)
            table[p] = p;
        write_input("block_tables.%s", name, table, (size_t)(MOST / info->page_tokens) * 4);
        write_input("seq_lens.%s", name, &length, sizeof length);
        write_input("slot_mapping.%s", name, &position, sizeof position);
        batch.table_width = pages > batch.table_width ? pages : batch.table_width;
    }
    must(lathe_plan(engine, &batch, &plan), "plan");
    must(lathe_run(engine, &plan), "run");
    must(lathe_finish(engine), "finish");
    must(lathe_read(engine, "next_tokens", -1, 0, &next, sizeof next), "read");
    return next;
}

int main(int argc, char **argv) {
    lathe_info info = {.size = sizeof info};
    if (argc < 4 || argc - 3 + NEW_TOKENS > MOST) {
        fprintf(stderr, "usage: step DIRECTORY WEIGHTS TOKEN...\n");
        return 2;
    }
    open_engine(argv[1]);
    build(argv[2]);
    must(lathe_describe(engine, &info), "describe");
    bind_caches(&info);
    int32_t token = 0;
    int64_t position = 0;
    for (int i = 3; i < argc; ++i)
        token = step(&info, (int32_t)strtol(argv[i], NULL, 10), position++);
    for (int i = 0; i < NEW_TOKENS; ++i) {
        printf("%s%" PRId32, i ? "," : "", token);
        if (i + 1 < NEW_TOKENS)
            token = step(&info, token, position++);
    }
    putchar('\n');
    lathe_destroy(engine);
    return 0;
}
