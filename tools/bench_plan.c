/* SPDX-License-Identifier: Apache-2.0
 * Rows and the graphs without them. */
#include "bench_plan.h"

#include <stdlib.h>
#include <string.h>

static bool is_work(const lathe_step_launch *l) {
    return l->kind == LATHE_OP_LAUNCH || l->kind == LATHE_OP_COLLECTIVE;
}

static const char *name_of(const lathe_step_launch *l) {
    return l->kind == LATHE_OP_COLLECTIVE ? l->collective->part : l->kernel->name;
}

/* The mailbox through which the launch publishes, or receives what is published; NULL: neither. */
static const lathe_step_mailbox *mail_of(const lathe_step_launch *l, bool publishes) {
    for (int i = 0; l->kind == LATHE_OP_LAUNCH && i < l->value_count; ++i) {
        const lathe_step_value *v = &l->values[i];
        if (v->mailbox && v->arg->carries && v->arg->publishes == publishes)
            return v->mailbox;
    }
    return NULL;
}

/* Whether the launch waits for what ranks send. */
static bool exchanges(const lathe_step_launch *l) {
    for (int i = 0; l->kind == LATHE_OP_LAUNCH && i < l->value_count; ++i)
        if (l->values[i].mailbox && !l->values[i].arg->publishes)
            return true;
    return l->kind == LATHE_OP_COLLECTIVE;
}

/* The launch whose value launch `i` receives: the last before it that publishes there. */
static int find_publisher(const lathe_bench_plan *p, int i) {
    const lathe_step_mailbox *m = mail_of(&p->launches[i], false);
    for (int k = i; m && k-- > 0;)
        if (mail_of(&p->launches[k], true) == m)
            return k;
    return -1;
}

static int find_row(const lathe_bench_plan *p, const lathe_step_launch *l) {
    for (int r = 0; r < p->row_count; ++r)
        if (p->rows[r].kernel == l->kernel && strcmp(p->rows[r].name, name_of(l)) == 0)
            return r;
    return -1;
}

/* The row of launch i, made where it is the first; its publisher's is made before. */
static int take_row(lathe_bench_plan *p, int i) {
    const lathe_step_launch *l = &p->launches[i];
    int row = find_row(p, l);
    if (row < 0) {
        row = p->row_count++;
        p->rows[row] = (lathe_bench_row){.name = name_of(l),
                                         .kernel = l->kernel,
                                         .tactic = l->tactic,
                                         .publishes = mail_of(l, true) != NULL,
                                         .receives = mail_of(l, false) != NULL,
                                         .exchange = exchanges(l)};
    }
    return row;
}

static void make_rows(lathe_bench_plan *p) {
    for (int i = 0; i < p->count; ++i) {
        p->row_of[i] = p->published_by[i] = -1;
        if (!is_work(&p->launches[i]))
            continue;
        p->published_by[i] = find_publisher(p, i);
        if (p->published_by[i] >= 0)
            take_row(p, p->published_by[i]);
        p->row_of[i] = take_row(p, i);
        ++p->rows[p->row_of[i]].launches;
    }
}

lathe_bench_plan *lathe_bench_plan_create(const lathe_step_table *table,
                                          const lathe_step_launch *launches, int count) {
    lathe_bench_plan *p = calloc(1, sizeof *p);
    const size_t n = (size_t)count + 1;
    if (!p)
        return NULL;
    *p = (lathe_bench_plan){.table = table,
                            .launches = launches,
                            .count = count,
                            .rows = calloc(n, sizeof *p->rows),
                            .row_of = calloc(n, sizeof *p->row_of),
                            .published_by = calloc(n, sizeof *p->published_by)};
    if (p->rows && p->row_of && p->published_by) {
        make_rows(p);
        return p;
    }
    lathe_bench_plan_destroy(p);
    return NULL;
}

void lathe_bench_plan_destroy(lathe_bench_plan *p) {
    if (!p)
        return;
    free(p->rows);
    free(p->row_of);
    free(p->published_by);
    free(p);
}

/* Nobody receives what is not sent; `whole`: nor sends what nobody receives. */
static void leave_out_mail(const lathe_bench_plan *p, bool whole, bool *left_out) {
    for (int i = 0; i < p->count; ++i) {
        const int from = p->published_by[i];
        if (from >= 0 && whole && left_out[i])
            left_out[from] = true;
        if (from >= 0 && left_out[from])
            left_out[i] = true;
    }
}

void lathe_bench_plan_without(const lathe_bench_plan *p, int row, bool whole, bool *left_out) {
    for (int i = 0; i < p->count; ++i)
        left_out[i] = p->row_of[i] == row;
    leave_out_mail(p, whole, left_out);
}

void lathe_bench_plan_up_to(const lathe_bench_plan *p, int row, bool whole, bool *left_out) {
    for (int i = 0; i < p->count; ++i)
        left_out[i] = p->row_of[i] > row;
    leave_out_mail(p, whole, left_out);
}

int lathe_bench_plan_without_layers(const lathe_bench_plan *p, int kind, bool *left_out) {
    int count = 0;
    memset(left_out, 0, (size_t)p->count * sizeof *left_out);
    for (int l = 1; l < p->table->layer_count; ++l)
        count += p->table->layer_kinds[l] == kind;
    const int leave = (count + 1) / 2;
    int gone = 0;
    for (int l = p->table->layer_count; l-- > 1 && gone < leave;) {
        if (p->table->layer_kinds[l] != kind)
            continue;
        ++gone;
        for (int i = 0; i < p->count; ++i)
            if (p->launches[i].section == LATHE_SECTION_LAYER && p->launches[i].layer == l)
                left_out[i] = true;
    }
    return gone;
}

/* Whether each stream holds a launch since the last fork or join. */
static void follow(bool *follows, const lathe_step_launch *l) {
    if (l->kind == LATHE_OP_LAUNCH) {
        follows[l->stream] = true;
        return;
    }
    follows[0] = false;
    follows[l->stream] = false;
}

int lathe_bench_plan_list(const lathe_bench_plan *p, const lathe_step_launch *from,
                          const bool *left_out, lathe_step_launch *to) {
    bool follows[LATHE_STREAMS] = {false};
    int count = 0;
    for (int i = 0; i < p->count; ++i) {
        if (left_out[i])
            continue;
        to[count] = from[i];
        if (from[i].kind == LATHE_OP_LAUNCH && !follows[from[i].stream])
            to[count].geometry.early = false;
        follow(follows, &from[i]);
        ++count;
    }
    return count;
}

static void take_longer(int *depth, int other) {
    if (other > *depth)
        *depth = other;
}

int lathe_bench_plan_nodes(const lathe_bench_plan *p, int kind) {
    int depth[LATHE_STREAMS] = {0}, layer = -1;
    for (int l = p->table->layer_count; l-- > 0;)
        if (p->table->layer_kinds[l] == kind)
            layer = l;
    for (int i = 0; i < p->count; ++i) {
        const lathe_step_launch *l = &p->launches[i];
        if (l->section != LATHE_SECTION_LAYER || l->layer != layer)
            continue;
        if (l->kind == LATHE_OP_FORK)
            take_longer(&depth[l->stream], depth[0]);
        else if (l->kind == LATHE_OP_JOIN)
            take_longer(&depth[0], depth[l->stream]);
        else
            ++depth[l->stream];
    }
    return depth[0];
}
