/* SPDX-License-Identifier: Apache-2.0
 * Values that cross through a mailbox and exist in no buffer. An exchange carries one value at a
 * time, from its publisher to the one launch that receives it. */
#include "wire.h"

#include <string.h>

/* Whether the launch receives datum `d`. */
static bool receives(const lathe_plan *plan, const lathe_launch *launch, const lathe_binding *args,
                     size_t d) {
    for (size_t i = 0; i < launch->provider->arg_count; i++)
        if (args[i].receives && args[i].datum == &plan->model->data[d])
            return true;
    return false;
}

/* The exchange carries nothing but what this launch receives. */
static void check_free(const lathe_plan *plan, const lathe_launch *launch, size_t arg,
                       const lathe_binding *args, const lathe_state *states) {
    const lathe_arg *a = &launch->provider->args[arg];
    for (size_t d = 0; d < plan->model->datum_count; d++) {
        if (!states[d].exchange || strcmp(states[d].exchange, a->exchange) != 0 ||
            receives(plan, launch, args, d))
            continue;
        lathe_diag_fail(lathe_arena_diag(plan->arena), launch->parts[0]->where,
                        "%s: provider %s: argument '%s' (%s:%d) uses exchange \"%s\" while it "
                        "carries \"%s\" (%s:%d), %s, which no launch has received yet",
                        lathe_bind_describe(plan->arena, launch), launch->provider->name, a->name,
                        a->where.file, a->where.line, a->exchange, plan->model->data[d].name,
                        plan->model->data[d].where.file, plan->model->data[d].where.line,
                        lathe_bind_describe_state(plan->arena, &states[d]));
    }
}

/* One launch makes one exchange of a name: its epoch counts once. */
static void check_once(const lathe_plan *plan, const lathe_launch *launch, size_t arg,
                       const lathe_binding *args) {
    const lathe_arg *a = &launch->provider->args[arg];
    for (size_t i = 0; i < arg; i++) {
        const lathe_arg *other = &launch->provider->args[i];
        if (args[i].bound && other->exchange && strcmp(other->exchange, a->exchange) == 0)
            lathe_diag_fail(lathe_arena_diag(plan->arena), launch->parts[0]->where,
                            "%s: provider %s: arguments '%s' (%s:%d) and '%s' (%s:%d) are both "
                            "exchange \"%s\"; allowed: one of them bound",
                            lathe_bind_describe(plan->arena, launch), launch->provider->name,
                            other->name, other->where.file, other->where.line, a->name,
                            a->where.file, a->where.line, a->exchange);
    }
}

/* Writing a value again would leave the published one in its mailbox for good. */
static void check_overwritten(const lathe_plan *plan, const lathe_launch *launch, size_t arg,
                              const lathe_binding *args, const lathe_state *states) {
    const lathe_datum *datum = args[arg].datum;
    const lathe_dir dir = launch->provider->args[arg].dir;
    if (!datum || dir == LATHE_DIR_IN || args[arg].receives)
        return;
    const size_t d = (size_t)(datum - plan->model->data);
    if (states[d].exchange && !receives(plan, launch, args, d))
        lathe_diag_fail(lathe_arena_diag(plan->arena), launch->parts[0]->where,
                        "%s: provider %s: argument '%s' writes \"%s\" (%s:%d), which is %s and "
                        "which no launch has received yet",
                        lathe_bind_describe(plan->arena, launch), launch->provider->name,
                        launch->provider->args[arg].name, datum->name, datum->where.file,
                        datum->where.line, lathe_bind_describe_state(plan->arena, &states[d]));
}

void lathe_wire_exchange(const lathe_plan *plan, const lathe_launch *launch,
                         const lathe_binding *args, const lathe_state *states) {
    for (size_t i = 0; i < launch->provider->arg_count; i++) {
        if (!args[i].bound)
            continue;
        check_overwritten(plan, launch, i, args, states);
        if (launch->provider->args[i].dir != LATHE_DIR_MAILBOX)
            continue;
        check_free(plan, launch, i, args, states);
        check_once(plan, launch, i, args);
    }
}

void lathe_wire_received(const lathe_plan *plan, const lathe_state *states) {
    for (size_t d = 0; d < plan->model->datum_count; d++)
        if (states[d].exchange)
            lathe_diag_fail(lathe_arena_diag(plan->arena), plan->model->data[d].where,
                            "value \"%s\" is %s, and no launch of the step receives it",
                            plan->model->data[d].name,
                            lathe_bind_describe_state(plan->arena, &states[d]));
}
