/* SPDX-License-Identifier: Apache-2.0
 * Checks one launch on its real inputs. Before it, outputs and free workspaces are poisoned, so
 * that an element that is not written or is read too early cannot pass; after it, inputs must be
 * unchanged, zeroed workspaces zero, and the rest of a larger buffer poison still. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_state.h"
#include "ranks.h"
#include "seconds.h"

#define POISON_REAL 0xff /* NaN in every floating type */
#define POISON_INTEGER 0xf5
#define UNCHANGED_LIMIT ((size_t)64 << 20) /* larger weights are not read a second time */

/* One argument on one rank. */
typedef struct {
    void *before;
    bool borrowed; /* `before` belongs to the image of weights */
    void *after;
    double *out;
} slot;

typedef struct {
    lathe_check_state *c;
    const lathe_step_launch *const *launch; /* per rank */
    int values;
    slot *slots; /* [rank][value] */
    lathe_check_row row;
    lathe_ref ref;
    lathe_ref_value *ref_values;
} trial;

static bool is_integer(lathe_scalar t) {
    return t == LATHE_SCALAR_I32 || t == LATHE_SCALAR_I64 || t == LATHE_SCALAR_U32 ||
           t == LATHE_SCALAR_U8;
}

static bool writes(const lathe_step_value *v) {
    return v->arg->dir == LATHE_DIR_OUT || v->arg->dir == LATHE_DIR_INOUT ||
           lathe_check_publishes(v);
}

/* Whether the launch also reads the memory that this argument writes. */
static bool is_aliased(const lathe_step_launch *l, const lathe_step_value *v) {
    for (int i = 0; i < l->value_count; ++i) {
        const lathe_step_value *o = &l->values[i];
        if (o != v && o->buffer && o->address == v->address && o->arg->dir != v->arg->dir)
            return true;
    }
    return false;
}

static lathe_status no_memory(lathe_check_state *c, const lathe_step_value *v) {
    return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for %s", lathe_check_value_name(v));
}

static lathe_status read_value(lathe_check_state *c, int rank, const lathe_step_value *v,
                               void **to) {
    *to = malloc(v->bytes ? v->bytes : 1);
    if (!*to)
        return no_memory(c, v);
    const lathe_status status =
        lathe_engine_read(c->options->engines[rank], v->buffer->name, v->layer, 0, *to, v->bytes);
    return status == LATHE_OK ? status : lathe_check_refuse_engine(c, rank, status);
}

static lathe_status fill_value(lathe_check_state *c, int rank, const lathe_step_value *v,
                               uint8_t byte) {
    lathe_device *d = lathe_engine_device(c->options->engines[rank]);
    const lathe_status status = d->ops->fill(d, v->address, byte, v->bytes);
    return status == LATHE_OK ? status : lathe_check_refuse(c, status, "%s", d->message);
}

static lathe_status prepare_value(trial *t, int rank, int index) {
    lathe_check_state *c = t->c;
    const lathe_step_value *v = &t->launch[rank]->values[index];
    slot *s = &t->slots[rank * t->values + index];
    if (lathe_check_receives(v))
        return lathe_check_read_slot(c, rank, rank, v, &s->before);
    if (!v->buffer)
        return LATHE_OK;
    if (v->arg->dir == LATHE_DIR_WORKSPACE)
        return v->buffer->zeroed ? LATHE_OK : fill_value(c, rank, v, POISON_REAL);
    if (v->arg->dir == LATHE_DIR_IN && v->buffer->lifetime == LATHE_LIFETIME_WEIGHT) {
        s->before = lathe_image_read(c->weights[rank], v->buffer, v->layer, NULL);
        s->borrowed = true;
        return s->before ? LATHE_OK : no_memory(c, v);
    }
    const bool aliased = is_aliased(t->launch[rank], v);
    if (v->arg->dir != LATHE_DIR_OUT || aliased)
        return read_value(c, rank, v, &s->before);
    return fill_value(c, rank, v, is_integer(v->arg->dtype) ? POISON_INTEGER : POISON_REAL);
}

static lathe_status prepare_values(trial *t) {
    lathe_status status = LATHE_OK;
    for (int rank = 0; rank < t->c->ranks; ++rank)
        for (int i = 0; status == LATHE_OK && i < t->values; ++i) {
            status = prepare_value(t, rank, i);
            if (status == LATHE_OK)
                status = lathe_check_rest_fill(t->c, rank, &t->launch[rank]->values[i]);
        }
    return status;
}

