/* SPDX-License-Identifier: Apache-2.0
 * Architectures, measured tactic tables (layouts/tactics/NAME.lua), and the choice of tactics for
 * one kernel. */
#ifndef LATHE_TACTIC_H
#define LATHE_TACTIC_H

#include "provider.h"

typedef struct {
    const char *name; /* "sm_90a" */
    int64_t shared;   /* bytes of shared memory a block may have */
    int64_t registers, multiprocessors;
    int64_t threads, blocks; /* resident on one multiprocessor */
} lathe_arch;

/* Fails at `where` with the list of those known. */
const lathe_arch *lathe_arch_find(lathe_diag *diag, lathe_where where, const char *name);

/* The value of one constant and where it comes from. */
typedef struct {
    bool known;
    int64_t integer;
    double real; /* of a float constant */
    const char *origin;
} lathe_bound;

/* One configuration of a kernel. */
typedef struct {
    const char *name;       /* "kThreads=64" */
    lathe_bound *constants; /* all of the provider's */
    int64_t grid[3], block, shared, registers, min_blocks;
    int64_t cluster; /* blocks along x that reach each other's shared memory; 1: none */
    bool cooperative;
} lathe_tactic;

typedef struct lathe_tactics lathe_tactics;

/* Reads layouts/tactics/NAME.lua and checks all of it. Where it names another architecture than
 * `arch` it has no entry and no ceilings for anything. */
lathe_tactics *lathe_tactic_load(lathe_lua *lua, const char *name, const lathe_arch *arch);
/* Reads such a table from any file; messages call it `shown`. */
lathe_tactics *lathe_tactic_load_file(lathe_lua *lua, const char *shown, const char *path,
                                      const lathe_arch *arch);

/* "FILE:LINE: ..." where the table is of another architecture, else NULL. */
const char *lathe_tactic_foreign(const lathe_tactics *table);

/* What a GPU can do at most; 0 where the table does not say. */
typedef struct {
    int64_t read_gb_s;   /* 10^9 bytes a second from memory */
    int64_t bf16_tflops; /* 10^12 dense tensor operations a second */
} lathe_ceilings;

lathe_ceilings lathe_tactic_ceilings(const lathe_tactics *table);

/* What a kernel's tactics are chosen for. */
typedef struct {
    lathe_lua *lua;
    const lathe_arch *arch;
    lathe_node given;            /* the `arch` of the spec's functions */
    const lathe_tactics *table;  /* NULL: none */
    const lathe_tactics *before; /* asked before `table`; NULL: none */
    const lathe_provider *provider;
    const lathe_bound *constants; /* all but tactic and computed ones known */
    int64_t rows;                 /* of the step; 0 in `prepare` */
    bool invariant;               /* one tactic only, the same in all variants */
    const lathe_tactic *lead;     /* that of the leading variant; NULL: this is it */
    lathe_where where;            /* of the use */
    const char *launch;           /* how messages call the launch */
} lathe_choice;

/* The tactics in order of preference, the spec's default last; `why` says why. Fails where one
 * exceeds the architecture, or the spec calls the shape unsupported. With `lead` the only one: the
 * lead's constants, but for the neutral ones. */
lathe_tactic *lathe_tactic_choose(const lathe_choice *choice, size_t *count, const char **why);

/* The tactics that the spec has for the shape, in its order, then those of its rule that are none
 * of them; *rule is the name of the one that the rule takes first. At most `most`: that one and
 * `taken`, and of the others one in every so many. */
lathe_tactic *lathe_tactic_list(const lathe_choice *choice, const char *taken, size_t most,
                                size_t *count, const char **rule);

/* Known constants as a table for the spec's functions. */
lathe_node lathe_tactic_constants(lathe_arena *arena, const lathe_provider *provider,
                                  const lathe_bound *constants);
/* The `arch` of the spec's functions; `kinds` of the parts that the launch covers. */
lathe_node lathe_tactic_arch(lathe_arena *arena, const lathe_arch *arch, int64_t ranks,
                             const char *const *kinds, size_t kind_count);
/* Takes a number as the value of a constant: type and range are checked. */
lathe_bound lathe_tactic_bound(lathe_arena *arena, const lathe_const *constant, lathe_where where,
                               const lathe_node *node, const char *origin);

#endif
