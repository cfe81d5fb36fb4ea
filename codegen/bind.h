/* SPDX-License-Identifier: Apache-2.0
 * Binds one launch: its arguments to data, its constants to shapes, attributes and options. */
#ifndef LATHE_BIND_H
#define LATHE_BIND_H

#include "plan.h"

/* A use in one list of parts. */
typedef struct {
    const lathe_use *use;
    const lathe_provider *provider;
    const lathe_part **parts; /* in the list's order */
    size_t part_count;
    const char *list;
} lathe_launch;

/* What a value is at some point of the step. */
typedef struct {
    bool written;
    lathe_form form;
    lathe_dtype dtype;
    lathe_shape shape;
    const lathe_launch *producer; /* NULL: an input of the step */
    const char *exchange;         /* published there and not received yet; NULL: in a buffer */
    const lathe_launch *receiver; /* of what was published; it is written no more */
} lathe_state;

/* Finds or makes the kernel of a launch. `states` is indexed like the model's data; `args` receives
 * one binding per argument. `variant` is NULL in `prepare`. */
size_t lathe_bind(lathe_plan *plan, const lathe_variant *variant, const lathe_launch *launch,
                  const lathe_state *states, lathe_binding *args);

/* `rank_partials bf16 [8, 64] from provider ...`, for messages. */
const char *lathe_bind_describe_state(lathe_arena *arena, const lathe_state *state);
/* `part "in.norm"` or `parts "a", "b"`, for messages. */
const char *lathe_bind_describe(lathe_arena *arena, const lathe_launch *launch);

#endif
