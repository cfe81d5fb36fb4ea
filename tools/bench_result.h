/* SPDX-License-Identifier: Apache-2.0
 * What `lathe bench` found. Times are microseconds, rates bytes a second. */
#ifndef LATHE_BENCH_RESULT_H
#define LATHE_BENCH_RESULT_H

#include <stdbool.h>
#include <stdint.h>

#include "bench_model.h"
#include "bench_stats.h"
#include "machine.h"

/* One kernel of a variant. */
typedef struct {
    const char *name, *provider, *tactic; /* provider "": a collective */
    int launches;                         /* in the step */
    double bytes;                         /* of a launch, as the step reads them */
    bool exchange;                        /* it receives what ranks send */
    bool with_publisher;                  /* its time stands at the kernel that publishes to it */
    bool measured;
    double left_out; /* what a launch adds: the step minus the step without the kernel */
    double in_order; /* the same from steps that grow kernel by kernel; sums to the step exactly */
    double spread;   /* of left_out: the samples' interquartile range by launches */
} lathe_bench_kernel;

/* One kind of layer. */
typedef struct {
    const char *name;
    int layers;
    int nodes;        /* on the critical path */
    bool measured;    /* false: there is only layer 0 of it */
    double time;      /* of one layer, from the difference of two numbers of layers */
    double bytes;     /* of one layer */
    double experts;   /* distinct ones on this rank, the mean over its layers and the sets */
    double by_chance; /* as many as routes drawn evenly touch in the mean; 0: there are no routes */
    double in_kernels; /* sum of left_out of the kernels of one layer */
} lathe_bench_kind;

typedef struct {
    const char *name;
    int64_t requests, q, context;
    lathe_bench_stats step;
    double bytes; /* of the whole step */
    int replays, sets;
    int expert_layers; /* layers with routes */
    double experts;    /* distinct ones of a layer on this rank, the mean over layers and sets */
    double experts_least, experts_most;
    int kernel_count, kind_count;
    lathe_bench_kernel *kernels;
    lathe_bench_kind *kinds;
    double left_out, in_order; /* sums over all launches */
    lathe_bench_costs costs;   /* where every kernel was measured */
} lathe_bench_variant;

typedef struct {
    const char *directory, *layout, *deployment, *arch, *hash;
    char gpu[128], date[16], toolkit[16];
    lathe_machine before, after; /* clocks */
    int multiprocessors;
    int tp, rank_count; /* ranks that ran */
    bool rank_slice;
    int layers, layers_of_all;
    double ceiling; /* 0: not known */
    char ceiling_note[256];
    double weight_bytes;
    int variant_count;
    lathe_bench_variant *variants;
} lathe_bench_result;

/* Bytes over the ceiling; 0 where it is not known. */
static inline double lathe_bench_floor(const lathe_bench_result *r, double bytes) {
    return r->ceiling > 0 ? bytes * 1e6 / r->ceiling : 0;
}

#endif
