/* SPDX-License-Identifier: Apache-2.0
 * Order across streams and early launches. Two launches conflict where one writes what the other
 * touches; a conflict across streams is ordered by a fork or a join, and a list ends joined. */
#include "wire.h"

#include <string.h>

static void append(lathe_plan *plan, lathe_ops *ops, lathe_op op) {
    ops->ops = lathe_arena_grow(plan->arena, ops->ops, ops->count, sizeof *ops->ops);
    ops->ops[ops->count++] = op;
}

static bool writes(lathe_dir dir) {
    return dir != LATHE_DIR_IN;
}

static bool conflict(const lathe_plan *plan, const lathe_op *x, const lathe_op *y) {
    const lathe_provider *p = plan->kernels[x->kernel].provider;
    const lathe_provider *q = plan->kernels[y->kernel].provider;
    for (size_t i = 0; i < p->arg_count; i++)
        for (size_t j = 0; j < q->arg_count; j++) {
            const lathe_binding *a = &x->args[i], *b = &y->args[j];
            if (!writes(p->args[i].dir) && !writes(q->args[j].dir))
                continue;
            if (a->buffer >= 0 && a->buffer == b->buffer && a->previous == b->previous)
                return true;
            if (a->mailbox >= 0 && a->mailbox == b->mailbox)
                return true;
        }
    return false;
}

/* Whether `op` conflicts with a launch of `stream` since the last fork or join of that kind. */
static bool conflicts_since(const lathe_plan *plan, const lathe_ops *ops, const lathe_op *op,
                            int stream, lathe_op_kind mark) {
    for (size_t i = ops->count; i-- > 0 && ops->ops[i].kind != mark;)
        if (ops->ops[i].kind == LATHE_OP_LAUNCH && ops->ops[i].stream == stream &&
            conflict(plan, op, &ops->ops[i]))
            return true;
    return false;
}

/* Whether the side stream holds launches that are not joined. */
static bool is_forked(const lathe_ops *ops) {
    for (size_t i = ops->count; i-- > 0;)
        if (ops->ops[i].kind != LATHE_OP_LAUNCH)
            return ops->ops[i].kind == LATHE_OP_FORK;
    return false;
}

void lathe_wire_append(lathe_plan *plan, lathe_ops *ops, const lathe_op *launch) {
    const bool forked = is_forked(ops);
    if (launch->stream && (!forked || conflicts_since(plan, ops, launch, 0, LATHE_OP_FORK)))
        append(plan, ops, (lathe_op){.kind = LATHE_OP_FORK, .stream = 1});
    if (!launch->stream && forked && conflicts_since(plan, ops, launch, 1, LATHE_OP_JOIN))
        append(plan, ops, (lathe_op){.kind = LATHE_OP_JOIN, .stream = 1});
    append(plan, ops, *launch);
}

void lathe_wire_close(lathe_plan *plan, lathe_ops *ops) {
    if (is_forked(ops))
        append(plan, ops, (lathe_op){.kind = LATHE_OP_JOIN, .stream = 1});
}

static bool is_cooperative(const lathe_kernel *k) {
    for (size_t t = 0; t < k->tactic_count; t++)
        if (k->tactics[t].cooperative)
            return true;
    return false;
}

/* Whether `op` may overlap the end of `before`, which stands before it in its stream with nothing
 * between. */
static bool may_overlap(const lathe_plan *plan, const lathe_op *before, const lathe_op *op) {
    const lathe_kernel *k = &plan->kernels[op->kernel], *p = &plan->kernels[before->kernel];
    return k->provider->early && p->provider->triggers && !is_cooperative(k) && !is_cooperative(p);
}

/* Whether `op` writes what `reader` has as a settled argument; `ahead`: all of that before it lets
 * early successors begin. */
static bool unsettles(const lathe_plan *plan, const lathe_op *op, const lathe_op *reader,
                      bool *ahead) {
    const lathe_provider *p = plan->kernels[op->kernel].provider;
    const lathe_provider *q = plan->kernels[reader->kernel].provider;
    bool any = false;
    *ahead = true;
    for (size_t j = 0; j < q->arg_count; j++)
        for (size_t i = 0; q->args[j].settled && i < p->arg_count; i++)
            if (writes(p->args[i].dir) && reader->args[j].buffer >= 0 &&
                op->args[i].buffer == reader->args[j].buffer) {
                any = true;
                *ahead = *ahead && p->args[i].ahead;
            }
    return any;
}

