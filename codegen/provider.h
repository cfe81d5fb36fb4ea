/* SPDX-License-Identifier: Apache-2.0
 * A provider's spec, templates/FOLDER/X.lua, as structs. */
#ifndef LATHE_PROVIDER_H
#define LATHE_PROVIDER_H

#include "dtype.h"
#include "lua_box.h"

typedef enum {
    LATHE_CONST_SHAPE,     /* found in the arguments' shapes */
    LATHE_CONST_ATTRIBUTE, /* `from`: attribute of a part */
    LATHE_CONST_OPTION,    /* `option` of the use */
    LATHE_CONST_HAS,       /* 1 where that argument is bound */
    LATHE_CONST_RANKS,     /* the TP size */
    LATHE_CONST_TACTIC,
    LATHE_CONST_COMPUTED /* `value`: function of all others */
} lathe_const_source;

typedef struct {
    lathe_where where;
    const char *name;
    bool real; /* float, else int */
    lathe_const_source source;
    const char *from;     /* "gemm.eps", the option's or the argument's name */
    lathe_node value;     /* function */
    lathe_node otherwise; /* default; nil: none */
    lathe_node min, max;  /* nil: none */
    bool neutral;         /* of a tactic: no bit of a result depends on it */
    const char *doc;
} lathe_const;

typedef enum {
    LATHE_DIR_IN,
    LATHE_DIR_OUT,
    LATHE_DIR_INOUT,
    LATHE_DIR_WORKSPACE,
    LATHE_DIR_MAILBOX
} lathe_dir;

/* One dimension of an argument's shape. */
typedef struct {
    int constant; /* index, -1: none */
    int64_t number;
    bool pages;
    lathe_node function; /* of the constants; nil: none */
} lathe_arg_dim;

typedef struct {
    lathe_where where;
    const char *name;
    lathe_dir dir;
    lathe_dtype dtype;
    lathe_form form;
    lathe_arg_dim dims[LATHE_MAX_DIMS];
    int rank;
    const char **ports; /* "gemm.x", alternatives */
    size_t port_count;
    bool optional, zeroed;
    bool settled;         /* read before grid_wait(): whatever wrote it is there by then */
    bool ahead;           /* written and fenced before the block's grid_trigger() */
    lathe_node when;      /* nil: always */
    const char *exchange; /* of a mailbox, else NULL; with ports it carries a value */
    lathe_node bytes;
} lathe_arg;

typedef struct {
    const char **kinds;
    size_t kind_count;
} lathe_kinds;

typedef struct {
    lathe_where where;
    const char *name, *doc, *entry;
    const char *spec;       /* "templates/gemm/skinny.lua" */
    const char *collective; /* "all_reduce", "all_gather": the library's, without a kernel; NULL */
    lathe_kinds *covers;
    size_t cover_count;
    lathe_const *constants;
    size_t constant_count;
    size_t tactic_count; /* constants of source tactic */
    lathe_arg *args;
    size_t arg_count;
    lathe_node launch, cost, tactics, otherwise, unsupported; /* functions or nil */
    bool early, triggers;
    const char *spills; /* why its kernels may spill registers; NULL: they may not */
} lathe_provider;

/* Reads the spec; `where` is the use that names it. */
lathe_provider *lathe_provider_load(lathe_lua *lua, lathe_where where, const char *name);

/* Index of a constant or argument by name, -1: none. */
int lathe_provider_constant(const lathe_provider *provider, const char *name);
int lathe_provider_arg(const lathe_provider *provider, const char *name);

const char *lathe_dir_name(lathe_dir dir);

#endif
