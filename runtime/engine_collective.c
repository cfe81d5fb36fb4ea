/* SPDX-License-Identifier: Apache-2.0
 * Owns: whether a step moves data by a library, and the communicator for it. */
#include "engine.h"

#define TIMEOUT_NS 2000000000ull
/* A kernel that waits at a mailbox gives up before the library is given up on: it knows the rank.
 */
#define BEHIND_MAILBOXES_NS 200000000ull

static bool any_in(const lathe_step_ops *ops) {
    for (int i = 0; i < ops->count; ++i)
        if (ops->ops[i].kind == LATHE_OP_COLLECTIVE)
            return true;
    return false;
}

bool lathe_engine_has_collectives(const lathe_engine *e) {
    const lathe_step_table *t = e->table;
    for (int v = 0; v < t->variant_count; ++v) {
        if (any_in(&t->variants[v].prologue) || any_in(&t->variants[v].epilogue))
            return true;
        for (int k = 0; k < t->kind_count; ++k)
            if (any_in(&t->variants[v].kinds[k]))
                return true;
    }
    return false;
}

lathe_status lathe_engine_open_collectives(lathe_engine *e) {
    if (!lathe_engine_has_collectives(e))
        return LATHE_OK;
    const uint64_t bound_ns = e->options.timeout_ns ? e->options.timeout_ns : TIMEOUT_NS;
    const uint64_t timeout_ns = bound_ns + (e->table->mailbox_count ? BEHIND_MAILBOXES_NS : 0);
    const lathe_status status =
        e->device->ops->open_collectives(e->device, e->options.group, timeout_ns);
    return status == LATHE_OK ? status : lathe_engine_fail_device(e, status, "collectives");
}
