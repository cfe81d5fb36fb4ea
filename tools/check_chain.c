/* SPDX-License-Identifier: Apache-2.0
 * The whole step by references alone: what one launch's reference computes, rounded to the buffer's
 * type, is what the next one reads. Choices that rounding decides follow the device; where they
 * differ they are listed. More passes with relative noise of 2^-21 on every matrix product measure
 * how far two correct implementations may lie apart. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_state.h"

/* One quantised element on the other side of a tie moves a row by ten times what all other rounding
 * does, and a draw of the jitter moves one or none: one draw says little. */
#define DRAWS 4

typedef struct {
    lathe_check_state *c;
    lathe_image *state[LATHE_REF_RANKS];
    void **mail[LATHE_REF_RANKS]; /* per mailbox: what the rank contributed last */
    double jitter;
    uint64_t draw; /* of the jitter */
    double *worst; /* per buffer: largest distance from the device's values */
    int *worst_at; /* the launch where it was */
    lathe_ref ref;
} chain;

static bool is_real(lathe_scalar t) {
    return t == LATHE_SCALAR_BF16 || t == LATHE_SCALAR_F32 || t == LATHE_SCALAR_F64;
}

static bool writes(const lathe_step_value *v) {
    if (!v->buffer)
        return lathe_check_publishes(v);
    return v->arg->dir == LATHE_DIR_OUT || v->arg->dir == LATHE_DIR_INOUT;
}

/* A rank's contribution to an exchange, as large as the mailbox allows. */
static void *find_mail(chain *h, int rank, const lathe_step_value *v) {
    const lathe_step_table *t = lathe_engine_table(h->c->options->engines[rank]);
    void **place = &h->mail[rank][v->mailbox - t->mailboxes];
    if (!*place)
        *place = malloc((size_t)v->mailbox->bytes);
    return *place;
}

/* The chain's own contents of a buffer: what the step began with, else NaN. */
static void *find_state(chain *h, int rank, const lathe_step_value *v) {
    lathe_check_state *c = h->c;
    if (v->carried)
        return find_mail(h, rank, v);
    if (v->buffer->lifetime == LATHE_LIFETIME_WEIGHT)
        return lathe_image_read(c->weights[rank], v->buffer, v->layer, NULL);
    void *copy = lathe_image_find(h->state[rank], v->buffer, v->layer);
    if (copy)
        return copy;
    size_t bytes = 0;
    copy = lathe_image_make(h->state[rank], v->buffer, v->layer, 0xff, &bytes);
    const void *start = lathe_image_find(c->start[rank], v->buffer, v->layer);
    if (copy && start)
        memcpy(copy, start, bytes);
    return copy;
}

static void free_outputs(lathe_ref_value *values, int count) {
    for (int i = 0; values && i < count; ++i)
        free(values[i].out);
    free(values);
}

/* Inputs from the chain's state, choices from what the device wrote. */
static lathe_status bind_values(chain *h, int index, lathe_ref_value *values) {
    lathe_check_state *c = h->c;
    for (int rank = 0; rank < c->ranks; ++rank) {
        const lathe_step_launch *l = &c->launches[rank][index];
        h->ref.values[rank] = values + rank * l->value_count;
        for (int i = 0; i < l->value_count; ++i) {
            const lathe_step_value *v = &l->values[i];
            lathe_ref_value *to = &h->ref.values[rank][i];
            if (!(v->buffer || v->carried) || v->arg->dir == LATHE_DIR_WORKSPACE)
                continue;
            to->before = find_state(h, rank, v);
            to->after = c->saved[index].values[rank * l->value_count + i];
            const int64_t count = lathe_step_shape_count(&v->shape, 0);
            if (writes(v))
                to->out = lathe_ref_new_output(count);
            if (!to->before || (writes(v) && !to->out))
                return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for %s",
                                          lathe_check_value_name(v));
        }
    }
    return LATHE_OK;
}

/* Rounds what the reference gave into the state. */
static void store_value(chain *h, int rank, const lathe_step_value *v, const double *out) {
    unsigned char *to = find_state(h, rank, v);
    const int64_t count = lathe_step_shape_count(&v->shape, 0);
    if (v->arg->dir != LATHE_DIR_INOUT)
        memset(to, 0xff, v->bytes);
    for (int64_t i = 0; i < count; ++i)
        if (!lathe_ref_is_unset(out[i]))
            lathe_compare_store(v->arg->dtype, to, i, out[i]);
}

