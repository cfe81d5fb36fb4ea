/* SPDX-License-Identifier: Apache-2.0
 * Joins the launches of all lists to buffers, variant by variant; streams, early launches, layers,
 * names. */
#ifndef LATHE_WIRE_H
#define LATHE_WIRE_H

#include "bind.h"

/* Fills in the plan, whose model, deployment, architecture and table are set. */
void lathe_wire(lathe_plan *plan);

/* Appends a launch, and before it the fork or join that orders it after what it depends on in the
 * other stream. */
void lathe_wire_append(lathe_plan *plan, lathe_ops *ops, const lathe_op *launch);
/* Published values before a launch: it may not use an exchange that carries one which it does not
 * receive, nor write over one. */
void lathe_wire_exchange(const lathe_plan *plan, const lathe_launch *launch,
                         const lathe_binding *args, const lathe_state *states);
/* At the end of a step everything that was published has been received. */
void lathe_wire_received(const lathe_plan *plan, const lathe_state *states);
/* Joins what is forked at the end of a list. */
void lathe_wire_close(lathe_plan *plan, lathe_ops *ops);
/* Marks the launches that may be launched early, in all lists. */
void lathe_wire_early(lathe_plan *plan);
/* Names kernels and buffers, once all are known. */
void lathe_wire_name(lathe_plan *plan);

#endif
