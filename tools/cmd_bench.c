/* SPDX-License-Identifier: Apache-2.0
 * `lathe bench`: builds a generated directory and times its step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench_ceiling.h"
#include "bench_options.h"
#include "bench_record.h"
#include "bench_report.h"
#include "bench_run.h"
#include "bench_weights.h"
#include "commands.h"
#include "files.h"
#include "generated.h"
#include "step_cut.h"

const char lathe_cmd_bench_summary[] = "time the step, its layers and its kernels on a GPU";

#define DEFAULT_CONTEXT 8192
#define CACHE_BYTE 0x3c /* bf16 0x3c3c: a small number */

typedef struct {
    lathe_bench_options o;
    lathe_generated generated;
    char cut[4096]; /* folder of the directory with fewer layers, "" where there is none */
    lathe_ranks ranks;
    lathe_bench_weights *weights;
    const lathe_step_table *table;
    lathe_pool *pool;
    json_t *against;
    lathe_bench_result result;
    char message[4096];
} bench;

static int exit_status(lathe_status status) {
    switch (status) {
    case LATHE_OK:
        return LATHE_EXIT_OK;
    case LATHE_NO_DEVICE:
    case LATHE_DEVICE_FAULT:
    case LATHE_PEER_LOST:
    case LATHE_DISAGREE:
        return LATHE_EXIT_DEVICE;
    default:
        return LATHE_EXIT_USAGE;
    }
}

static int fail(lathe_status status, const char *message) {
    fprintf(stderr, "lathe bench: %s\n", message);
    return exit_status(status);
}

/* ---- the directory ---- */

static lathe_status make_cut_folder(bench *b) {
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
static lathe_status count_layers(bench *b) {
    lathe_step_table *table;
    const lathe_status status =
        lathe_step_table_read(b->generated.directory, &table, b->message, sizeof b->message);
    if (status != LATHE_OK)
        return status;
    b->result.layers_of_all = table->layer_count;
    lathe_step_table_destroy(table);
    return LATHE_OK;
}

static int open_directory(bench *b) {
    const int opened =
        lathe_generated_open(b->o.target, b->o.tp ? b->o.tp : "1", b->o.arch ? b->o.arch : "sm_90a",
                             b->o.deployment, &b->generated);
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
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, b->message);
}

/* ---- the engines ---- */

static void show_progress(void *context, lathe_log_kind kind, const char *text, int done,
                          int total) {
    (void)context;
    if (kind == LATHE_LOG_WARNING)
        fprintf(stderr, "lathe bench: warning: %s\n", text);
    else if (kind != LATHE_LOG_NOTE && isatty(STDERR_FILENO) && total > 0)
        fprintf(stderr, "\r\033[K%s %d/%d%s", text, done, total, done == total ? "\n" : "");
}

/* Enough for every request of the largest variant at this context. */
static int64_t count_pages(const lathe_step_table *t, int64_t context) {
    return (context + t->page_tokens - 1) / t->page_tokens * t->max_requests;
}

