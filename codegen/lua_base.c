/* SPDX-License-Identifier: Apache-2.0
 * What a chunk may call: safe base functions, sorted pairs, include, split, and the constructors.
 */
#include "lua_base.h"

#include <string.h>

const char lathe_lua_tags = 0;
const char lathe_lua_environment = 0;

enum { MAX_SUBJECT = 256, MAX_REPEATS = 3, MAX_INCLUDES = 16, MAX_COPIES = 1 << 20 };

/* Order of keys: numbers, then strings by bytes. Others have no order that is the same on every
 * run. */
static int compare_keys(lua_State *state, int a, int b) {
    const int type_a = lua_type(state, a), type_b = lua_type(state, b);
    if (type_a != type_b)
        return type_a == LUA_TNUMBER ? -1 : 1;
    if (type_a == LUA_TSTRING)
        return strcmp(lua_tostring(state, a), lua_tostring(state, b));
    return lua_compare(state, a, b, LUA_OPLT) ? -1 : lua_compare(state, b, a, LUA_OPLT) ? 1 : 0;
}

static void check_key(lua_State *state, int index) {
    const int type = lua_type(state, index);
    if (type != LUA_TNUMBER && type != LUA_TSTRING)
        luaL_error(state, "a key is a %s; allowed: numbers and strings",
                   luaL_typename(state, index));
}

/* next(t, k): the smallest key above k, so that visits come in sorted order. */
static int base_next(lua_State *state) {
    luaL_checktype(state, 1, LUA_TTABLE);
    lua_settop(state, 2);
    const bool first = lua_isnil(state, 2);
    lua_pushnil(state); /* 3: best key so far */
    lua_pushnil(state); /* 4: key */
    while (lua_next(state, 1)) {
        lua_pop(state, 1);
        check_key(state, 4);
        const bool above = first || compare_keys(state, 4, 2) > 0;
        if (above && (lua_isnil(state, 3) || compare_keys(state, 4, 3) < 0)) {
            lua_pushvalue(state, 4);
            lua_replace(state, 3);
        }
    }
    lua_settop(state, 3);
    if (lua_isnil(state, 3))
        return 1;
    lua_pushvalue(state, 3);
    lua_gettable(state, 1);
    return 2;
}

/* Orders two keys for table.sort in `pairs`. */
static int key_less(lua_State *state) {
    lua_pushboolean(state, compare_keys(state, 1, 2) < 0);
    return 1;
}

/* Upvalues: list of keys, position. */
static int pairs_step(lua_State *state) {
    const lua_Integer position = lua_tointeger(state, lua_upvalueindex(2)) + 1;
    lua_pushinteger(state, position);
    lua_replace(state, lua_upvalueindex(2));
    if (lua_rawgeti(state, lua_upvalueindex(1), position) == LUA_TNIL)
        return 1;
    lua_pushvalue(state, -1);
    lua_gettable(state, 1);
    return 2;
}

static int base_pairs(lua_State *state) {
    luaL_checktype(state, 1, LUA_TTABLE);
    lua_settop(state, 1);
    lua_newtable(state);
    lua_Integer count = 0;
    lua_pushnil(state);
    while (lua_next(state, 1)) {
        lua_pop(state, 1);
        check_key(state, -1);
        lua_pushvalue(state, -1);
        lua_rawseti(state, 2, ++count);
    }
    lua_pushvalue(state, lua_upvalueindex(1)); /* table.sort */
    lua_pushvalue(state, 2);
    lua_pushcfunction(state, key_less);
    lua_call(state, 2, 0);
    lua_pushinteger(state, 0);
    lua_pushcclosure(state, pairs_step, 2);
    lua_pushvalue(state, 1);
    return 2;
}

/* An address would differ from run to run. */
static int base_tostring(lua_State *state) {
    const int type = lua_type(state, 1);
    luaL_argcheck(state, type <= LUA_TSTRING && type != LUA_TLIGHTUSERDATA && type != LUA_TNONE, 1,
                  "allowed: nil, booleans, numbers and strings");
    luaL_tolstring(state, 1, NULL);
    return 1;
}

