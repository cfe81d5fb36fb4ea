/* SPDX-License-Identifier: Apache-2.0
 * Kernels: one for all launches with the same provider, constants and shapes; their tactics, costs
 * and workspaces. */
#include "bind_internal.h"

#include "text.h"

#include <inttypes.h>
#include <string.h>

/* All that tells one kernel from another. */
static const char *make_key(const lathe_binder *b) {
    lathe_text key = {.arena = b->arena};
    lathe_text_print(&key, "%s %" PRId64, b->provider->name, b->variant ? b->variant->rows : 0);
    for (size_t i = 0; i < b->provider->constant_count; i++)
        if (b->constants[i].known && b->provider->constants[i].real)
            lathe_text_print(&key, " %a", b->constants[i].real);
        else if (b->constants[i].known)
            lathe_text_print(&key, " %" PRId64, b->constants[i].integer);
    for (size_t i = 0; i < b->provider->arg_count; i++)
        lathe_text_print(&key, "|%s%s",
                         b->args[i].bound ? lathe_shape_text(b->arena, &b->args[i].shape) : "-",
                         b->args[i].publishes ? " out" : "");
    return lathe_text_string(&key);
}

static int64_t eval_dim(const lathe_binder *b, const lathe_arg *arg, int d,
                        const lathe_tactic *tactic) {
    const lathe_arg_dim *dim = &arg->dims[d];
    if (dim->constant >= 0)
        return tactic->constants[dim->constant].integer;
    if (dim->function.kind == LATHE_NODE_NIL)
        return dim->number;
    const lathe_node value = lathe_bind_call(b, &dim->function, tactic->constants, "shape");
    return lathe_tree_number(b->arena, arg->where,
                             lathe_arena_print(b->arena, "arg \"%s\": field 'shape'", arg->name),
                             &value, 0, LATHE_MAX_SIZE);
}

static lathe_shape eval_shape(const lathe_binder *b, const lathe_arg *arg,
                              const lathe_tactic *tactic) {
    lathe_shape shape = {.rank = arg->rank};
    for (int d = 0; d < arg->rank; d++)
        shape.dims[d] = eval_dim(b, arg, d, tactic);
    if (lathe_shape_count(&shape) > LATHE_MAX_SIZE)
        lathe_bind_fail(b, arg->where, "argument '%s' of shape %s is too large", arg->name,
                        lathe_shape_text(b->arena, &shape));
    return shape;
}

/* A bound argument's declared shape, with this tactic, must be that of what it is bound to. */
static void check_shape(const lathe_binder *b, size_t i, const lathe_tactic *tactic,
                        const lathe_shape *shape) {
    const lathe_arg *arg = &b->provider->args[i];
    const lathe_binding *binding = &b->args[i];
    lathe_shape tail = *shape;
    if (arg->form == LATHE_K_PARTIALS && arg->dir != LATHE_DIR_IN) {
        tail.rank--;
        memmove(tail.dims, tail.dims + 1, (size_t)tail.rank * sizeof *tail.dims);
    }
    if (!lathe_shape_equal(&tail, &binding->shape))
        lathe_bind_fail(b, b->launch->parts[0]->where,
                        "shapes do not meet: argument '%s' (%s:%d) is %s with tactic %s, bound to "
                        "\"%s\" %s (%s:%d)",
                        arg->name, arg->where.file, arg->where.line,
                        lathe_shape_text(b->arena, &tail), tactic->name, binding->datum->name,
                        lathe_shape_text(b->arena, &binding->shape), binding->datum->where.file,
                        binding->datum->where.line);
}

/* A tactic that gives a crossing buffer another shape than the preferred one would not fit its
 * consumers. */
