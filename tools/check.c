/* SPDX-License-Identifier: Apache-2.0
 * The order of a check: inputs, the prepare launches, the step launch by launch, the whole step,
 * the schedules. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check_state.h"
#include "step_files.h"
#include "step_inputs.h"

static lathe_status create_images(lathe_check_state *c) {
    for (int rank = 0; rank < c->ranks; ++rank) {
        lathe_engine *e = c->options->engines[rank];
        c->weights[rank] = c->options->weights ? c->options->weights[rank] : lathe_image_create(e);
        c->start[rank] = lathe_image_create(e);
        c->end[rank] = lathe_image_create(e);
        c->defined[rank] = lathe_image_create(e);
        if (!c->weights[rank] || !c->start[rank] || !c->end[rank] || !c->defined[rank])
            return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for a check");
    }
    return LATHE_OK;
}

static lathe_status create_saved(lathe_check_state *c) {
    c->saved = calloc((size_t)c->launch_count + 1, sizeof *c->saved);
    if (!c->saved)
        return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for a check");
    for (int i = 0; i < c->launch_count; ++i) {
        const size_t count = (size_t)(c->ranks * c->launches[0][i].value_count) + 1;
        c->saved[i].values = calloc(count, sizeof *c->saved[i].values);
        if (!c->saved[i].values)
            return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for a check");
    }
    return LATHE_OK;
}

static void free_state(lathe_check_state *c) {
    for (int i = 0; c->saved && i < c->launch_count; ++i) {
        const int count = c->ranks * c->launches[0][i].value_count;
        for (int v = 0; c->saved[i].values && v < count; ++v)
            free(c->saved[i].values[v]);
        free(c->saved[i].values);
    }
    free(c->saved);
    free(c->written);
    for (int rank = 0; rank < c->ranks; ++rank) {
        lathe_check_collectives_free(c->launches[rank], c->launch_count);
        if (!c->options->weights)
            lathe_image_destroy(c->weights[rank]);
        lathe_image_destroy(c->start[rank]);
        lathe_image_destroy(c->end[rank]);
        lathe_image_destroy(c->defined[rank]);
    }
}

/* Copies every instance of the buffers with one of the lifetimes. */
static lathe_status read_all(lathe_check_state *c, lathe_image *const *images, unsigned lifetimes) {
    for (int rank = 0; rank < c->ranks; ++rank)
        for (int b = 0; b < c->table->buffer_count; ++b) {
            const lathe_step_buffer *buffer = &c->table->buffers[b];
            if (!(lifetimes >> buffer->lifetime & 1))
                continue;
            for (int i = 0; i < lathe_image_instances(buffer); ++i)
                if (!lathe_image_read(images[rank], buffer,
                                      buffer->per_layer ? buffer->layers[i] : -1, NULL))
                    return lathe_check_refuse(c, LATHE_NO_MEMORY, "%s cannot be read back",
                                              buffer->name);
        }
    return LATHE_OK;
}

static lathe_status write_inputs(lathe_check_state *c) {
    const lathe_check_options *o = c->options;
    const bool files = o->inputs && lathe_step_files_exist(o->inputs);
    lathe_step_inputs inputs = {.seed = o->seed,
                                .context = o->context,
                                .padding = o->padding,
                                .from = files ? o->inputs : NULL};
    lathe_status status = LATHE_OK;
    for (int rank = 0; status == LATHE_OK && rank < c->ranks; ++rank) {
        inputs.rank = rank;
        status =
            lathe_step_inputs_write(o->engines[rank], o->variant, &inputs, c->message, c->size);
    }
    return status;
}

/* One launch on all ranks. */
static lathe_status check_one(lathe_check_state *c, const lathe_step_launch *const *first, int i,
                              bool step) {
    const lathe_step_launch *launch[LATHE_REF_RANKS];
    for (int rank = 0; rank < c->ranks; ++rank)
        launch[rank] = &first[rank][i];
    if (!launch[0]->kernel)
        return LATHE_OK;
    const lathe_status status = step ? lathe_check_override(c, launch) : LATHE_OK;
    return status == LATHE_OK ? lathe_check_launch(c, launch, step ? i : -1) : status;
}

