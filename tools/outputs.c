/* SPDX-License-Identifier: Apache-2.0
 * Reads the outputs of a step and compares them across deployments. */
#include "outputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "ranks.h"
#include "step_inputs.h"

static lathe_status refuse(char *message, size_t size, lathe_engine *e, lathe_status status) {
    snprintf(message, size, "%s", lathe_message(e));
    return status;
}

/* One launch on every rank, waited for. */
static lathe_status launch_one(const lathe_outputs_step *s, int index, char *message, size_t size) {
    int count = 0;
    for (int rank = 0; rank < s->ranks; ++rank) {
        lathe_engine *e = s->engines[rank];
        const lathe_status status =
            lathe_engine_launch(e, &lathe_engine_launches(e, s->variant, &count)[index]);
        if (status != LATHE_OK)
            return refuse(message, size, e, status);
    }
    int rank = 0;
    const lathe_status status = lathe_ranks_synchronize(s->engines, s->ranks, &rank);
    return status == LATHE_OK ? status : refuse(message, size, s->engines[rank], status);
}

static lathe_status run_launches(const lathe_outputs_step *s, char *message, size_t size) {
    int count = 0;
    const lathe_step_launch *l = lathe_engine_launches(s->engines[0], s->variant, &count);
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i < count; ++i) {
        bool again = false;
        status = launch_one(s, i, message, size);
        if (status == LATHE_OK)
            status = s->after(s->after_context, s, &l[i], &again);
        if (status == LATHE_OK && again)
            status = launch_one(s, i, message, size);
    }
    return status;
}

static lathe_status enqueue_all(const lathe_outputs_step *s, char *message, size_t size) {
    for (int rank = 0; rank < s->ranks; ++rank) {
        const lathe_status status = lathe_engine_launch_all(s->engines[rank], s->variant);
        if (status != LATHE_OK)
            return refuse(message, size, s->engines[rank], status);
    }
    int rank = 0;
    const lathe_status status = lathe_ranks_synchronize(s->engines, s->ranks, &rank);
    return status == LATHE_OK ? status : refuse(message, size, s->engines[rank], status);
}

static lathe_status run_step(const lathe_outputs_step *s, char *message, size_t size) {
    lathe_step_inputs inputs = {
        .seed = s->seed, .context = s->context, .padding = s->padding, .garbage = s->garbage};
    for (int rank = 0; rank < s->ranks; ++rank) {
        inputs.rank = rank;
        const lathe_status status =
            lathe_step_inputs_write(s->engines[rank], s->variant, &inputs, message, size);
        if (status != LATHE_OK)
            return status;
    }
    return s->after ? run_launches(s, message, size) : enqueue_all(s, message, size);
}

static bool is_output(const lathe_step_value *v) {
    return v->buffer && v->buffer->lifetime == LATHE_LIFETIME_OUTPUT &&
           (v->arg->dir == LATHE_DIR_OUT || v->arg->dir == LATHE_DIR_INOUT);
}

int lathe_outputs_find(const lathe_outputs *o, const char *name, int layer) {
    for (int i = 0; i < o->count; ++i)
        if (o->list[i].value->layer == layer && strcmp(o->list[i].value->buffer->name, name) == 0)
            return i;
    return -1;
}

/* The list of outputs: as many as there are, each once. */
static bool list_outputs(const lathe_outputs_step *s, lathe_outputs *o) {
    int count = 0;
    const lathe_step_launch *l = lathe_engine_launches(s->engines[0], s->variant, &count);
    int room = 0;
    for (int i = 0; i < count; ++i)
        for (int v = 0; v < l[i].value_count; ++v)
            room += is_output(&l[i].values[v]);
    o->list = calloc((size_t)room + 1, sizeof *o->list);
    for (int i = 0; o->list && i < count; ++i)
        for (int v = 0; v < l[i].value_count; ++v) {
            const lathe_step_value *value = &l[i].values[v];
            if (is_output(value) && lathe_outputs_find(o, value->buffer->name, value->layer) < 0)
                o->list[o->count++].value = value;
        }
    return o->list != NULL;
}

