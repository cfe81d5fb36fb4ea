/* SPDX-License-Identifier: Apache-2.0
 * Steps through plan, run and finish. */
#include "run_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "named.h"
#include "ranks.h"
#include "seconds.h"
#include "step_files.h"
#include "step_inputs.h"

typedef struct {
    const lathe_run_steps_options *o;
    const lathe_step_table *table;
    lathe_image *first[LATHE_GROUP_MAX]; /* outputs of the first step */
    double *enqueue_us;                  /* of each step */
    char *message;
    size_t size;
} runner;

static lathe_status fail_rank(const runner *r, int rank, lathe_status status) {
    snprintf(r->message, r->size, "%s", lathe_message(r->o->engines[rank]));
    return status;
}

static lathe_status fail(const runner *r, lathe_status status) {
    return fail_rank(r, 0, status);
}

static lathe_status plan(const runner *r, int rank, lathe_step_plan *p) {
    const lathe_step_variant *v = &r->table->variants[r->o->variant];
    lathe_batch batch = {.size = sizeof batch,
                         .requests = v->requests,
                         .q = v->q,
                         .longest = r->o->context ? r->o->context : r->table->max_context,
                         .page_tokens = r->table->page_tokens};
    for (int g = 0; g < r->table->group_count; ++g)
        if (r->table->groups[g].table_width > batch.table_width)
            batch.table_width = r->table->groups[g].table_width;
    const lathe_status status = lathe_plan(r->o->engines[rank], &batch, p);
    return status == LATHE_OK ? status : fail_rank(r, rank, status);
}

/* Calls `visit` for every instance of the outputs of one rank. */
static lathe_status for_outputs(const runner *r, int rank,
                                lathe_status (*visit)(const runner *, int,
                                                      const lathe_step_buffer *, int, void *),
                                void *context) {
    lathe_status status = LATHE_OK;
    for (int b = 0; b < r->table->buffer_count; ++b) {
        const lathe_step_buffer *buffer = &r->table->buffers[b];
        if (buffer->lifetime != LATHE_LIFETIME_OUTPUT)
            continue;
        for (int i = 0; status == LATHE_OK && i < (buffer->per_layer ? buffer->layer_count : 1);
             ++i)
            status = visit(r, rank, buffer, buffer->per_layer ? buffer->layers[i] : -1, context);
    }
    return status;
}

static lathe_status compare_output(const runner *r, int rank, const lathe_step_buffer *b, int layer,
                                   void *identical) {
    size_t bytes = 0;
    lathe_image *first = r->first[rank];
    const bool known = lathe_image_find(first, b, layer) != NULL;
    const void *then = lathe_image_read(first, b, layer, &bytes);
    lathe_image *image = known ? lathe_image_create(r->o->engines[rank]) : NULL;
    const void *now = image ? lathe_image_read(image, b, layer, NULL) : then;
    if (then && now && memcmp(then, now, bytes) != 0)
        *(bool *)identical = false;
    lathe_image_destroy(image);
    return then && now ? LATHE_OK : fail_rank(r, rank, LATHE_NO_MEMORY);
}

static lathe_status compare_outputs(const runner *r, bool *identical) {
    lathe_status status = LATHE_OK;
    for (int rank = 0; rank < r->o->ranks && status == LATHE_OK; ++rank)
        status = for_outputs(r, rank, compare_output, identical);
    return status;
}

static lathe_status dump_output(const runner *r, int rank, const lathe_step_buffer *b, int layer,
                                void *context) {
    char name[LATHE_NAMED_BYTES];
    (void)context;
    lathe_named_format(b->name, layer, name, sizeof name);
    void *data = lathe_image_read(r->first[rank], b, layer, NULL);
    return data
               ? lathe_named_write(r->o->dump, name, b->dtype, &b->shape, data, r->message, r->size)
               : fail(r, LATHE_NO_MEMORY);
}

static lathe_status compare_ranks(const runner *r, lathe_run_steps_result *result) {
    const lathe_alike what = {
        .engines = r->o->engines, .images = r->first, .count = r->o->ranks, .group = r->o->group};
    return lathe_alike_outputs(&what, &result->alike, r->message, r->size);
}

/* Allocations of every device so far. */
static uint64_t count_allocations(const runner *r) {
    uint64_t count = 0;
    for (int rank = 0; rank < r->o->ranks; ++rank) {
        const lathe_device *d = lathe_engine_device(r->o->engines[rank]);
        count += d->ops->allocations(d);
    }
    return count;
}

/* One line a rank. */
static lathe_status fail_ranks(const runner *r, const lathe_status *statuses, lathe_status status) {
    size_t used = 0;
    r->message[0] = '\0';
    for (int rank = 0; rank < r->o->ranks && used < r->size; ++rank)
        if (statuses[rank] != LATHE_OK)
            used += (size_t)snprintf(r->message + used, r->size - used, "%s%s", used ? "\n" : "",
                                     lathe_message(r->o->engines[rank]));
    return status;
}

/* One step on every rank. */
static lathe_status run_once(const runner *r, const lathe_step_plan *plans, int64_t step,
                             lathe_inject_cost *cost) {
    lathe_status statuses[LATHE_GROUP_MAX];
    int rank;
    const lathe_status status = lathe_inject_run(r->o->inject, step, r->o->engines, plans,
                                                 r->o->ranks, statuses, &rank, cost);
    if (status == LATHE_OK)
        return status;
    return statuses[rank] == LATHE_OK ? fail_rank(r, rank, status)
                                      : fail_ranks(r, statuses, status);
}

static bool injects(const runner *r, lathe_inject_kind kind, int64_t step) {
    const lathe_inject *inject = r->o->inject;
    return inject && inject->kind == kind && inject->step == step;
}