static int base_format(lua_State *state) {
    for (int i = 2; i <= lua_gettop(state); i++)
        luaL_argcheck(state, lua_type(state, i) <= LUA_TSTRING, i,
                      "allowed: nil, booleans, numbers and strings");
    luaL_argcheck(state, !strstr(luaL_checkstring(state, 1), "%p"), 1, "%p is not allowed");
    lua_pushvalue(state, lua_upvalueindex(1));
    lua_insert(state, 1);
    lua_call(state, lua_gettop(state) - 1, 1);
    return 1;
}

/* Pattern matching counts no instructions, so its size is bounded instead. */
static int base_pattern(lua_State *state) {
    size_t size = 0, repeats = 0;
    luaL_checklstring(state, 1, &size);
    luaL_argcheck(state, size <= MAX_SUBJECT, 1, "patterns search at most 256 bytes");
    for (const char *p = luaL_checkstring(state, 2); *p; p++)
        repeats += strchr("*+-", *p) != NULL;
    luaL_argcheck(state, repeats <= MAX_REPEATS, 2, "a pattern has at most 3 of * + -");
    lua_pushvalue(state, lua_upvalueindex(1));
    lua_insert(state, 1);
    lua_call(state, lua_gettop(state) - 1, LUA_MULTRET);
    return lua_gettop(state);
}

/* Copies of nothing take time but neither memory nor instructions. */
static int base_rep(lua_State *state) {
    luaL_argcheck(state, luaL_checkinteger(state, 2) <= MAX_COPIES, 2, "at most 2^20 copies");
    lua_pushvalue(state, lua_upvalueindex(1));
    lua_insert(state, 1);
    lua_call(state, lua_gettop(state) - 1, 1);
    return 1;
}

static int base_include(lua_State *state) {
    lathe_lua *lua = lathe_lua_of(state);
    const char *name = luaL_checkstring(state, 1);
    if (lua->include_depth >= MAX_INCLUDES)
        return luaL_error(state, "include \"%s\": more than %d files deep (a circle?)", name,
                          MAX_INCLUDES);
    lathe_lua_load(state, name, NULL);
    lua->include_depth++;
    lua_call(state, 0, 1);
    lua->include_depth--;
    return 1;
}

/* The Lua function that called, `outer` functions of Lua further out. File NULL where there is
 * none.
 */
static lathe_where caller(lua_State *state, int outer) {
    lua_Debug frame = {0};
    bool found = false;
    for (int level = 1; !found && lua_getstack(state, level, &frame); level++) {
        lua_getinfo(state, "Sl", &frame);
        found = frame.currentline > 0 && outer-- == 0;
    }
    if (!found)
        return (lathe_where){0};
    const char *file = frame.source && *frame.source == '@' ? frame.source + 1 : "?";
    lathe_arena *arena = lathe_lua_of(state)->arena;
    return (lathe_where){lathe_arena_copy(arena, file, strlen(file)), frame.currentline};
}

static int base_split(lua_State *state) {
    lathe_lua *lua = lathe_lua_of(state);
    const lua_Integer n = luaL_checkinteger(state, 1);
    const char *what = luaL_checkstring(state, 2);
    const lua_Integer unit = luaL_optinteger(state, 3, 1);
    luaL_argcheck(state, n > 0, 1, "allowed: a positive size");
    luaL_argcheck(state, unit > 0, 3, "allowed: a positive unit");
    if (lua->tp < 1)
        return luaL_error(state, "split: no TP size is known here; call it in `model`");
    const lua_Integer part = n / lua->tp;
    if (n % lua->tp != 0)
        lathe_lua_refuse(lua, caller(state, 0),
                         lathe_arena_print(lua->arena, "%s: %lld do not divide by %lld ranks", what,
                                           (long long)n, (long long)lua->tp));
    else if (part % unit != 0)
        lathe_lua_refuse(
            lua, caller(state, 0),
            lathe_arena_print(lua->arena, "%s: %lld / %lld = %lld is no multiple of %lld", what,
                              (long long)n, (long long)lua->tp, (long long)part, (long long)unit));
    lua_pushinteger(state, part > 0 ? part : 1); /* a refused size still lets the model go on */
    return 1;
}