static lathe_status launch_all(trial *t) {
    lathe_check_state *c = t->c;
    for (int rank = 0; rank < c->ranks; ++rank) {
        const lathe_status status = lathe_engine_launch(c->options->engines[rank], t->launch[rank]);
        if (status != LATHE_OK)
            return lathe_check_refuse_engine(c, rank, status);
    }
    int rank = 0;
    const lathe_status status = lathe_ranks_synchronize(c->options->engines, c->ranks, &rank);
    if (status == LATHE_OK)
        return status;
    return lathe_check_refuse(c, status, "%s: rank %d: %s", t->launch[0]->kernel->name, rank,
                              lathe_message(c->options->engines[rank]));
}

static void note(trial *t, const char *what, const lathe_step_value *v, int rank) {
    const size_t n = strlen(t->row.note);
    snprintf(t->row.note + n, sizeof t->row.note - n, "%s%s of rank %d %s", n ? "; " : "",
             lathe_check_value_name(v), rank, what);
    t->row.pass = false;
}

static bool is_zero(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; ++i)
        if (bytes[i])
            return false;
    return true;
}

/* What a publisher sent lies at every rank; a kernel that receives leaves its slots empty. */
static lathe_status collect_mail(trial *t, int rank, const lathe_step_value *v, slot *s) {
    lathe_check_state *c = t->c;
    if (lathe_check_publishes(v)) {
        int owner = rank;
        lathe_status status = lathe_check_read_slot(c, rank, rank, v, &s->after);
        if (status == LATHE_OK)
            status = lathe_check_arrival(c, rank, v, s->after, &owner);
        if (owner != rank)
            note(t, "did not arrive everywhere", v, rank);
        return status;
    }
    bool empty = true;
    const lathe_status status = lathe_check_empty(c, rank, v, &empty);
    if (!empty)
        note(t, "leaves packets in its mailbox", v, rank);
    return status;
}

static lathe_status collect_value(trial *t, int rank, int index) {
    lathe_check_state *c = t->c;
    const lathe_step_value *v = &t->launch[rank]->values[index];
    slot *s = &t->slots[rank * t->values + index];
    if (v->mailbox)
        return collect_mail(t, rank, v, s);
    if (!v->buffer)
        return LATHE_OK;
    if (v->arg->dir == LATHE_DIR_WORKSPACE ? !v->buffer->zeroed
                                           : s->borrowed && v->bytes > UNCHANGED_LIMIT)
        return LATHE_OK;
    const lathe_status status = read_value(c, rank, v, &s->after);
    if (status != LATHE_OK)
        return status;
    if (v->arg->dir == LATHE_DIR_WORKSPACE) {
        if (!is_zero(s->after, v->bytes))
            note(t, "is not left zero", v, rank);
    } else if (v->arg->dir == LATHE_DIR_IN && !is_aliased(t->launch[rank], v)) {
        if (memcmp(s->before, s->after, v->bytes) != 0)
            note(t, "changed though it is an input", v, rank);
        free(s->after);
        s->after = NULL;
    }
    return LATHE_OK;
}

static lathe_status check_rest(trial *t, int rank, const lathe_step_value *v) {
    bool holds;
    const lathe_status status = lathe_check_rest_holds(t->c, rank, v, &holds);
    if (status == LATHE_OK && !holds)
        note(t, "is written past its end", v, rank);
    return status;
}

static lathe_status collect_values(trial *t) {
    lathe_status status = LATHE_OK;
    for (int rank = 0; rank < t->c->ranks; ++rank)
        for (int i = 0; status == LATHE_OK && i < t->values; ++i) {
            status = collect_value(t, rank, i);
            if (status == LATHE_OK)
                status = check_rest(t, rank, &t->launch[rank]->values[i]);
        }
    return status;
}

static lathe_status call_reference(trial *t, int index) {
    lathe_check_state *c = t->c;
    lathe_ref_begin(&t->ref, t->launch[0], c->ranks, c->options->seed + (uint64_t)(index + 1));
    lathe_ref_sample(&t->ref);
    for (int rank = 0; rank < c->ranks; ++rank) {
        t->ref.values[rank] = t->ref_values + rank * t->values;
        for (int i = 0; i < t->values; ++i) {
            const lathe_step_value *v = &t->launch[rank]->values[i];
            slot *s = &t->slots[rank * t->values + i];
            if (v->address && writes(v)) {
                const int64_t count = lathe_step_shape_count(&v->shape, 0);
                s->out = lathe_ref_new_output(count);
                if (!s->out)
                    return no_memory(c, v);
            }
            t->ref.values[rank][i] = (lathe_ref_value){s->before, s->after, s->out};
        }
    }
    if (!lathe_ref_call(&t->ref)) {
        snprintf(t->row.note, sizeof t->row.note, "reference of %s: %s",
                 t->launch[0]->kernel->provider, t->ref.message);
        t->row.pass = false;
    }
    return LATHE_OK;
}