static void pin_tactics(const lathe_binder *b, lathe_kernel *k) {
    size_t kept = 1;
    for (size_t t = 1; t < k->tactic_count; t++) {
        bool same = true;
        for (size_t i = 0; i < b->provider->arg_count; i++) {
            if (!b->args[i].bound || !b->args[i].datum)
                continue;
            const lathe_arg *arg = &b->provider->args[i];
            const lathe_shape first = eval_shape(b, arg, &k->tactics[0]);
            const lathe_shape other = eval_shape(b, arg, &k->tactics[t]);
            same = same && lathe_shape_equal(&first, &other);
        }
        if (same)
            k->tactics[kept++] = k->tactics[t];
    }
    k->tactic_count = kept;
}

static lathe_shape largest_workspace(const lathe_binder *b, const lathe_arg *arg,
                                     const lathe_kernel *k) {
    lathe_shape largest = {0};
    for (size_t t = 0; t < k->tactic_count; t++) {
        const lathe_shape shape = eval_shape(b, arg, &k->tactics[t]);
        if (t == 0 || lathe_shape_count(&shape) > lathe_shape_count(&largest))
            largest = shape;
    }
    return largest;
}

static void finish_args(const lathe_binder *b, lathe_kernel *k) {
    pin_tactics(b, k);
    for (size_t i = 0; i < b->provider->arg_count; i++) {
        const lathe_arg *arg = &b->provider->args[i];
        lathe_binding *binding = &b->args[i];
        if (arg->dir == LATHE_DIR_WORKSPACE) {
            binding->bound = true;
            binding->shape = largest_workspace(b, arg, k);
        } else if (binding->bound && binding->datum) {
            lathe_shape shape = eval_shape(b, arg, &k->tactics[0]);
            check_shape(b, i, &k->tactics[0], &shape);
            binding->shape = shape;
        } else if (arg->dir != LATHE_DIR_MAILBOX || arg->port_count) {
            binding->form = arg->form;
            binding->shape = (lathe_shape){.rank = arg->rank};
            for (int d = 0; d < arg->rank; d++)
                binding->shape.dims[d] = 0;
        }
    }
}

static void find_cost(const lathe_binder *b, lathe_kernel *k) {
    if (b->provider->collective)
        return;
    const lathe_node result =
        lathe_bind_call(b, &b->provider->cost, k->tactics[0].constants, "cost");
    const lathe_where where = b->provider->cost.where;
    const lathe_table *t = lathe_tree_returned(b->arena, where, "cost", &result);
    lathe_tree_check(b->arena, t, "bytes operations", false);
    k->bytes = lathe_tree_integer(b->arena, t, "bytes", 0, INT64_MAX);
    k->operations = lathe_tree_integer(b->arena, t, "operations", 0, INT64_MAX);
}

static int find_mailbox(lathe_plan *plan, const char *name, int64_t bytes) {
    for (size_t i = 0; i < plan->mailbox_count; i++)
        if (strcmp(plan->mailboxes[i].name, name) == 0) {
            if (bytes > plan->mailboxes[i].bytes)
                plan->mailboxes[i].bytes = bytes;
            return (int)i;
        }
    plan->mailboxes = lathe_arena_grow(plan->arena, plan->mailboxes, plan->mailbox_count,
                                       sizeof *plan->mailboxes);
    plan->mailboxes[plan->mailbox_count] = (lathe_mailbox){name, bytes};
    return (int)plan->mailbox_count++;
}

static void find_mailboxes(const lathe_binder *b, const lathe_kernel *k) {
    for (size_t i = 0; i < b->provider->arg_count; i++) {
        const lathe_arg *arg = &b->provider->args[i];
        if (arg->dir != LATHE_DIR_MAILBOX || !b->args[i].bound)
            continue;
        const lathe_node bytes = lathe_bind_call(b, &arg->bytes, k->tactics[0].constants, "bytes");
        const int64_t number =
            lathe_tree_number(b->arena, arg->where,
                              lathe_arena_print(b->arena, "arg \"%s\": field 'bytes'", arg->name),
                              &bytes, 1, LATHE_MAX_SIZE);
        b->args[i].mailbox = find_mailbox(b->plan, arg->exchange, number);
    }
}