/* name, strings that precede the table, whether a table follows */
typedef struct {
    const char *name;
    int strings;
    bool table;
} constructor;

static const constructor constructors[] = {
    {"layout", 1, true},  {"deployment", 0, true}, {"use", 1, true},      {"model", 0, true},
    {"group", 1, true},   {"probe", 0, true},      {"value", 1, true},    {"weight", 1, true},
    {"tensor", 1, true},  {"cache", 1, true},      {"part", 2, true},     {"kind", 1, true},
    {"prev", 1, false},   {"const", 1, true},      {"provider", 1, true}, {"arg", 1, true},
    {"tactics", 1, true}, {"tactic", 1, true},
};

/* What `model` may count on in a deployment. */
static void fill_deployment(lua_State *state, int table) {
    static const char *const tables[] = {"aux", "set"};
    for (int i = 0; i < 2; i++) {
        if (lua_getfield(state, table, tables[i]) == LUA_TNIL) {
            lua_newtable(state);
            lua_setfield(state, table, tables[i]);
        }
        lua_pop(state, 1);
    }
    if (lua_getfield(state, table, "name") == LUA_TNIL) {
        lua_pushliteral(state, "");
        lua_setfield(state, table, "name");
    }
    if (lua_getfield(state, table, "page_tokens") == LUA_TNIL) {
        lua_pushinteger(state, 16);
        lua_setfield(state, table, "page_tokens");
    }
    lua_pop(state, 2);
}

/* Tags the table on top of the stack: {constructor, name, second, file, line, memo of lua_box.c,
 * file and line of the call around}. */
static void tag_table(lua_State *state, const constructor *c, const char *name,
                      const char *second) {
    const lathe_where where = caller(state, 0), called = caller(state, 1);
    lua_rawgetp(state, LUA_REGISTRYINDEX, &lathe_lua_tags);
    lua_pushvalue(state, -2);
    if (lua_rawget(state, -2) != LUA_TNIL)
        luaL_error(state, "%s \"%s\": this table was constructed before", c->name, name);
    lua_pop(state, 1);
    lua_pushvalue(state, -2);
    lua_createtable(state, 8, 0);
    lua_pushstring(state, c->name);
    lua_rawseti(state, -2, 1);
    lua_pushstring(state, name);
    lua_rawseti(state, -2, 2);
    lua_pushstring(state, second);
    lua_rawseti(state, -2, 3);
    lua_pushstring(state, where.file);
    lua_rawseti(state, -2, 4);
    lua_pushinteger(state, where.line);
    lua_rawseti(state, -2, 5);
    lua_pushstring(state, called.file);
    lua_rawseti(state, -2, 7);
    lua_pushinteger(state, called.line);
    lua_rawseti(state, -2, 8);
    lua_rawset(state, -3);
    lua_pop(state, 1);
}

/* Upvalues: index of the constructor, then the strings so far. */
static int construct(lua_State *state) {
    const constructor *c = &constructors[lua_tointeger(state, lua_upvalueindex(1))];
    const char *name = lua_tostring(state, lua_upvalueindex(2));
    const char *second = lua_tostring(state, lua_upvalueindex(3));
    const int strings = name == NULL ? 0 : second == NULL ? 1 : 2;
    const char *shown = name ? name : "";
    lua_settop(state, 1);
    if (strings < c->strings) {
        if (lua_type(state, 1) != LUA_TSTRING)
            return luaL_error(state, "%s: found a %s, allowed: a string (its name)", c->name,
                              luaL_typename(state, 1));
        if (!*lua_tostring(state, 1))
            return luaL_error(state, "%s: the name is empty", c->name);
    }
    if (strings == c->strings && !lua_istable(state, 1))
        return luaL_error(state, "%s \"%s\": found a %s, allowed: a table", c->name, shown,
                          luaL_typename(state, 1));
    if (strings + 1 == c->strings && !c->table) {
        name = shown = lua_tostring(state, 1);
        lua_newtable(state);
    } else if (strings < c->strings) {
        lua_pushvalue(state, lua_upvalueindex(1));
        lua_pushvalue(state, strings == 0 ? 1 : lua_upvalueindex(2));
        if (strings == 0)
            lua_pushnil(state);
        else
            lua_pushvalue(state, 1);
        lua_pushcclosure(state, construct, 3);
        return 1;
    }
    tag_table(state, c, shown, second ? second : "");
    if (strcmp(c->name, "deployment") == 0)
        fill_deployment(state, lua_gettop(state));
    return 1;
}

