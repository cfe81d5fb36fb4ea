/* SPDX-License-Identifier: Apache-2.0
 * What stands in padding rows changes no other row and no cache (design.md, line 5): the step twice
 * with a padded request, with other tokens and positions in its rows the second time. */
#include <stdlib.h>
#include <string.h>

#include "check_state.h"
#include "outputs.h"

enum { RUNS = 2 };

/* One run: outputs, and the caches of every rank after it. */
typedef struct {
    lathe_outputs outputs;
    lathe_image *caches[LATHE_REF_RANKS];
} padded_run;

static lathe_status read_caches(lathe_check_state *c, padded_run *r) {
    for (int rank = 0; rank < c->ranks; ++rank) {
        r->caches[rank] = lathe_image_create(c->options->engines[rank]);
        if (!r->caches[rank])
            return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for caches");
        for (int b = 0; b < c->table->buffer_count; ++b) {
            const lathe_step_buffer *buffer = &c->table->buffers[b];
            for (int i = 0; buffer->lifetime == LATHE_LIFETIME_KV &&
                            i < (buffer->per_layer ? buffer->layer_count : 1);
                 ++i)
                if (!lathe_image_read(r->caches[rank], buffer,
                                      buffer->per_layer ? buffer->layers[i] : -1, NULL))
                    return lathe_check_refuse(c, LATHE_NO_MEMORY, "%s cannot be read back",
                                              buffer->name);
        }
    }
    return LATHE_OK;
}

static lathe_status run_padded(lathe_check_state *c, uint64_t garbage, padded_run *r) {
    const lathe_outputs_step step = {.engines = c->options->engines,
                                     .ranks = c->ranks,
                                     .variant = c->options->variant,
                                     .seed = c->options->seed,
                                     .context = c->options->context,
                                     .padding = true,
                                     .garbage = garbage};
    const lathe_status status = lathe_outputs_run(&step, &r->outputs, c->message, c->size);
    return status == LATHE_OK ? read_caches(c, r) : status;
}

static bool same_caches(const lathe_check_state *c, const padded_run *runs, int rank,
                        const lathe_step_buffer *b, int layer) {
    lathe_engine_memory m;
    const void *first = lathe_image_find(runs[0].caches[rank], b, layer);
    const void *second = lathe_image_find(runs[1].caches[rank], b, layer);
    return lathe_engine_find(c->options->engines[rank], b->name, layer, &m) == LATHE_OK && first &&
           second && memcmp(first, second, m.bytes) == 0;
}

static void report(lathe_check_state *c, const char *name, bool *same) {
    *same = false;
    if (c->options->out)
        fprintf(c->options->out, "    padding rows: %s depends on what stands in them\n", name);
}

static bool compare_runs(lathe_check_state *c, const padded_run *runs) {
    const lathe_step_variant *v = &c->table->variants[c->options->variant];
    const int64_t rows = v->requests * v->q;
    bool same = true;
    for (int i = 0; i < runs[0].outputs.count; ++i)
        if (!lathe_outputs_same(&runs[0].outputs, &runs[1].outputs, i, rows - v->q, rows))
            report(c, runs[0].outputs.list[i].value->buffer->name, &same);
    for (int rank = 0; rank < c->ranks; ++rank)
        for (int b = 0; b < c->table->buffer_count; ++b) {
            const lathe_step_buffer *buffer = &c->table->buffers[b];
            for (int i = 0; buffer->lifetime == LATHE_LIFETIME_KV &&
                            i < (buffer->per_layer ? buffer->layer_count : 1);
                 ++i)
                if (!same_caches(c, runs, rank, buffer, buffer->per_layer ? buffer->layers[i] : -1))
                    report(c, buffer->name, &same);
        }
    return same;
}

lathe_status lathe_check_padding(lathe_check_state *c) {
    padded_run runs[RUNS] = {{{0}, {NULL}}};
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i < RUNS; ++i)
        status = run_padded(c, c->options->seed + (uint64_t)i + 1, &runs[i]);
    if (status == LATHE_OK) {
        const bool same = compare_runs(c, runs);
        c->result->failed += !same;
        if (c->options->out && !(same && c->options->failures_only))
            fprintf(c->options->out, "%-12s %-34s %-30s %-32s %s\n", "bits", "padding rows",
                    c->table->variants[c->options->variant].name,
                    same ? "nothing depends on them" : "something depends on them",
                    same ? "ok" : "FAILED");
    }
    for (int i = 0; i < RUNS; ++i) {
        lathe_outputs_destroy(&runs[i].outputs);
        for (int rank = 0; rank < c->ranks; ++rank)
            lathe_image_destroy(runs[i].caches[rank]);
    }
    return status;
}
