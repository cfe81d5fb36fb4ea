/* SPDX-License-Identifier: Apache-2.0
 * What the rules on a template share: how control and the config struct flow through its
 * declarations by name. */
#ifndef LATHE_SCAN_TEMPLATE_H
#define LATHE_SCAN_TEMPLATE_H

#include "scan_unit.h"

/* `C::name` where C is, in that declaration, the entry's config struct. */
typedef struct {
    const char *name, *file;
    int line;
} lathe_read;

typedef struct {
    bool *reached; /* by index of declaration */
    lathe_read *reads;
    size_t read_count;
} lathe_flow;

/* Everything reached from `entry`, whose first template parameter is the config struct. False: no
 * memory. */
bool lathe_flow_trace(lathe_flow *f, lathe_scan_unit *u, const lathe_declaration *entry);

/* Rule 4: waits and triggers. */
void lathe_scan_launch(lathe_scan_unit *u, const lathe_scan_provider *p,
                       const lathe_declaration *entry, const lathe_flow *f);

#endif
