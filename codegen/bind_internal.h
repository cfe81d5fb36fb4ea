/* SPDX-License-Identifier: Apache-2.0
 * Shared by bind.c (arguments), bind_constants.c (constants) and bind_kernel.c (kernels). */
#ifndef LATHE_BIND_INTERNAL_H
#define LATHE_BIND_INTERNAL_H

#include "bind.h"

typedef struct {
    lathe_plan *plan;
    lathe_arena *arena;
    const lathe_variant *variant;
    const lathe_launch *launch;
    const lathe_provider *provider;
    const lathe_state *states;
    lathe_bound *constants;
    const char **blame; /* per constant: what gave it its value, for messages */
    lathe_binding *args;
    lathe_node arch; /* what the spec's functions are told of the machine and the launch */
} lathe_binder;

_Noreturn void lathe_bind_fail(const lathe_binder *b, lathe_where where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The covered part of that kind, or NULL. `port` is "KIND.NAME"; *name receives NAME. */
const lathe_part *lathe_bind_part(const lathe_binder *b, const char *port, const char **name);

/* Options, attributes and defaults. */
void lathe_bind_given(lathe_binder *b);
/* Constants found in the shape of argument `i`, as bound. */
void lathe_bind_unify(lathe_binder *b, size_t i);
/* `has` constants, and zeros for constants that only unbound arguments have. */
void lathe_bind_settle(lathe_binder *b);
/* Fails where a constant is still unknown. */
void lathe_bind_complete(const lathe_binder *b);

/* The function's result for the constants known so far. */
lathe_node lathe_bind_call(const lathe_binder *b, const lathe_node *function,
                           const lathe_bound *constants, const char *what);

/* Finds or makes the kernel; completes the shapes of `args`. */
size_t lathe_bind_kernel(lathe_binder *b);

#endif