/* Reads of a name that nobody set. */
static int unknown_name(lua_State *state) {
    return luaL_error(state, "unknown name '%s'", luaL_tolstring(state, 2, NULL));
}

static void copy_library(lua_State *state, int to, const char *name, const char *dropped) {
    lua_newtable(state);
    lua_pushnil(state);
    while (lua_next(state, -3)) {
        const char *key = lua_tostring(state, -2);
        if (!strstr(dropped, key)) {
            lua_pushvalue(state, -2);
            lua_pushvalue(state, -2);
            lua_rawset(state, -5);
        }
        lua_pop(state, 1);
    }
    lua_remove(state, -2);
    lua_setfield(state, to, name);
}

static void wrap(lua_State *state, int library, const char *name, lua_CFunction by) {
    lua_getfield(state, library, name);
    lua_pushcclosure(state, by, 1);
    lua_setfield(state, library, name);
}

static void open_string(lua_State *state, int base) {
    luaL_requiref(state, "string", luaopen_string, 0);
    const int library = lua_gettop(state);
    wrap(state, library, "format", base_format);
    wrap(state, library, "find", base_pattern);
    wrap(state, library, "match", base_pattern);
    wrap(state, library, "gmatch", base_pattern);
    wrap(state, library, "gsub", base_pattern);
    wrap(state, library, "rep", base_rep);
    lua_pushnil(state);
    lua_setfield(state, library, "dump");
    copy_library(state, base, "string", "dump");
}

static void open_functions(lua_State *state, int base) {
    static const char *const kept[] = {"assert", "error", "ipairs", "select", "tonumber", "type"};
    luaL_requiref(state, "_G", luaopen_base, 0);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        lua_getfield(state, -1, kept[i]);
        lua_setfield(state, base, kept[i]);
    }
    lua_pop(state, 1);
    luaL_requiref(state, "table", luaopen_table, 0);
    lua_getfield(state, -1, "sort");
    lua_pushcclosure(state, base_pairs, 1);
    lua_setfield(state, base, "pairs");
    copy_library(state, base, "table", "move"); /* it can loop without a count */
    luaL_requiref(state, "math", luaopen_math, 0);
    copy_library(state, base, "math", "random randomseed");
    static const luaL_Reg own[] = {{"next", base_next},
                                   {"tostring", base_tostring},
                                   {"include", base_include},
                                   {"split", base_split}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        lua_pushcfunction(state, own[i].func);
        lua_setfield(state, base, own[i].name);
    }
}

void lathe_lua_open_base(lua_State *state) {
    static const char *const symbols[] = {"rows", "requests", "q",   "pages", "table_width",
                                          "bf16", "f32",      "f64", "i32",   "i64",
                                          "u8",   "u32",      "e4m3"};
    const int base = lua_gettop(state);
    open_functions(state, base);
    open_string(state, base);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        lua_pushstring(state, symbols[i]);
        lua_setfield(state, base, symbols[i]);
    }
    for (size_t i = 0; i < sizeof constructors / sizeof *constructors; i++) {
        lua_pushinteger(state, (lua_Integer)i);
        lua_pushnil(state);
        lua_pushnil(state);
        lua_pushcclosure(state, construct, 3);
        lua_setfield(state, base, constructors[i].name);
    }
    lua_createtable(state, 0, 1);
    lua_pushcfunction(state, unknown_name);
    lua_setfield(state, -2, "__index");
    lua_setmetatable(state, base);
}