static void name_parts(const lathe_binder *b, lathe_kernel *k) {
    k->part_count = b->launch->part_count;
    k->parts = lathe_arena_alloc(b->arena, k->part_count, sizeof *k->parts);
    for (size_t i = 0; i < k->part_count; i++)
        k->parts[i] = b->launch->parts[i]->name;
}

static bool leads(const lathe_binder *b) {
    return b->plan->deployment->invariant && b->variant &&
           b->variant == lathe_layout_lead(b->plan->deployment);
}

/* The tactic that the launch has in the leading variant; NULL where nothing is to be followed. */
static const lathe_tactic *find_lead(const lathe_binder *b) {
    const lathe_plan *plan = b->plan;
    for (size_t i = 0; !leads(b) && b->variant && i < plan->lead_count; i++)
        if (plan->leads[i].use == b->launch->use &&
            strcmp(plan->leads[i].list, b->launch->list) == 0 &&
            strcmp(plan->leads[i].part, b->launch->parts[0]->name) == 0)
            return plan->kernels[plan->leads[i].kernel].tactics;
    return NULL;
}

static void note_lead(const lathe_binder *b, size_t kernel) {
    lathe_plan *plan = b->plan;
    if (!leads(b) || b->provider->collective)
        return;
    plan->leads = lathe_arena_grow(plan->arena, plan->leads, plan->lead_count, sizeof *plan->leads);
    plan->leads[plan->lead_count++] =
        (lathe_lead){b->launch->use, b->launch->list, b->launch->parts[0]->name, kernel};
}

static void make_kernel(lathe_binder *b, lathe_kernel *k) {
    k->provider = b->provider;
    k->list = b->launch->list;
    k->variant = b->variant ? b->variant->name : "";
    k->rows = b->variant ? b->variant->rows : 0;
    k->constants = b->constants;
    name_parts(b, k);
    const lathe_choice choice = {.lua = b->plan->lua,
                                 .arch = b->plan->arch,
                                 .given = b->arch,
                                 .table = b->plan->table,
                                 .before = b->plan->before,
                                 .provider = b->provider,
                                 .constants = b->constants,
                                 .rows = k->rows,
                                 .invariant = b->plan->deployment->invariant && b->variant,
                                 .lead = find_lead(b),
                                 .where = b->launch->use->where,
                                 .launch = lathe_bind_describe(b->arena, b->launch)};
    k->tactics = lathe_tactic_choose(&choice, &k->tactic_count, &k->why);
    if (b->plan->list_choices)
        k->choices = lathe_tactic_list(&choice, k->tactics[0].name, b->plan->list_choices,
                                       &k->choice_count, &k->rule);
    finish_args(b, k);
    find_mailboxes(b, k);
    find_cost(b, k);
    k->args = lathe_arena_alloc(b->arena, b->provider->arg_count + 1, sizeof *k->args);
    memcpy(k->args, b->args, b->provider->arg_count * sizeof *k->args);
}

size_t lathe_bind_kernel(lathe_binder *b) {
    lathe_plan *plan = b->plan;
    const char *key = make_key(b);
    for (size_t i = 0; i < plan->kernel_count; i++) {
        if (strcmp(plan->kernels[i].name, key) != 0)
            continue;
        const lathe_kernel *k = &plan->kernels[i];
        for (size_t a = 0; a < b->provider->arg_count; a++) {
            b->args[a].bound = k->args[a].bound;
            b->args[a].form = k->args[a].form;
            b->args[a].shape = k->args[a].shape;
            b->args[a].mailbox = k->args[a].mailbox;
        }
        note_lead(b, i);
        return i;
    }
    lathe_kernel kernel = {.name = key}; /* replaced when all kernels are known */
    make_kernel(b, &kernel);
    plan->kernels =
        lathe_arena_grow(plan->arena, plan->kernels, plan->kernel_count, sizeof *plan->kernels);
    plan->kernels[plan->kernel_count] = kernel;
    note_lead(b, plan->kernel_count);
    return plan->kernel_count++;
}
