/* SPDX-License-Identifier: Apache-2.0
 * Values from files in place of the step's own. A value is named by the layer that wrote it; bf16
 * given for a value in the form k_partials goes to its first slice, zeros to the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_state.h"

void lathe_check_name(const lathe_step_value *value, int written, char *name, size_t size) {
    const int layer = value->layer >= 0 ? value->layer : written;
    lathe_named_format(lathe_check_value_name(value), layer, name, size);
}

int *lathe_check_written(const lathe_check_state *c, const lathe_step_value *v) {
    if (v->buffer)
        return &c->written[lathe_step_table_find_buffer(c->table, v->buffer->name)];
    return &c->written[c->table->buffer_count + v->mailbox->index];
}

void lathe_check_folder(int ranks, const char *folder, int rank, char *path, size_t size) {
    if (ranks == 1)
        snprintf(path, size, "%s", folder);
    else
        snprintf(path, size, "%s/r%d", folder, rank);
}

int lathe_check_writer(const lathe_step_launch *launch) {
    return launch->section == LATHE_SECTION_EPILOGUE ? LATHE_FROM_EPILOGUE : launch->layer;
}

/* Elements of one slice, where the value is partial sums and the file holds their sum. */
bool lathe_check_is_sum(const lathe_step_value *v, const lathe_npy *array) {
    return v->arg->form == LATHE_FORM_K_PARTIALS && v->arg->dtype == LATHE_SCALAR_F32 &&
           array->type == LATHE_NPY_U16 && array->count == lathe_step_shape_count(&v->shape, 1);
}

static lathe_status write_sum(lathe_check_state *c, int rank, const lathe_step_value *v,
                              const lathe_npy *array) {
    float *slices = calloc(v->bytes ? v->bytes : 1, 1);
    if (!slices)
        return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for %s", v->buffer->name);
    for (int64_t i = 0; i < array->count; ++i)
        slices[i] = (float)lathe_bf16_value(((const uint16_t *)array->data)[i]);
    const lathe_status status = lathe_engine_write(c->options->engines[rank], v->buffer->name,
                                                   v->layer, 0, slices, v->bytes);
    free(slices);
    return status == LATHE_OK ? status : lathe_check_refuse_engine(c, rank, status);
}

static lathe_status write_value(lathe_check_state *c, int rank, const lathe_step_value *v,
                                const char *name, const lathe_npy *array) {
    if (lathe_check_is_sum(v, array))
        return write_sum(c, rank, v, array);
    lathe_status status = lathe_named_check(
        name, array, v->arg->dtype, lathe_step_shape_count(&v->shape, 0), c->message, c->size);
    if (status != LATHE_OK)
        return status;
    if (v->carried)
        return lathe_check_write_slots(c, rank, v, array->data);
    status = lathe_engine_write(c->options->engines[rank], v->buffer->name, v->layer, 0,
                                array->data, v->bytes);
    return status == LATHE_OK ? status : lathe_check_refuse_engine(c, rank, status);
}

/* Inputs and caches were written before the step; weights are what the checkpoint says. */
bool lathe_check_may_override(const lathe_step_value *v) {
    if (lathe_check_receives(v))
        return true;
    if (!v->buffer || (v->arg->dir != LATHE_DIR_IN && v->arg->dir != LATHE_DIR_INOUT))
        return false;
    return v->buffer->lifetime == LATHE_LIFETIME_SCRATCH ||
           v->buffer->lifetime == LATHE_LIFETIME_PREPARED ||
           v->buffer->lifetime == LATHE_LIFETIME_OUTPUT;
}

/* The file of this rank, else the one that all ranks share. */
static lathe_status read_override(lathe_check_state *c, int rank, const char *name,
                                  lathe_npy *array) {
    char folder[4096];
    lathe_check_folder(c->ranks, c->options->inputs, rank, folder, sizeof folder);
    const lathe_status status = lathe_named_read(folder, name, array, c->message, c->size);
    if (status != LATHE_OK || array->data || c->ranks == 1)
        return status;
    return lathe_named_read(c->options->inputs, name, array, c->message, c->size);
}

static lathe_status override_value(lathe_check_state *c, const lathe_step_launch *const *launch,
                                   int index) {
    const lathe_step_value *v = &launch[0]->values[index];
    char name[LATHE_NAMED_BYTES];
    lathe_check_name(v, *lathe_check_written(c, v), name, sizeof name);
    lathe_status status = LATHE_OK;
    for (int rank = 0; status == LATHE_OK && rank < c->ranks; ++rank) {
        lathe_npy array;
        status = read_override(c, rank, name, &array);
        if (status != LATHE_OK || !array.data)
            continue;
        status = write_value(c, rank, &launch[rank]->values[index], name, &array);
        lathe_npy_destroy(&array);
        c->overridden = true;
    }
    return status;
}

lathe_status lathe_check_override(lathe_check_state *c, const lathe_step_launch *const *launch) {
    lathe_status status = LATHE_OK;
    for (int i = 0; c->options->inputs && status == LATHE_OK && i < launch[0]->value_count; ++i)
        if (lathe_check_may_override(&launch[0]->values[i]))
            status = override_value(c, launch, i);
    return status;
}