static lathe_status read_outputs(const lathe_outputs_step *s, lathe_outputs *o, char *message,
                                 size_t size) {
    for (int i = 0; i < o->count; ++i)
        for (int rank = 0; rank < s->ranks; ++rank) {
            const lathe_step_value *v = o->list[i].value;
            void *data = malloc(v->bytes ? v->bytes : 1);
            o->list[i].data[rank] = data;
            if (!data) {
                snprintf(message, size, "no memory for outputs");
                return LATHE_NO_MEMORY;
            }
            const lathe_status status =
                lathe_engine_read(s->engines[rank], v->buffer->name, v->layer, 0, data, v->bytes);
            if (status != LATHE_OK)
                return refuse(message, size, s->engines[rank], status);
        }
    return LATHE_OK;
}

lathe_status lathe_outputs_run(const lathe_outputs_step *step, lathe_outputs *outputs,
                               char *message, size_t size) {
    *outputs = (lathe_outputs){.ranks = step->ranks};
    if (!list_outputs(step, outputs)) {
        snprintf(message, size, "no memory for outputs");
        return LATHE_NO_MEMORY;
    }
    const lathe_status status = run_step(step, message, size);
    return status == LATHE_OK ? read_outputs(step, outputs, message, size) : status;
}

void lathe_outputs_destroy(lathe_outputs *o) {
    for (int i = 0; i < o->count; ++i)
        for (int rank = 0; rank < o->ranks; ++rank)
            free(o->list[i].data[rank]);
    free(o->list);
    *o = (lathe_outputs){0};
}

static int64_t width_of(const lathe_step_value *v) {
    return v->shape.count ? v->shape.dim[v->shape.count - 1] : 1;
}

/* Element of a row whose columns may be spread over the ranks. */
static double element(const lathe_output *o, int64_t row, int64_t column) {
    const int64_t width = width_of(o->value);
    return lathe_compare_value(o->value->arg->dtype, o->data[column / width],
                               row * width + column % width);
}

/* The width that both have, or -1. */
static int64_t common_width(const lathe_outputs *a, const lathe_step_value *v,
                            const lathe_outputs *b, const lathe_step_value *w) {
    const int64_t ours = width_of(v);
    const int64_t theirs = width_of(w);
    if (lathe_step_shape_count(&v->shape, 0) / ours !=
        lathe_step_shape_count(&w->shape, 0) / theirs)
        return -1;
    if (ours == theirs)
        return ours;
    return ours * a->ranks == theirs * b->ranks ? ours * a->ranks
           : ours * a->ranks == theirs          ? theirs
           : ours == theirs * b->ranks          ? ours
                                                : -1;
}

double lathe_outputs_distance(const lathe_outputs *expected, int index, const lathe_outputs *found,
                              int other) {
    const lathe_output *a = &expected->list[index];
    const lathe_output *b = &found->list[other];
    const int64_t width = common_width(expected, a->value, found, b->value);
    const lathe_scalar type = a->value->arg->dtype;
    const bool real =
        type == LATHE_SCALAR_BF16 || type == LATHE_SCALAR_F32 || type == LATHE_SCALAR_F64;
    if (width < 0 || type != b->value->arg->dtype)
        return (double)NAN;
    double size = 0, difference = 0;
    const int64_t rows = lathe_step_shape_count(&a->value->shape, 0) / width_of(a->value);
    for (int64_t i = 0; i < rows * width; ++i) {
        const double x = element(a, i / width, i % width);
        const double y = element(b, i / width, i % width);
        if (isnan(x) != isnan(y))
            return (double)INFINITY;
        if (isnan(x))
            continue;
        size += real ? x * x : 1;
        difference += real ? (x - y) * (x - y) : (double)(x != y);
    }
    if (!real)
        return difference / size;
    return difference > 0 ? sqrt(difference / size) : 0;
}

bool lathe_outputs_same(const lathe_outputs *a, const lathe_outputs *b, int index, int64_t rows,
                        int64_t all_rows) {
    const lathe_step_value *v = a->list[index].value;
    size_t bytes = v->bytes;
    if (v->shape.count > 0 && v->shape.dim[0] == all_rows)
        bytes = bytes / (size_t)all_rows * (size_t)rows;
    for (int rank = 0; rank < a->ranks; ++rank)
        if (memcmp(a->list[index].data[rank], b->list[index].data[rank], bytes) != 0)
            return false;
    return true;
}