/* A launch that covers several parts, or sums partial sums itself, rounds to bf16 where nothing can
 * be read back. */
static bool is_fused(const lathe_step_launch *l) {
    if (l->kernel->part_count > 1)
        return true;
    for (int i = 0; i < l->value_count; ++i)
        if (l->values[i].arg->form != LATHE_FORM_WHOLE &&
            (lathe_check_receives(&l->values[i]) ||
             (l->values[i].arg->dir == LATHE_DIR_IN && l->values[i].buffer)))
            return true;
    return false;
}

/* Elements of an inout argument that the reference left unset and that changed nevertheless. */
static int64_t count_changed(const trial *t, const lathe_step_value *v, const slot *s) {
    const size_t item = lathe_scalar_bytes(v->arg->dtype);
    const int64_t count = lathe_step_shape_count(&v->shape, 0);
    int64_t changed = 0;
    if (v->arg->dir != LATHE_DIR_INOUT || t->ref.block != 1)
        return 0;
    for (int64_t i = 0; i < count; ++i)
        if (lathe_ref_is_unset(s->out[i]) &&
            memcmp((const char *)s->before + (size_t)i * item,
                   (const char *)s->after + (size_t)i * item, item) != 0)
            ++changed;
    return changed;
}

/* Marks the bytes whose value the reference defines. With sampled columns a row counts as a whole:
 * it is defined where any of its columns is. */
static void mark_row(const trial *t, const double *out, unsigned char *mask, int64_t columns,
                     size_t item) {
    bool any = false;
    for (int64_t i = 0; t->ref.block != 1 && i < columns && !any; ++i)
        any = !lathe_ref_is_unset(out[i]);
    for (int64_t i = 0; i < columns; ++i)
        if (any || !lathe_ref_is_unset(out[i]))
            memset(mask + (size_t)i * item, 1, item);
}

/* A sum is defined where what every rank put into it is: the library adds up padding rows as well.
 */
static void keep_defined(const trial *t, unsigned char *mask, size_t bytes) {
    for (int rank = 0; rank < t->c->ranks; ++rank) {
        const lathe_step_value *from = &t->launch[rank]->values[0];
        const unsigned char *defined =
            lathe_image_find(t->c->defined[rank], from->buffer, from->layer);
        for (size_t i = 0; defined && i < bytes; ++i)
            mask[i] &= defined[i];
    }
}

static void mark_defined(trial *t, int rank, const lathe_step_value *v, const slot *s) {
    const size_t item = lathe_scalar_bytes(v->arg->dtype);
    const int64_t count = lathe_step_shape_count(&v->shape, 0);
    const int64_t columns = v->shape.count ? v->shape.dim[v->shape.count - 1] : 1;
    size_t bytes = 0;
    unsigned char *mask = lathe_image_make(t->c->defined[rank], v->buffer, v->layer, 0, &bytes);
    if (!mask || v->arg->dir != LATHE_DIR_OUT)
        return;
    memset(mask, 0, bytes);
    for (int64_t i = 0; i < count; i += columns)
        mark_row(t, s->out + i, mask + (size_t)i * item, columns, item);
    const lathe_step_collective *collective = t->launch[rank]->collective;
    if (collective && !collective->gather)
        keep_defined(t, mask, (size_t)count * item);
}

static void compare_value(trial *t, int rank, int index) {
    const lathe_step_value *v = &t->launch[rank]->values[index];
    const slot *s = &t->slots[rank * t->values + index];
    if (!s->out || !s->after)
        return;
    lathe_check_output o = {.value = v, .rank = rank};
    const lathe_rule rule = lathe_compare_rule(v->arg->dtype, is_fused(t->launch[rank]));
    const int64_t count = lathe_step_shape_count(&v->shape, 0);
    const int64_t width = v->shape.count > 1 ? v->shape.dim[v->shape.count - 1] : count;
    o.comparison = lathe_compare(rule, v->arg->dtype, s->out, s->after, count, width);
    o.turned = lathe_check_ties(&t->ref, rank, index, width, &o.comparison);
    t->c->result->turned += o.turned;
    o.changed = count_changed(t, v, s);
    t->row.pass = t->row.pass && o.comparison.pass && o.changed == 0;
    if (t->row.output_count < LATHE_CHECK_OUTPUTS)
        t->row.outputs[t->row.output_count++] = o;
    if (v->buffer && v->buffer->lifetime != LATHE_LIFETIME_KV)
        mark_defined(t, rank, v, s);
}