/* How far the device's values are from the chain's, for the list. */
static void note_distance(chain *h, int index, const lathe_step_value *v,
                          const lathe_ref_value *r) {
    const int b = v->buffer ? lathe_step_table_find_buffer(h->c->table, v->buffer->name) : -1;
    if (b < 0 || !h->worst || !r->after || !is_real(v->arg->dtype))
        return;
    const lathe_comparison q = lathe_compare(LATHE_RULE_STEP, v->arg->dtype, r->out, r->after,
                                             lathe_step_shape_count(&v->shape, 0), 0);
    const double d = q.wrong ? (double)INFINITY : q.relative;
    if (d >= h->worst[b]) {
        h->worst[b] = d;
        h->worst_at[b] = index;
    }
}

static void list_flips(chain *h, const lathe_step_launch *l) {
    FILE *out = h->c->options->out;
    if (h->jitter != 0)
        return;
    h->c->result->flips += h->ref.flip_count;
    for (int i = 0; out && i < h->ref.flip_count && i < LATHE_REF_FLIPS; ++i)
        fprintf(out, "    flip: L%02d %s, rank %d, row %lld: scores %.3g ulp apart\n", l->layer,
                l->kernel->name, h->ref.flips[i].rank, (long long)h->ref.flips[i].row,
                h->ref.flips[i].ulps);
}

static lathe_status finish_launch(chain *h, int index) {
    lathe_check_state *c = h->c;
    if (!lathe_ref_call(&h->ref))
        return lathe_check_refuse(c, LATHE_UNSUPPORTED, "reference of %s: %s",
                                  c->launches[0][index].kernel->provider, h->ref.message);
    for (int rank = 0; rank < c->ranks; ++rank) {
        const lathe_step_launch *l = &c->launches[rank][index];
        for (int i = 0; i < l->value_count; ++i) {
            const lathe_ref_value *r = &h->ref.values[rank][i];
            if (!r->out)
                continue;
            store_value(h, rank, &l->values[i], r->out);
            note_distance(h, index, &l->values[i], r);
        }
    }
    list_flips(h, &c->launches[0][index]);
    return LATHE_OK;
}

static lathe_status run_launch(chain *h, int index) {
    lathe_check_state *c = h->c;
    const lathe_step_launch *l = &c->launches[0][index];
    const int count = c->ranks * l->value_count;
    if (!l->kernel)
        return LATHE_OK;
    lathe_ref_value *values = calloc((size_t)count + 1, sizeof *values);
    if (!values)
        return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for a reference");
    lathe_ref_begin(&h->ref, l, c->ranks,
                    (c->options->seed + h->draw * 0x100000000u) * 0x9e3779b9u + (uint64_t)index);
    h->ref.jitter = h->jitter;
    h->ref.follow = true;
    lathe_status status = bind_values(h, index, values);
    if (status == LATHE_OK)
        status = finish_launch(h, index);
    free_outputs(values, count);
    return status;
}

static lathe_status run_chain(chain *h) {
    for (int rank = 0; rank < h->c->ranks; ++rank) {
        h->state[rank] = lathe_image_create(h->c->options->engines[rank]);
        h->mail[rank] = calloc((size_t)h->c->table->mailbox_count + 1, sizeof *h->mail[rank]);
        if (!h->state[rank] || !h->mail[rank])
            return lathe_check_refuse(h->c, LATHE_NO_MEMORY, "no memory for a reference");
    }
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i < h->c->launch_count; ++i)
        status = run_launch(h, i);
    return status;
}

static void free_chain(chain *h) {
    for (int rank = 0; rank < h->c->ranks; ++rank)
        lathe_image_destroy(h->state[rank]);
    for (int rank = 0; rank < h->c->ranks; ++rank) {
        for (int m = 0; h->mail[rank] && m < h->c->table->mailbox_count; ++m)
            free(h->mail[rank][m]);
        free(h->mail[rank]);
    }
    free(h->worst);
    free(h->worst_at);
}

/* The farthest that a jittered chain comes to lie from the plain one. */
static double find_noise(const chain *h, const chain *noisy, int rank, const lathe_step_value *v) {
    const void *ours = lathe_image_find(h->state[rank], v->buffer, v->layer);
    double noise = 0;
    for (int d = 0; d < DRAWS; ++d) {
        const void *theirs = lathe_image_find(noisy[d].state[rank], v->buffer, v->layer);
        if (ours && theirs)
            noise = fmax(noise, lathe_compare_arrays(v->arg->dtype, ours, theirs,
                                                     lathe_step_shape_count(&v->shape, 0)));
    }
    return noise;
}