static lathe_status choose_context(bench *b, int64_t *pages) {
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

static lathe_status create_ranks(bench *b) {
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
static lathe_status fill_caches(bench *b, int rank) {
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

static lathe_status build(bench *b) {
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

/* ---- the measurements ---- */

static void describe(bench *b) {
    lathe_bench_result *r = &b->result;
    const lathe_device *d = lathe_engine_device(b->ranks.engines[0]);
    const time_t now = time(NULL);
    struct tm tm;
    r->layout = b->table->layout;
    r->deployment = b->table->deployment;
    r->arch = b->table->arch;
    r->hash = b->table->hash;
    r->tp = b->table->tp;
    r->rank_count = b->ranks.count;
    r->rank_slice = b->o.rank_slice;
    r->layers = b->table->layer_count;
    r->multiprocessors = (int)d->info.multiprocessors;
    snprintf(r->gpu, sizeof r->gpu, "%s", d->info.description);
    strftime(r->date, sizeof r->date, "%Y-%m-%d", gmtime_r(&now, &tm));
    for (int i = 0; i < b->table->buffer_count; ++i) {
        const lathe_step_buffer *buffer = &b->table->buffers[i];
        if (buffer->lifetime == LATHE_LIFETIME_WEIGHT)
            r->weight_bytes +=
                (double)buffer->fixed_bytes * (buffer->per_layer ? buffer->layer_count : 1);
    }
}

static void find_ceiling(bench *b) {
    lathe_bench_result *r = &b->result;
    r->ceiling = lathe_bench_ceiling(lathe_engine_device(b->ranks.engines[0]), r->ceiling_note,
                                     sizeof r->ceiling_note);
    if (r->ceiling > 0) {
        snprintf(r->ceiling_note, sizeof r->ceiling_note,
                 "measured in this run by a kernel that reads");
    } else if (b->table->ceilings.read_gb_s > 0) {
        r->ceiling = 1e9 * (double)b->table->ceilings.read_gb_s;
        snprintf(r->ceiling_note, sizeof r->ceiling_note,
                 "from the table of tactics, not measured");
    }
}

static lathe_status run_variants(bench *b) {
    lathe_bench_result *r = &b->result;
    lathe_status status = LATHE_OK;
    r->variants = lathe_pool_alloc(b->pool, (size_t)b->table->variant_count, sizeof *r->variants);
    if (!r->variants)
        return LATHE_NO_MEMORY;
    for (int v = 0; status == LATHE_OK && v < b->table->variant_count; ++v) {
        const lathe_bench_run run = {.ranks = &b->ranks,
                                     .variant = v,
                                     .rank_slice = b->o.rank_slice,
                                     .step_only = b->o.step_only,
                                     .kernel = b->o.kernel,
                                     .context = b->o.context,
                                     .ceiling = r->ceiling,
                                     .replays = (int)b->o.replays,
                                     .sets = (int)b->o.sets,
                                     .samples = (int)b->o.samples,
                                     .seed = b->o.seed};
        status =
            lathe_bench_run_variant(&run, b->pool, &r->variants[v], b->message, sizeof b->message);
        r->variant_count = v + 1;
    }
    return status;
}

static int show(bench *b) {
    json_t *record = lathe_bench_record_make(&b->result);
    lathe_status status = record ? LATHE_OK : LATHE_NO_MEMORY;
    if (b->o.json && record) {
        json_dumpf(record, stdout, JSON_INDENT(1) | JSON_SORT_KEYS);
        putchar('\n');
    } else {
        lathe_bench_report(&b->result, b->against, stdout);
    }
    if (record && b->o.record)
        status = lathe_bench_record_write(b->o.record, record, b->message, sizeof b->message);
    json_decref(record);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, b->message);
}

static lathe_status measure(bench *b) {
    lathe_status status = create_ranks(b);
    if (status == LATHE_OK)
        status = build(b);
    if (status != LATHE_OK)
        return status;
    describe(b);
    lathe_machine_read(0, &b->result.before);
    find_ceiling(b);
    status = run_variants(b);
    lathe_machine_read(0, &b->result.after);
    return status;
}

static int run(bench *b) {
    snprintf(b->message, sizeof b->message, "no memory");
    b->pool = lathe_pool_create();
    if (!b->pool)
        return fail(LATHE_NO_MEMORY, b->message);
    lathe_status status = LATHE_OK;
    if (b->o.against)
        status = lathe_bench_record_read(b->o.against, &b->against, b->message, sizeof b->message);
    if (status != LATHE_OK)
        return fail(status, b->message);
    const int opened = open_directory(b);
    if (opened != LATHE_EXIT_OK)
        return opened;
    status = measure(b);
    return status == LATHE_OK ? show(b) : fail(status, b->message);
}

static void clean_up(bench *b) {
    lathe_ranks_destroy(&b->ranks);
    lathe_bench_weights_destroy(b->weights);
    lathe_generated_close(&b->generated);
    if (b->cut[0])
        lathe_folder_remove(b->cut);
    json_decref(b->against);
    lathe_pool_destroy(b->pool);
    free(b);
}

int lathe_cmd_bench(int argc, char **argv) {
    bench *b = calloc(1, sizeof *b);
    if (!b)
        return fail(LATHE_NO_MEMORY, "no memory");
    const int parsed = lathe_bench_options_parse(argc, argv, &b->o);
    const int status = parsed != 0 ? parsed - 1 : run(b);
    clean_up(b);
    return status;
}
