/* SPDX-License-Identifier: Apache-2.0
 * What can be told of a generated directory without a GPU: per kernel its resources and its floor,
 * per layer kind the sum of the floors and the nodes that wait for one another. */
#ifndef LATHE_INSPECT_H
#define LATHE_INSPECT_H

#include <stdio.h>

#include "compile.h"

typedef struct {
    const lathe_step_kernel *kernel;
    const lathe_step_tactic *tactic; /* the one in the cache, else the first */
    char *origin;                    /* where the tactic came from, as the generated file says */
    const char *artefact;            /* in the cache; NULL: not built */
    int registers, spill_bytes;      /* -1: unknown (not built, or built for the host) */
    int static_shared;               /* bytes; -1: unknown */
    int resident;                    /* blocks that fit one multiprocessor at once; 0: unknown */
    double floor_us;                 /* NAN: step.json names no ceilings */
    bool by_operations;              /* the operations are the floor, not the bytes */
    /* Of a record of `lathe bench`; NAN: there is none of this kernel and tactic. */
    double measured_us;      /* what a launch adds to the step */
    double touched_floor_us; /* of the bytes that the measured step touched */
    double predicted_us;     /* that floor, and the costs of a node and of an exchange */
    const char *limit;       /* where they are far apart, why; else NULL */
    char limit_text[96];
} lathe_inspect_kernel;

/* One layer of a kind in a batch variant, or what comes before or after the layers. */
typedef struct {
    const char *name;   /* of the kind, "prologue", "epilogue" */
    int layers;         /* of this kind; 1 for prologue and epilogue */
    int nodes;          /* launches and collectives */
    int critical;       /* of them on the longest chain through both streams */
    int exchanges;      /* receivers of a mailbox and collectives */
    double floor_us;    /* sum over the nodes; NAN where a kernel's is */
    double measured_us; /* of one layer, or of the step; NAN: not known */
} lathe_inspect_part;

typedef struct {
    const lathe_step_variant *variant;
    int part_count;
    lathe_inspect_part *parts; /* prologue, one per kind, epilogue */
    lathe_inspect_part whole;  /* the step: parts times their layers */
} lathe_inspect_variant;

typedef struct {
    lathe_step_table *table;
    lathe_compiler *compiler;
    const char *pattern; /* glob over the names of the kernels that outputs show; NULL, as it is
                            opened: all of them, and what belongs to no kernel */
    lathe_inspect_kernel *kernels;   /* as table->kernels */
    lathe_inspect_variant *variants; /* as table->variants */
    struct {
        char about[256]; /* where and when; "": nothing is measured */
        int kernels;     /* with a prediction */
        int near;        /* of them within 15 % of it */
        int stale;       /* in the record with another tactic */
    } measured;
} lathe_inspect;

/* Reads DIRECTORY/step.json, the generated files' first lines and what the cache holds. Compiles
 * nothing. `cache` and `nvrtc` as in lathe_options. On failure there is nothing to close. */
LATHE_CHECKED lathe_status lathe_inspect_open(const char *directory, const char *cache,
                                              const char *nvrtc, lathe_inspect *inspect,
                                              lathe_message_buffer message);
void lathe_inspect_close(lathe_inspect *inspect);

/* Takes what `lathe bench` measured from the record, NULL: from DIRECTORY/bench*.json, of
 * which the last by name counts. Kernels that have another tactic since stay without. LATHE_INVALID
 * where a file is no record, or the one that was named is of another deployment. */
LATHE_CHECKED lathe_status lathe_inspect_read_bench(lathe_inspect *inspect, const char *directory,
                                                    const char *record,
                                                    lathe_message_buffer message);

/* The longer of the two, in microseconds: bytes over the read rate, operations over the tensor
 * cores' rate. NAN where there are no ceilings. */
double lathe_inspect_floor(const lathe_step_ceilings *ceilings, int64_t bytes, int64_t operations,
                           bool *by_operations);

/* Whether the operation, a launch or a collective, ends an exchange: it polls a mailbox or is a
 * collective. */
bool lathe_inspect_receives(const lathe_step_table *table, const lathe_step_op *op);

/* Blocks of a kernel that one multiprocessor of the architecture holds at once, by threads,
 * registers and shared memory (CUDA C++ programming guide, "Hardware multithreading"). 0 where the
 * architecture is not known or registers are not. */
int lathe_inspect_resident(const char *arch, uint32_t block, int registers, int64_t shared);

/* Whether outputs show the kernel. */
bool lathe_inspect_shows(const lathe_inspect *inspect, const lathe_inspect_kernel *kernel);
void lathe_inspect_print(const lathe_inspect *inspect, FILE *out);
/* False where there is no memory. */
bool lathe_inspect_write_json(const lathe_inspect *inspect, FILE *out);
/* Lists what differs between two directories, of the kernels that both show; the number of
 * differences. */
int lathe_inspect_diff(const lathe_inspect *from, const lathe_inspect *to, FILE *out);
/* The disassembly of every kernel shown, by a program of the CUDA toolkit. */
LATHE_CHECKED lathe_status lathe_inspect_sass(const lathe_inspect *inspect, FILE *out,
                                              lathe_message_buffer message);
/* The same of one kernel. */
LATHE_CHECKED lathe_status lathe_inspect_sass_kernel(const lathe_inspect_kernel *kernel, FILE *out,
                                                     lathe_message_buffer message);
/* One page that shows it all and needs nothing else. `sass`: with the disassembly of every kernel.
 * The Lua files that constants name are taken from the nearest folder above the directory that has
 * them. The file is there whole or not at all. */
LATHE_CHECKED lathe_status lathe_inspect_html(const lathe_inspect *inspect, const char *directory,
                                              bool sass, const char *file,
                                              lathe_message_buffer message);
/* One kernel's source with all it includes in place, with #line origins. */
LATHE_CHECKED lathe_status lathe_inspect_flatten(const char *directory, const char *file, FILE *out,
                                                 lathe_message_buffer message);

#endif
