/* SPDX-License-Identifier: Apache-2.0
 * The reference of routing, which launches with other parts share. */
#ifndef LATHE_MOE_ROUTING_REF_H
#define LATHE_MOE_ROUTING_REF_H

#include "reference.h"

void lathe_ref_moe_routing(lathe_ref *r);

/* Routing as a part of another launch, where that has it. */
static inline void lathe_ref_route(lathe_ref *r) {
    if (lathe_ref_int(r, "kRoutes") > 0)
        lathe_ref_moe_routing(r);
}

#endif