static bool holds_nan(const runner *r, int64_t step) {
    return injects(r, LATHE_INJECT_NAN, step);
}

static bool is_lost(const runner *r, int64_t step) {
    return injects(r, LATHE_INJECT_LOST, step);
}

/* The NaN of one rank must have reached every rank. */
static lathe_status count_nan(const runner *r, lathe_run_steps_result *result) {
    result->nan = -1;
    for (int rank = 0; rank < r->o->ranks; ++rank) {
        const int64_t count = lathe_inject_count_nan(r->o->engines[rank]);
        if (count < 0)
            return fail_rank(r, rank, LATHE_INVALID);
        if (result->nan < 0 || count < result->nan)
            result->nan = count;
    }
    return LATHE_OK;
}

/* How long the ranks took to say so, behind what they said. */
static void add_time(const runner *r, int64_t step, double milliseconds) {
    const size_t used = strlen(r->message);
    snprintf(r->message + used, r->size - used, "\n(step %lld, after %.0f ms)", (long long)step,
             milliseconds);
}

/* After the fault that was asked for the ranks begin anew. */
static lathe_status rejoin(const runner *r, int64_t step, lathe_status status,
                           lathe_run_steps_result *result) {
    const bool lost = status == LATHE_PEER_LOST || status == LATHE_DISAGREE;
    if (!lost || !r->o->rejoin || r->o->inject->step != step)
        return status;
    snprintf(result->fault, sizeof result->fault, "%s", r->message);
    return lathe_ranks_rejoin(r->o->rejoin, r->message, r->size);
}

/* One step, and what it left. */
static lathe_status run_step(const runner *r, const lathe_step_plan *plans, int64_t step,
                             lathe_run_steps_result *result) {
    const double begin = lathe_seconds();
    lathe_inject_cost cost = {0};
    lathe_status status = run_once(r, plans, step, &cost);
    result->waits += cost.waits;
    r->enqueue_us[step] = cost.enqueue_us;
    const double spent = (lathe_seconds() - begin) * 1e3;
    if (status != LATHE_OK) {
        add_time(r, step, spent);
        return rejoin(r, step, status, result);
    }
    result->milliseconds += spent / (double)r->o->steps;
    return holds_nan(r, step) ? count_nan(r, result) : compare_outputs(r, &result->identical);
}

static int compare_times(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static lathe_status run_all(const runner *r, lathe_run_steps_result *result) {
    lathe_step_plan plans[LATHE_GROUP_MAX];
    lathe_status status = LATHE_OK;
    for (int rank = 0; status == LATHE_OK && rank < r->o->ranks; ++rank)
        status = plan(r, rank, &plans[rank]);
    const uint64_t allocations = count_allocations(r);
    for (int64_t i = 0; status == LATHE_OK && i < r->o->steps; ++i) {
        status = run_step(r, plans, i, result);
        if (status == LATHE_OK && is_lost(r, i) && !r->o->rejoin)
            return LATHE_OK; /* alone in its process, it is gone from here on */
    }
    result->allocations = count_allocations(r) - allocations;
    qsort(r->enqueue_us, (size_t)r->o->steps, sizeof *r->enqueue_us, compare_times);
    result->enqueue_us = r->enqueue_us[r->o->steps / 2];
    if (status == LATHE_OK && !holds_nan(r, r->o->steps - 1))
        status = compare_ranks(r, result);
    if (status == LATHE_OK && r->o->dump && r->o->first == 0)
        status = for_outputs(r, 0, dump_output, NULL);
    return status;
}

/* Writing inputs may take one process longer than a step waits for a rank. */
static lathe_status set_out(const runner *r) {
    const lathe_status status = r->o->group ? lathe_group_barrier(r->o->group) : LATHE_OK;
    if (status != LATHE_OK)
        snprintf(r->message, r->size, "before the first step: %s", r->o->group->message);
    return status;
}

lathe_status lathe_run_steps(const lathe_run_steps_options *options, lathe_run_steps_result *result,
                             char *message, size_t size) {
    runner r = {.o = options,
                .table = lathe_engine_table(options->engines[0]),
                .message = message,
                .size = size};
    const bool files = options->inputs && lathe_step_files_exist(options->inputs);
    lathe_step_inputs inputs = {
        .seed = options->seed, .context = options->context, .from = files ? options->inputs : NULL};
    *result = (lathe_run_steps_result){.identical = true};
    lathe_status status = LATHE_OK;
    for (int rank = 0; status == LATHE_OK && rank < options->ranks; ++rank) {
        inputs.rank = options->first + rank;
        status = lathe_step_inputs_write(options->engines[rank], options->variant, &inputs, message,
                                         size);
    }
    if (status != LATHE_OK)
        return status;
    for (int rank = 0; status == LATHE_OK && rank < options->ranks; ++rank) {
        r.first[rank] = lathe_image_create(options->engines[rank]);
        if (!r.first[rank]) {
            snprintf(message, size, "no memory");
            status = LATHE_NO_MEMORY;
        }
    }
    r.enqueue_us = calloc((size_t)options->steps + 1, sizeof *r.enqueue_us);
    if (status == LATHE_OK && !r.enqueue_us) {
        snprintf(message, size, "no memory");
        status = LATHE_NO_MEMORY;
    }
    if (status == LATHE_OK)
        status = set_out(&r);
    if (status == LATHE_OK)
        status = run_all(&r, result);
    for (int rank = 0; rank < options->ranks; ++rank)
        lathe_image_destroy(r.first[rank]);
    free(r.enqueue_us);
    return status;
}
