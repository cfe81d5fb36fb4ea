/* SPDX-License-Identifier: Apache-2.0
 * The libclang checks: templates against their specs, generated files against plan and step.json.
 *
 * The input is plain data and knows nothing of the generator's own structs. Rules, each reported
 * with file and line, what was found and what is allowed:
 * - 1 arguments: the entry function's parameters are the spec's arguments (name, order, element
 *   type, const)
 * - 2 constants: those read as C::kX, in helpers of templates/ too, are those declared
 * - 3 output: config structs hold the plan's values; entry points have the parameters and launch
 *   bounds of step.json and pass them in order to the right template with the right struct
 * - 4 early: `early` has an unconditional grid_wait() and its predecessor triggers; `triggers` has
 *   grid_trigger(); a provider that declares neither calls neither
 * - 5 no logic: a generated file holds includes, structs of static constexpr constants and entry
 *   points of one call
 * - 6 discipline: shared memory, barriers, built-ins and asm stand in prims only
 *
 * Nothing is written, printed or kept: strings are borrowed for the length of the call. */
#ifndef LATHE_SCAN_H
#define LATHE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { LATHE_SCAN_INT, LATHE_SCAN_FLOAT } lathe_scan_type;

typedef struct {
    const char *name;
    const char *element; /* as the kernel spells it: "bf16", "float", "double", "int", "long long",
                            "u8", "u32", "Mailbox" */
    bool readonly;       /* pointer to const: `in` arguments */
    int line;            /* of the arg's constructor call in the spec */
} lathe_scan_arg;

typedef struct {
    const char *name;
    lathe_scan_type type;
    int line; /* of the const's constructor call in the spec */
} lathe_scan_constant;

/* A provider whose template is part of this generation. */
typedef struct {
    const char *name;           /* "gemm/skinny" */
    const char *spec;           /* "templates/gemm/skinny.lua", for messages */
    int line;                   /* of the provider's constructor call */
    const char *file;           /* the template below `templates`: "gemm/skinny.cuh" */
    const char *entry;          /* the function template: "skinny_gemm" */
    const lathe_scan_arg *args; /* in the order of the function's parameters */
    size_t arg_count;
    const lathe_scan_constant *constants;
    size_t constant_count;
    bool early, triggers; /* as the spec declares them */
} lathe_scan_provider;

/* One constant of a config struct. */
typedef struct {
    const char *name;
    lathe_scan_type type;
    int64_t integer; /* LATHE_SCAN_INT */
    double real;     /* LATHE_SCAN_FLOAT */
} lathe_scan_value;

/* One entry point. */
typedef struct {
    const char *entry;              /* "toy_norm_1x8" */
    const char *config;             /* the struct it passes to the template */
    size_t provider;                /* index into `providers` */
    const lathe_scan_value *values; /* every constant of the struct, any order */
    size_t value_count;
    const lathe_scan_arg *args; /* what step.json lists, in order */
    size_t arg_count;
    uint32_t threads;    /* first launch bound */
    uint32_t min_blocks; /* second launch bound; 0: absent */
    uint32_t cluster;    /* blocks of a cluster; 0 or 1: none */
} lathe_scan_kernel;

typedef struct {
    const char *file; /* below the generated directory: "norm_1x8.cu"; messages use it as it is */
    const char *text; /* the whole file; NUL-terminated */
    const lathe_scan_kernel *kernels;
    size_t kernel_count;
} lathe_scan_file;

/* An early launch and the launch before it in its stream, as providers. */
typedef struct {
    size_t provider;
    size_t predecessor; /* SIZE_MAX: none, which is an error */
    const char *file;   /* where the launch comes from: the layout */
    int line;
} lathe_scan_early;

typedef struct {
    const char
        *templates; /* directory on disk that holds the emitted templates/ (its prims/host too) */
    const char *shown; /* how messages name it: "templates" */
    const lathe_scan_provider *providers;
    size_t provider_count;
    const lathe_scan_file *files;
    size_t file_count;
    const lathe_scan_early *early; /* each pair once is enough */
    size_t early_count;
    int threads; /* 0: as many as the machine has, at most 8 */
} lathe_scan_input;

/* Receives one finding; called from the thread that called lathe_scan, in order of provider, then
 * file, then line. */
typedef void (*lathe_scan_report)(void *context, const char *file, int line, const char *message);

/* Number of findings, each reported; 0: all rules hold. -1: the scan could not be made (no memory,
 * a file that cannot be read, libclang left out of this build), which is reported too, with line 0.
 */
int lathe_scan(const lathe_scan_input *input, lathe_scan_report report, void *context);

/* Whether this build holds the checks (LATHE_SCAN). */
bool lathe_scan_available(void);

#endif