static lathe_status check_prepare(lathe_check_state *c) {
    const lathe_step_launch *launches[LATHE_REF_RANKS];
    int count = 0;
    for (int rank = 0; rank < c->ranks; ++rank)
        launches[rank] = lathe_engine_launches(c->options->engines[rank], LATHE_PREPARE, &count);
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i < count; ++i)
        status = check_one(c, launches, i, false);
    return status;
}

enum {
    STARTS = 1u << LATHE_LIFETIME_INPUT | 1u << LATHE_LIFETIME_KV |
             1u << LATHE_LIFETIME_PERSISTENT | 1u << LATHE_LIFETIME_PREPARED,
    ENDS = 1u << LATHE_LIFETIME_SCRATCH | 1u << LATHE_LIFETIME_OUTPUT | 1u << LATHE_LIFETIME_KV
};

static lathe_status check_step(lathe_check_state *c) {
    lathe_status status = write_inputs(c);
    if (status == LATHE_OK)
        status = check_prepare(c);
    if (status == LATHE_OK)
        status = read_all(c, c->start, STARTS);
    for (int i = 0; status == LATHE_OK && i < c->launch_count; ++i)
        status = check_one(c, c->launches, i, true);
    if (status == LATHE_OK)
        status = read_all(c, c->end, ENDS);
    if (status == LATHE_OK && c->options->whole_step && !c->overridden && c->result->failed == 0)
        status = lathe_check_chain(c);
    if (status == LATHE_OK && c->options->schedules && !c->overridden)
        status = lathe_check_schedules(c);
    if (status == LATHE_OK && c->options->schedules && !c->options->inputs &&
        c->table->variants[c->options->variant].requests > 1)
        status = lathe_check_padding(c);
    return status;
}

/* A folder of its own for what each of several ranks writes. */
static lathe_status make_folders(lathe_check_state *c) {
    char path[4096];
    struct stat st;
    for (int rank = 0; c->ranks > 1 && c->options->dump && rank < c->ranks; ++rank) {
        lathe_check_folder(c->ranks, c->options->dump, rank, path, sizeof path);
        if (mkdir(path, 0777) != 0 && (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)))
            return lathe_check_refuse(c, LATHE_IO, "%s cannot be made", path);
    }
    return LATHE_OK;
}

static lathe_status set_up(lathe_check_state *c) {
    const lathe_check_options *o = c->options;
    if (o->ranks < 1 || o->ranks > LATHE_REF_RANKS || o->variant < 0 ||
        o->variant >= c->table->variant_count)
        return lathe_check_refuse(c, LATHE_INVALID, "no such ranks or variant");
    const int places = c->table->buffer_count + c->table->mailbox_count;
    c->written = malloc(((size_t)places + 1) * sizeof *c->written);
    if (!c->written)
        return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for a check");
    for (int b = 0; b < places; ++b)
        c->written[b] = LATHE_FROM_NOWHERE;
    for (int rank = 0; rank < c->ranks; ++rank) {
        const lathe_step_launch *launches =
            lathe_engine_launches(o->engines[rank], o->variant, &c->launch_count);
        if (!launches)
            return lathe_check_refuse(c, LATHE_INVALID, "the engine is not built");
        c->launches[rank] = lathe_check_collectives(launches, c->launch_count);
        if (!c->launches[rank])
            return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for a check");
    }
    lathe_status status = make_folders(c);
    if (status == LATHE_OK)
        status = create_images(c);
    return status == LATHE_OK ? create_saved(c) : status;
}

lathe_status lathe_check(const lathe_check_options *options, lathe_check_result *result,
                         char *message, size_t size) {
    lathe_check_state c = {.options = options,
                           .result = result,
                           .ranks = options->ranks,
                           .message = message,
                           .size = size};
    memset(result, 0, sizeof *result);
    c.table = lathe_engine_table(options->engines[0]);
    lathe_status status = set_up(&c);
    if (status == LATHE_OK) {
        lathe_check_print_head(&c);
        status = check_step(&c);
    }
    free_state(&c);
    return status;
}
