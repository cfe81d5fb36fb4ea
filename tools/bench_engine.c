/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "compile.h"
#include "exit_status.h"
#include "files.h"
#include "step_cut.h"

#define LARGEST_KEY ((size_t)16 << 20)
#define DEFAULT_CONTEXT 8192
#define CACHE_BYTE 0x3c /* bf16 0x3c3c: a small number */

/* ---- the directory ---- */

static lathe_status make_cut_folder(lathe_bench_engine *b) {
    const char *base = getenv("TMPDIR");
    const int error =
        lathe_folder_make_private(base && *base ? base : "/tmp", b->cut, sizeof b->cut);
    if (error == 0)
        return LATHE_OK;
    b->cut[0] = 0;
    snprintf(b->message, sizeof b->message, "no temporary folder can be made: %s", strerror(error));
    return LATHE_IO;
}

/* How many layers there are in all, before they are cut. */
static lathe_status count_layers(lathe_bench_engine *b) {
    lathe_step_table *table;
    const lathe_status status =
        lathe_step_table_read(b->generated.directory, &table, b->message, sizeof b->message);
    if (status != LATHE_OK)
        return status;
    b->layers_of_all = table->layer_count;
    lathe_step_table_destroy(table);
    return LATHE_OK;
}

int lathe_bench_engine_open(lathe_bench_engine *b, const char *command) {
    const int opened =
        lathe_generated_open("bench", b->o.target, b->o.tp ? b->o.tp : "1",
                             b->o.arch ? b->o.arch : "sm_90a", b->o.deployment, &b->generated);
    if (opened != LATHE_EXIT_OK)
        return opened;
    const lathe_step_cut cut = {
        .layers = b->o.layers, .variants = b->o.variants, .variant_count = b->o.variant_count};
    lathe_status status = count_layers(b);
    if (status == LATHE_OK)
        status = make_cut_folder(b);
    if (status == LATHE_OK)
        status = lathe_step_cut_directory(b->generated.directory, b->cut, &cut, b->message,
                                          sizeof b->message);
    if (status != LATHE_OK)
        fprintf(stderr, "lathe %s: %s\n", command, b->message);
    return lathe_exit_status(status);
}

/* ---- the engines ---- */

static void show_progress(void *context, lathe_log_kind kind, const char *text, int done,
                          int total) {
    (void)context;
    if (kind == LATHE_LOG_WARNING)
        fprintf(stderr, "lathe: warning: %s\n", text);
    else if (kind != LATHE_LOG_NOTE && isatty(STDERR_FILENO) && total > 0)
        fprintf(stderr, "\r\033[K%s %d/%d%s", text, done, total, done == total ? "\n" : "");
}

/* Enough for every request of the largest variant at this context. */
static int64_t count_pages(const lathe_step_table *t, int64_t context) {
    return (context + t->page_tokens - 1) / t->page_tokens * t->max_requests;
}

static lathe_status choose_context(lathe_bench_engine *b, int64_t *pages) {
    lathe_step_table *t;
    const lathe_status status = lathe_step_table_read(b->cut, &t, b->message, sizeof b->message);
    if (status != LATHE_OK)
        return status;
    if (b->o.context == 0)
        b->o.context = t->max_context < DEFAULT_CONTEXT ? t->max_context : DEFAULT_CONTEXT;
    *pages = count_pages(t, b->o.context);
    lathe_step_table_destroy(t);
    return LATHE_OK;
}

static lathe_status create_ranks(lathe_bench_engine *b) {
    lathe_options o = LATHE_OPTIONS_INIT;
    lathe_status status = choose_context(b, &o.kv_pages);
    o.directory = b->cut;
    o.device = LATHE_DEVICE_CUDA;
    o.cache = b->o.cache;
    o.timeout_ns = (uint64_t)b->o.timeout_ms * 1000000u;
    o.log = show_progress;
    o.log_context = b;
    o.loopback = b->o.rank_slice;
    if (status == LATHE_OK)
        status = lathe_ranks_create(&o, &b->ranks, b->message, sizeof b->message);
    for (int r = 0; status == LATHE_OK && r < b->ranks.count; ++r) {
        const char *reason = lathe_unsupported(b->ranks.engines[r]);
        if (!reason)
            continue;
        snprintf(b->message, sizeof b->message, "%s", reason);
        status = LATHE_UNSUPPORTED;
    }
    return status;
}