/* Whether all that wrote the settled arguments of launch `at` is there when the launch begins
 * early: a launch between, in its stream, began only after everything before it had ended, or the
 * writer stands in its stream and had it written ahead. What the list before wrote counts as not
 * there. */
static bool is_settled(const lathe_plan *plan, const lathe_ops *ops, size_t at) {
    const lathe_op *op = &ops->ops[at];
    const lathe_provider *p = plan->kernels[op->kernel].provider;
    bool any = false, ahead;
    for (size_t i = 0; i < p->arg_count; i++)
        any = any || p->args[i].settled;
    for (size_t i = at; any && i-- > 0;) {
        const lathe_op *before = &ops->ops[i];
        if (before->kind != LATHE_OP_LAUNCH)
            continue;
        if (unsettles(plan, before, op, &ahead))
            return ahead && before->stream == op->stream;
        if (before->stream == op->stream && !before->early)
            return true;
    }
    return !any;
}

static void add_pair(lathe_plan *plan, const lathe_op *before, const lathe_op *op) {
    for (size_t i = 0; i < plan->early_count; i++)
        if (plan->early[i].kernel == op->kernel && plan->early[i].predecessor == before->kernel)
            return;
    plan->early =
        lathe_arena_grow(plan->arena, plan->early, plan->early_count, sizeof *plan->early);
    plan->early[plan->early_count++] = (lathe_early_pair){op->kernel, before->kernel, op->where};
}

/* Walks a list after `last` (the launch before it in the main stream, or NULL). Inside a list flags
 * are set; the first launch is only refused, since several layers may come before it. Returns the
 * list's last launch. */
static const lathe_op *walk(const lathe_plan *plan, lathe_ops *ops, const lathe_op *last) {
    const lathe_op *before[2] = {last, NULL};
    for (size_t i = 0; i < ops->count; i++) {
        lathe_op *op = &ops->ops[i];
        if (op->kind != LATHE_OP_LAUNCH) {
            before[0] = before[1] = NULL;
            continue;
        }
        const lathe_op *previous = before[op->stream];
        if (!previous || !may_overlap(plan, previous, op) || !is_settled(plan, ops, i))
            op->early = false;
        before[op->stream] = op;
    }
    return ops->count ? before[0] : last;
}

static void allow_all(lathe_ops *ops) {
    for (size_t i = 0; i < ops->count; i++)
        ops->ops[i].early = ops->ops[i].kind == LATHE_OP_LAUNCH;
}

static void collect_pairs(lathe_plan *plan, const lathe_ops *ops, const lathe_op **last) {
    const lathe_op *before[2] = {*last, NULL};
    for (size_t i = 0; i < ops->count; i++) {
        const lathe_op *op = &ops->ops[i];
        if (op->kind != LATHE_OP_LAUNCH) {
            before[0] = before[1] = NULL;
            continue;
        }
        if (op->early)
            add_pair(plan, before[op->stream], op);
        before[op->stream] = op;
    }
    if (ops->count)
        *last = before[0];
}

void lathe_wire_early(lathe_plan *plan) {
    const lathe_model *m = plan->model;
    for (size_t v = 0; v < plan->deployment->variant_count; v++) {
        lathe_variant_ops *variant = &plan->variants[v];
        allow_all(&variant->prologue);
        allow_all(&variant->epilogue);
        for (size_t k = 0; k < m->kind_count; k++)
            allow_all(&variant->kinds[k]);
        const lathe_op *last = walk(plan, &variant->prologue, NULL);
        for (size_t l = 0; l < m->layer_count; l++)
            last = walk(plan, &variant->kinds[m->layers[l]], last);
        (void)walk(plan, &variant->epilogue, last);
        last = NULL;
        collect_pairs(plan, &variant->prologue, &last);
        for (size_t l = 0; l < m->layer_count; l++)
            collect_pairs(plan, &variant->kinds[m->layers[l]], &last);
        collect_pairs(plan, &variant->epilogue, &last);
    }
}