/* Replicated values are the same bits on every rank. */
static void compare_ranks(trial *t, int index) {
    const int rank = lathe_check_alike(&t->ref, index, &t->c->result->alike);
    if (rank > 0)
        note(t, "differs in bits from rank 0's", &t->launch[rank]->values[index], rank);
}

static lathe_status dump_value(trial *t, int rank, int index) {
    const lathe_step_value *v = &t->launch[rank]->values[index];
    const slot *s = &t->slots[rank * t->values + index];
    char name[LATHE_NAMED_BYTES];
    char folder[4096];
    if (!t->c->options->dump || !writes(v) || !s->after)
        return LATHE_OK;
    lathe_check_folder(t->c->ranks, t->c->options->dump, rank, folder, sizeof folder);
    lathe_check_name(v, lathe_check_writer(t->launch[rank]), name, sizeof name);
    return lathe_named_write(folder, name, v->arg->dtype, &v->shape, s->after, t->c->message,
                             t->c->size);
}

/* Keeps what the launch wrote; caches are compared at the end of the step. */
static void keep_values(trial *t, int index) {
    lathe_check_state *c = t->c;
    for (int rank = 0; rank < c->ranks; ++rank)
        for (int i = 0; i < t->values; ++i) {
            const lathe_step_value *v = &t->launch[rank]->values[i];
            slot *s = &t->slots[rank * t->values + i];
            if (!v->address || !writes(v))
                continue;
            *lathe_check_written(c, v) = lathe_check_writer(t->launch[rank]);
            if (index >= 0 && c->saved &&
                !(v->buffer && v->buffer->lifetime == LATHE_LIFETIME_KV)) {
                c->saved[index].values[rank * t->values + i] = s->after;
                s->after = NULL;
            }
        }
}

/* Seconds of the parts of a trial: reading before, launch and reading after, reference, comparison.
 */
static void print_times(const trial *t, const double *at) {
    if (t->c->options->timing)
        fprintf(stderr, "%8.2f %8.2f %8.2f %8.2f s  %s\n", at[1] - at[0], at[2] - at[1],
                at[3] - at[2], lathe_seconds() - at[3], t->launch[0]->kernel->name);
}

static lathe_status run_trial(trial *t, int index) {
    double at[4] = {lathe_seconds()};
    lathe_status status = prepare_values(t);
    at[1] = lathe_seconds();
    if (status == LATHE_OK)
        status = launch_all(t);
    if (status == LATHE_OK)
        status = collect_values(t);
    at[2] = lathe_seconds();
    if (status == LATHE_OK)
        status = call_reference(t, index);
    at[3] = lathe_seconds();
    if (status != LATHE_OK)
        return status;
    for (int rank = 0; !t->ref.failed && rank < t->c->ranks; ++rank)
        for (int i = 0; i < t->values; ++i)
            compare_value(t, rank, i);
    for (int i = 0; !t->ref.failed && i < t->values; ++i)
        compare_ranks(t, i);
    for (int rank = 0; rank < t->c->ranks; ++rank)
        for (int i = 0; status == LATHE_OK && i < t->values; ++i)
            status = dump_value(t, rank, i);
    ++t->c->result->launches;
    t->c->result->failed += !t->row.pass;
    lathe_check_print_row(t->c, &t->row);
    print_times(t, at);
    keep_values(t, index);
    return status;
}

static void free_trial(trial *t) {
    for (int i = 0; t->slots && i < t->c->ranks * t->values; ++i) {
        if (!t->slots[i].borrowed)
            free(t->slots[i].before);
        free(t->slots[i].after);
        free(t->slots[i].out);
    }
    free(t->slots);
    free(t->ref_values);
    free(t);
}

lathe_status lathe_check_launch(lathe_check_state *c, const lathe_step_launch *const *launch,
                                int index) {
    trial *t = calloc(1, sizeof *t);
    if (!t)
        return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for a launch");
    t->c = c;
    t->launch = launch;
    t->values = launch[0]->value_count;
    t->row.launch = launch[0];
    t->row.pass = true;
    t->row.ref = &t->ref;
    const size_t count = (size_t)(c->ranks * t->values) + 1;
    t->slots = calloc(count, sizeof *t->slots);
    t->ref_values = calloc(count, sizeof *t->ref_values);
    lathe_status status = LATHE_NO_MEMORY;
    if (t->slots && t->ref_values)
        status = run_trial(t, index);
    else
        lathe_check_refuse(c, status, "no memory for a launch");
    free_trial(t);
    return status;
}