/* Numbers in place of what earlier tokens would have left. */
static lathe_status fill_caches(lathe_bench_engine *b, int rank) {
    lathe_engine *e = b->ranks.engines[rank];
    lathe_device *d = lathe_engine_device(e);
    lathe_status status = LATHE_OK;
    for (int i = 0; i < b->table->buffer_count; ++i) {
        const lathe_step_buffer *buffer = &b->table->buffers[i];
        for (int n = 0; buffer->lifetime == LATHE_LIFETIME_KV &&
                        n < (buffer->per_layer ? buffer->layer_count : 1);
             ++n) {
            lathe_engine_memory m;
            status =
                lathe_engine_find(e, buffer->name, buffer->per_layer ? buffer->layers[n] : -1, &m);
            if (status == LATHE_OK)
                status = d->ops->fill(d, m.address, CACHE_BYTE, m.bytes);
            if (status != LATHE_OK) {
                snprintf(b->message, sizeof b->message, "cache %s cannot be filled", buffer->name);
                return status;
            }
        }
    }
    return LATHE_OK;
}

static lathe_status build(lathe_bench_engine *b) {
    lathe_weights weights[LATHE_GROUP_MAX];
    lathe_weight_source sources[LATHE_GROUP_MAX];
    b->table = lathe_engine_table(b->ranks.engines[0]);
    b->weights = lathe_bench_weights_create(b->o.seed);
    if (!b->weights)
        return LATHE_NO_MEMORY;
    for (int r = 0; r < b->ranks.count; ++r) {
        weights[r] = (lathe_weights){b->table, r, lathe_bench_weights_reader(b->weights)};
        sources[r] = lathe_weights_source(&weights[r]);
    }
    lathe_status status = lathe_ranks_build(&b->ranks, sources, b->message, sizeof b->message);
    for (int r = 0; status == LATHE_OK && r < b->ranks.count; ++r)
        status = fill_caches(b, r);
    return status;
}

lathe_status lathe_bench_engine_build(lathe_bench_engine *b) {
    const lathe_status status = create_ranks(b);
    return status == LATHE_OK ? build(b) : status;
}

/* The line "nvrtc 13.0" of the key of a kernel. */
static void read_toolkit(const char *artefact, char *text, size_t size) {
    char path[4200], *key;
    size_t bytes;
    snprintf(path, sizeof path, "%.*s/key.txt", (int)(strrchr(artefact, '/') - artefact), artefact);
    if (lathe_file_read(path, LARGEST_KEY, &key, &bytes) != 0)
        return;
    const char *line = strstr(key, "\nnvrtc ");
    if (line)
        snprintf(text, size, "%.*s", (int)strcspn(line + 7, "\n"), line + 7);
    free(key);
}

void lathe_bench_engine_toolkit(const lathe_bench_engine *b, char *text, size_t size) {
    char message[256];
    lathe_compiler *compiler;
    lathe_compiled found;
    const lathe_compiler_options o = {
        .directory = b->cut, .arch = b->table->arch, .cache = b->o.cache};
    *text = '\0';
    if (lathe_compiler_create(&o, &compiler, (lathe_message_buffer){message, sizeof message}) !=
        LATHE_OK)
        return;
    for (int k = 0; k < b->table->kernel_count && !*text; ++k)
        if (lathe_compiler_find(compiler, &b->table->kernels[k], 0, &found,
                                (lathe_message_buffer){message, sizeof message}) == LATHE_OK)
            read_toolkit(found.path, text, size);
    lathe_compiler_destroy(compiler);
}

void lathe_bench_engine_close(lathe_bench_engine *b) {
    lathe_ranks_destroy(&b->ranks);
    lathe_bench_weights_destroy(b->weights);
    lathe_generated_close(&b->generated);
    if (b->cut[0])
        lathe_folder_remove(b->cut);
    b->cut[0] = '\0';
}
