/* SPDX-License-Identifier: Apache-2.0
 * `lathe bench`: builds a generated directory and times its step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_ceiling.h"
#include "bench_engine.h"
#include "bench_pairs.h"
#include "bench_record.h"
#include "bench_report.h"
#include "bench_run.h"
#include "commands.h"
#include "exit_status.h"

const char lathe_cmd_bench_summary[] = "time the step, its layers and its kernels on a GPU";

typedef struct {
    lathe_bench_engine e;
    lathe_pool *pool;
    json_t *against;
    lathe_bench_result result;
} bench;

static int fail(lathe_status status, const char *message) {
    fprintf(stderr, "lathe bench: %s\n", message);
    return lathe_exit_status(status);
}

/* ---- the measurements ---- */

static void describe(bench *b) {
    lathe_bench_result *r = &b->result;
    const lathe_device *d = lathe_engine_device(b->e.ranks.engines[0]);
    const time_t now = time(NULL);
    struct tm tm;
    r->layout = b->e.table->layout;
    r->deployment = b->e.table->deployment;
    r->arch = b->e.table->arch;
    r->hash = b->e.table->hash;
    r->tp = b->e.table->tp;
    r->layers_of_all = b->e.layers_of_all;
    r->rank_count = b->e.ranks.count;
    r->rank_slice = b->e.o.rank_slice;
    r->layers = b->e.table->layer_count;
    r->multiprocessors = (int)d->info.multiprocessors;
    snprintf(r->gpu, sizeof r->gpu, "%s", d->info.description);
    lathe_bench_engine_toolkit(&b->e, r->toolkit, sizeof r->toolkit);
    strftime(r->date, sizeof r->date, "%Y-%m-%d", gmtime_r(&now, &tm));
    for (int i = 0; i < b->e.table->buffer_count; ++i) {
        const lathe_step_buffer *buffer = &b->e.table->buffers[i];
        if (buffer->lifetime == LATHE_LIFETIME_WEIGHT)
            r->weight_bytes +=
                (double)buffer->fixed_bytes * (buffer->per_layer ? buffer->layer_count : 1);
    }
}

static void find_ceiling(bench *b) {
    lathe_bench_result *r = &b->result;
    r->ceiling = lathe_bench_ceiling(lathe_engine_device(b->e.ranks.engines[0]), r->ceiling_note,
                                     sizeof r->ceiling_note);
    if (r->ceiling > 0) {
        snprintf(r->ceiling_note, sizeof r->ceiling_note,
                 "measured in this run by a kernel that reads");
    } else if (b->e.table->ceilings.read_gb_s > 0) {
        r->ceiling = 1e9 * (double)b->e.table->ceilings.read_gb_s;
        snprintf(r->ceiling_note, sizeof r->ceiling_note,
                 "from the table of tactics, not measured");
    }
}

static lathe_status run_variants(bench *b) {
    lathe_bench_result *r = &b->result;
    lathe_status status = LATHE_OK;
    r->variants = lathe_pool_alloc(b->pool, (size_t)b->e.table->variant_count, sizeof *r->variants);
    if (!r->variants)
        return LATHE_NO_MEMORY;
    for (int v = 0; status == LATHE_OK && v < b->e.table->variant_count; ++v) {
        const lathe_bench_run run = {.ranks = &b->e.ranks,
                                     .variant = v,
                                     .rank_slice = b->e.o.rank_slice,
                                     .step_only = b->e.o.step_only,
                                     .kernel = b->e.o.kernel,
                                     .context = b->e.o.context,
                                     .ceiling = r->ceiling,
                                     .replays = (int)b->e.o.replays,
                                     .sets = (int)b->e.o.sets,
                                     .samples = (int)b->e.o.samples,
                                     .seed = b->e.o.seed};
        status = lathe_bench_run_variant(&run, b->pool, &r->variants[v], b->e.message,
                                         sizeof b->e.message);
        r->variant_count = v + 1;
    }
    return status;
}

static int show(bench *b) {
    json_t *record = lathe_bench_record_make(&b->result);
    lathe_status status = record ? LATHE_OK : LATHE_NO_MEMORY;
    if (b->e.o.json && record) {
        json_dumpf(record, stdout, JSON_INDENT(1) | JSON_SORT_KEYS);
        putchar('\n');
    } else {
        lathe_bench_report(&b->result, b->against, stdout);
    }
    if (record && b->e.o.record)
        status = lathe_bench_record_write(b->e.o.record, record, b->e.message, sizeof b->e.message);
    json_decref(record);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, b->e.message);
}

static lathe_status measure(bench *b) {
    lathe_status status = lathe_bench_engine_build(&b->e);
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
    snprintf(b->e.message, sizeof b->e.message, "no memory");
    b->pool = lathe_pool_create();
    if (!b->pool)
        return fail(LATHE_NO_MEMORY, b->e.message);
    lathe_status status = LATHE_OK;
    if (b->e.o.against)
        status =
            lathe_bench_record_read(b->e.o.against, &b->against, b->e.message, sizeof b->e.message);
    if (status != LATHE_OK)
        return fail(status, b->e.message);
    const int opened = lathe_bench_engine_open(&b->e, "bench");
    if (opened != LATHE_EXIT_OK)
        return opened;
    status = measure(b);
    return status == LATHE_OK ? show(b) : fail(status, b->e.message);
}

static void clean_up(bench *b) {
    lathe_bench_engine_close(&b->e);
    json_decref(b->against);
    lathe_pool_destroy(b->pool);
    free(b);
}

int lathe_cmd_bench(int argc, char **argv) {
    bench *b = calloc(1, sizeof *b);
    if (!b)
        return fail(LATHE_NO_MEMORY, "no memory");
    const int parsed = lathe_bench_options_parse(argc, argv, &b->e.o);
    const int status = parsed != 0     ? parsed - 1
                       : b->e.o.versus ? lathe_bench_versus(&b->e, stdout)
                                       : run(b);
    clean_up(b);
    return status;
}
