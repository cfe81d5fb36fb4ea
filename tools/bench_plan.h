/* SPDX-License-Identifier: Apache-2.0
 * Which graphs `lathe bench` times: the launches of a variant with some left out, so that what is
 * left may run and never waits for what is not sent. Knows nothing of time. */
#ifndef LATHE_BENCH_PLAN_H
#define LATHE_BENCH_PLAN_H

#include "step.h"

/* All launches of one kernel in the step, or of one collective. */
typedef struct {
    const char *name;
    const lathe_step_kernel *kernel; /* NULL: a collective */
    const lathe_step_tactic *tactic;
    int launches;
    bool publishes; /* sends what another launch receives: never left out without that */
    bool receives;  /* what another launch publishes */
    bool exchange;  /* receives, exchanges within itself, or is a collective */
} lathe_bench_row;

typedef struct {
    const lathe_step_table *table;
    const lathe_step_launch *launches; /* the variant's, of one rank; every rank has the same */
    int count;
    int row_count;
    lathe_bench_row *rows; /* in the order of their first launches, a publisher before its receivers
                            */
    int *row_of;           /* per launch; -1: fork, join */
    int *published_by;     /* per launch: number of the launch whose value it receives; else -1 */
} lathe_bench_plan;

/* NULL where there is no memory. */
lathe_bench_plan *lathe_bench_plan_create(const lathe_step_table *table,
                                          const lathe_step_launch *launches, int count);
void lathe_bench_plan_destroy(lathe_bench_plan *plan); /* NULL is allowed */

/* The following write `left_out`, a flag per launch. */

/* Without row `row`; where it publishes, also without the launches that receive from it. `whole`:
 * and where it receives, without those that publish to it. */
void lathe_bench_plan_without(const lathe_bench_plan *plan, int row, bool whole, bool *left_out);
/* Without the rows after `row`. `whole`: nor is anything published that is not received. */
void lathe_bench_plan_up_to(const lathe_bench_plan *plan, int row, bool whole, bool *left_out);
/* Without half the layers of a kind, the last ones; never layer 0. Returns how many. */
int lathe_bench_plan_without_layers(const lathe_bench_plan *plan, int kind, bool *left_out);

/* The launches left of `from` (this plan's, or another rank's), fit to be captured: a launch whose
 * predecessor is gone is not early. `to` has room for all. Returns how many. */
int lathe_bench_plan_list(const lathe_bench_plan *plan, const lathe_step_launch *from,
                          const bool *left_out, lathe_step_launch *to);

/* Launches and collectives on the longest path of dependent ones through a layer of the kind. */
int lathe_bench_plan_nodes(const lathe_bench_plan *plan, int kind);

#endif
