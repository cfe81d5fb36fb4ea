/* SPDX-License-Identifier: Apache-2.0
 * The Lua sandbox: text chunks only, bounded memory and instructions, no way out but `include` of
 * files below layouts/ and templates/. lua_*.c are the only files that include Lua. */
#ifndef LATHE_LUA_BOX_H
#define LATHE_LUA_BOX_H

#include "tree.h"

typedef struct lathe_lua lathe_lua;

/* Where files may come from. */
typedef struct {
    const char *root;   /* holds layouts/ and templates/ */
    const char *layout; /* folder of the layout file; may lie outside the root */
} lathe_lua_folders;

/* A file that went in. */
typedef struct {
    const char *shown; /* relative to the root: "layouts/toy.lua" */
    const char *path;
    const char *text;
    size_t size;
} lathe_source;

/* A TP size that the layout cannot serve, as `split` or a shard rule found it. */
typedef struct {
    lathe_where where;
    const char *reason;
} lathe_refusal;

/* Fails through the arena's diag. */
lathe_lua *lathe_lua_create(lathe_arena *arena, lathe_lua_folders folders);
void lathe_lua_destroy(lathe_lua *lua);

/* The seconds of this thread that one call may take, in place of 20. */
void lathe_lua_limit(lathe_lua *lua, double seconds);

/* The budget of instructions and values is whole again: for work that a caller bounds, such as
 * listing all tactics of one kernel after another. */
void lathe_lua_renew(lathe_lua *lua);

/* Runs a file and returns what it returns. `name` is a path below layouts/ or templates/, as in
 * `include`; with `path` that file is taken and `name` is how messages call it. */
lathe_node lathe_lua_run(lathe_lua *lua, const char *name, const char *path);

/* Calls a function of an earlier result; `what` names it in messages. Returns the first result. */
lathe_node lathe_lua_call(lathe_lua *lua, const lathe_node *function, const lathe_node *args,
                          size_t count, const char *what);

/* The TP size that `split` divides by; 0: `split` may not be called. */
void lathe_lua_set_tp(lathe_lua *lua, int64_t tp);
void lathe_lua_refuse(lathe_lua *lua, lathe_where where, const char *reason);
const lathe_refusal *lathe_lua_refusals(const lathe_lua *lua, size_t *count);

/* Remembers a file that was read outside Lua, for the hash. */
const lathe_source *lathe_lua_read(lathe_lua *lua, const char *shown, const char *path);
const lathe_source *lathe_lua_sources(const lathe_lua *lua, size_t *count);

lathe_arena *lathe_lua_arena(const lathe_lua *lua);
const char *lathe_lua_root(const lathe_lua *lua);

#endif