/* One output of the step: the device against the chain, by the noise that the chains show. */
static void judge_output(const chain *h, const chain *noisy, int rank, const lathe_step_value *v) {
    const lathe_check_state *c = h->c;
    const int64_t count = lathe_step_shape_count(&v->shape, 0);
    const void *device = lathe_image_find(c->end[rank], v->buffer, v->layer);
    const void *ours = lathe_image_find(h->state[rank], v->buffer, v->layer);
    char name[LATHE_NAMED_BYTES];
    lathe_named_format(v->buffer->name, v->layer, name, sizeof name);
    if (!device || !ours)
        return;
    const double distance = lathe_compare_arrays(v->arg->dtype, ours, device, count);
    const double noise = find_noise(h, noisy, rank, v);
    if (!is_real(v->arg->dtype)) {
        if (c->options->out && distance != 0)
            fprintf(c->options->out, "%-12s %-34s differs from the chained reference's\n",
                    "whole step", name);
        return;
    }
    const double wide = LATHE_STEP_NOISE_FACTOR * fmax(noise, c->options->noise);
    const double allowed = fmax(LATHE_STEP_TOLERANCE, wide); /* line 3 */
    const bool pass = distance <= allowed;
    c->result->failed += !pass;
    c->result->noise = fmax(c->result->noise, noise);
    c->result->worst = pass ? fmax(c->result->worst, distance) : (double)INFINITY;
    if (c->options->out && !(c->options->failures_only && pass))
        fprintf(c->options->out, "%-12s %-34s %-30s %.1e (%.1e)%*s %s\n", "whole step", name,
                "chained reference", distance, allowed, 15, "", pass ? "ok" : "FAILED");
}

/* Whether no later launch writes the value again. */
static bool is_last(const lathe_check_state *c, int rank, int index, const lathe_step_value *v) {
    for (int i = index + 1; i < c->launch_count; ++i)
        for (int o = 0; o < c->launches[rank][i].value_count; ++o) {
            const lathe_step_value *other = &c->launches[rank][i].values[o];
            if (writes(other) && other->address == v->address)
                return false;
        }
    return true;
}

static void judge_outputs(const chain *h, const chain *noisy) {
    const lathe_check_state *c = h->c;
    for (int rank = 0; rank < c->ranks; ++rank)
        for (int i = 0; i < c->launch_count; ++i)
            for (int v = 0; v < c->launches[rank][i].value_count; ++v) {
                const lathe_step_value *value = &c->launches[rank][i].values[v];
                if (value->buffer && writes(value) &&
                    value->buffer->lifetime == LATHE_LIFETIME_OUTPUT && is_last(c, rank, i, value))
                    judge_output(h, noisy, rank, value);
            }
}

static void list_distances(const chain *h) {
    const lathe_check_state *c = h->c;
    if (!c->options->out || c->options->failures_only)
        return;
    for (int b = 0; b < c->table->buffer_count; ++b) {
        const lathe_step_buffer *buffer = &c->table->buffers[b];
        if (h->worst_at[b] >= 0 && buffer->lifetime == LATHE_LIFETIME_SCRATCH)
            fprintf(c->options->out, "%-12s %-34s %-30s %.1e at worst, in L%02d\n", "within it",
                    buffer->name, "chained reference", h->worst[b],
                    c->launches[0][h->worst_at[b]].layer);
    }
}

static lathe_status run_draws(lathe_check_state *c, chain *noisy) {
    lathe_status status = LATHE_OK;
    for (uint64_t d = 0; d < DRAWS && status == LATHE_OK; ++d) {
        noisy[d] = (chain){.c = c, .jitter = LATHE_REF_NOISE, .draw = d};
        status = run_chain(&noisy[d]);
    }
    return status;
}

lathe_status lathe_check_chain(lathe_check_state *c) {
    chain plain = {.c = c};
    chain noisy[DRAWS] = {{0}};
    const size_t buffers = (size_t)c->table->buffer_count + 1;
    plain.worst = calloc(buffers, sizeof *plain.worst);
    plain.worst_at = malloc(buffers * sizeof *plain.worst_at);
    lathe_status status = LATHE_NO_MEMORY;
    if (plain.worst && plain.worst_at) {
        for (size_t b = 0; b < buffers; ++b)
            plain.worst_at[b] = -1;
        status = run_chain(&plain);
        if (status == LATHE_OK)
            status = run_draws(c, noisy);
    }
    if (status == LATHE_OK) {
        list_distances(&plain);
        judge_outputs(&plain, noisy);
    }
    free_chain(&plain);
    for (int d = 0; d < DRAWS; ++d)
        if (noisy[d].c)
            free_chain(&noisy[d]);
    return status;
}
