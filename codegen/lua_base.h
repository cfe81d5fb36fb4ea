/* SPDX-License-Identifier: Apache-2.0
 * Inside of the sandbox, shared by lua_*.c. */
#ifndef LATHE_LUA_BASE_H
#define LATHE_LUA_BASE_H

#include "lua_box.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

enum { LATHE_LUA_STEP = 100 }; /* instructions between two looks at the budget */

struct lathe_lua {
    lua_State *state;
    lathe_arena *arena;
    lathe_lua_folders folders;
    size_t memory;        /* bytes in use by Lua */
    int64_t instructions; /* left */
    double begin;         /* of the call under way, in seconds of this thread; 0: none */
    double seconds;       /* that a call may take */
    int64_t tick;         /* of the coarse clock, when the thread's was last read */
    bool slow;            /* the call has taken longer */
    char place[128];      /* where memory or time ran out */
    int64_t nodes;        /* tree nodes left */
    int64_t tp;
    int include_depth;
    lathe_refusal *refusals;
    size_t refusal_count;
    lathe_source *sources;
    size_t source_count;
};

/* The sandbox a state belongs to. */
lathe_lua *lathe_lua_of(lua_State *state);

/* Fills the table on top of the stack with the base functions, constructors and symbols. */
void lathe_lua_open_base(lua_State *state);

/* Registry tables: constructor's table -> its tag {constructor, name, second, file, line}. */
extern const char lathe_lua_tags;
/* Base environment that every chunk's own environment falls back to. */
extern const char lathe_lua_environment;

/* Loads a file's text as a function on the stack, in an environment of its own; raises a Lua error
 * otherwise. */
void lathe_lua_load(lua_State *state, const char *name, const char *path);

#endif
