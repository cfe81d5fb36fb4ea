/* SPDX-License-Identifier: Apache-2.0
 * What a Lua file returned, as plain C data: nodes and tables that remember their place. The
 * accessors fail with the place, the field, what was found and what is allowed. */
#ifndef LATHE_TREE_H
#define LATHE_TREE_H

#include "arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    LATHE_NODE_NIL,
    LATHE_NODE_BOOLEAN,
    LATHE_NODE_INTEGER,
    LATHE_NODE_REAL,
    LATHE_NODE_STRING,
    LATHE_NODE_TABLE,
    LATHE_NODE_FUNCTION
} lathe_node_kind;

typedef struct lathe_table lathe_table;

typedef struct {
    lathe_node_kind kind;
    bool boolean;
    int64_t integer;
    double real; /* of an integer too */
    const char *string;
    const lathe_table *table;
    int function;      /* handle for lathe_lua_call */
    lathe_where where; /* of a function: its definition */
} lathe_node;

typedef struct {
    const char *key;
    lathe_node value;
} lathe_field;

struct lathe_table {
    lathe_where where;       /* of the constructor's call, or of the nearest one around */
    lathe_where called;      /* where the function around that call was called; file NULL: by us */
    const char *constructor; /* "value", ...; "" for a plain table */
    const char *name;        /* the constructor's first string, or "" */
    const char *second;      /* its second string (`part` only), or "" */
    const lathe_node *items; /* [1], [2], ... */
    size_t item_count;
    const lathe_field *fields; /* by name, sorted */
    size_t field_count;
    int handle;  /* of a constructor's table, to hand it back to Lua; 0: none */
    bool strict; /* made in C: reading an absent field is an error in Lua */
};

/* What errors call this table: `value "in.x"`, `a table`. */
const char *lathe_tree_describe(lathe_arena *arena, const lathe_table *table);
/* What errors call this node: `the string "abc"`, `3`, `nil`. */
const char *lathe_tree_found(lathe_arena *arena, const lathe_node *node);

/* NULL where the field is absent. */
const lathe_node *lathe_tree_find(const lathe_table *table, const char *key);

/* Fails unless every field is one of `allowed` (space-separated); items are allowed with `items`.
 */
void lathe_tree_check(lathe_arena *arena, const lathe_table *table, const char *allowed,
                      bool items);
/* Fails unless `node` is a table of that constructor ("" for a plain table). */
const lathe_table *lathe_tree_expect(lathe_arena *arena, lathe_where where, const char *what,
                                     const lathe_node *node, const char *constructor);

/* A plain table under a name of its own, for messages: what a function returned. */
const lathe_table *lathe_tree_returned(lathe_arena *arena, lathe_where where, const char *what,
                                       const lathe_node *node);

/* Typed fields. The `_or` forms take a default where the field is absent. */
const char *lathe_tree_string(lathe_arena *arena, const lathe_table *table, const char *key);
const char *lathe_tree_string_or(lathe_arena *arena, const lathe_table *table, const char *key,
                                 const char *otherwise);
int64_t lathe_tree_integer(lathe_arena *arena, const lathe_table *table, const char *key,
                           int64_t min, int64_t max);
int64_t lathe_tree_integer_or(lathe_arena *arena, const lathe_table *table, const char *key,
                              int64_t min, int64_t max, int64_t otherwise);
bool lathe_tree_boolean_or(lathe_arena *arena, const lathe_table *table, const char *key,
                           bool otherwise);
/* A plain table, NULL where absent. */
const lathe_table *lathe_tree_table_or_null(lathe_arena *arena, const lathe_table *table,
                                            const char *key);
const lathe_table *lathe_tree_table(lathe_arena *arena, const lathe_table *table, const char *key);
/* A function's node, NULL where absent. */
const lathe_node *lathe_tree_function_or_null(lathe_arena *arena, const lathe_table *table,
                                              const char *key);

/* The number in `node`, which `what` names in errors. */
int64_t lathe_tree_number(lathe_arena *arena, lathe_where where, const char *what,
                          const lathe_node *node, int64_t min, int64_t max);
/* The string in item `index` of a list. */
const char *lathe_tree_item_string(lathe_arena *arena, const lathe_table *list, size_t index,
                                   const char *what);

/* Tables made in C, to hand to Lua. Fields must be set in sorted order of their names. */
lathe_table *lathe_tree_make(lathe_arena *arena);
void lathe_tree_set_integer(lathe_arena *arena, lathe_table *table, const char *key, int64_t value);
void lathe_tree_set_node(lathe_arena *arena, lathe_table *table, const char *key, lathe_node value);

#endif
