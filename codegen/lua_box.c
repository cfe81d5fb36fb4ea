/* SPDX-License-Identifier: Apache-2.0
 * The sandbox's state: budget of memory and instructions, files, calls, results as trees. */
#include "lua_base.h"
#include "text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_MEMORY = 64 << 20,
    MAX_INSTRUCTIONS = 100000000,
    MAX_SECONDS = 20, /* of one call's work in Lua; for what takes time but no instructions */
    MAX_NODES = 2000000,
    MAX_DEPTH = 32
};

lathe_lua *lathe_lua_of(lua_State *state) {
    lathe_lua *lua;
    memcpy(&lua, lua_getextraspace(state), sizeof lua);
    return lua;
}

/* Where the chunk stands when it runs out of memory: Lua's own error has no place. Looks, allocates
 * nothing. */
static void note_place(lathe_lua *lua) {
    lua_Debug frame = {0};
    for (int level = 0; lua->state && lua_getstack(lua->state, level, &frame); level++) {
        lua_getinfo(lua->state, "Sl", &frame);
        if (frame.currentline <= 0)
            continue;
        (void)snprintf(lua->place, sizeof lua->place, "%s:%d: ", frame.short_src,
                       frame.currentline);
        return;
    }
}

static double thread_seconds(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0)
        return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether the call under way has taken too long. Cheap enough for every call and allocation: the
 * thread's own clock is read only where the coarse one has moved on. */
static bool is_slow(lathe_lua *lua) {
    struct timespec t;
    if (lua->slow || clock_gettime(CLOCK_MONOTONIC_COARSE, &t) != 0)
        return lua->slow;
    const int64_t tick = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    if (tick != lua->tick) {
        lua->tick = tick;
        lua->slow = lua->begin > 0 && thread_seconds() - lua->begin > lua->seconds;
    }
    return lua->slow;
}

static void *allocate(void *context, void *memory, size_t old_size, size_t new_size) {
    lathe_lua *lua = context;
    const size_t old = memory ? old_size : 0;
    if (new_size == 0) {
        free(memory);
        lua->memory -= old;
        return NULL;
    }
    if (new_size > old && (lua->memory - old + new_size > MAX_MEMORY || is_slow(lua))) {
        note_place(lua);
        return NULL;
    }
    void *moved = realloc(memory, new_size);
    if (moved)
        lua->memory += new_size - old;
    return moved;
}

/* Instructions, and calls: what a C function does counts none. */
static void watch(lua_State *state, lua_Debug *frame) {
    lathe_lua *lua = lathe_lua_of(state);
    if (frame->event == LUA_HOOKCOUNT)
        lua->instructions -= LATHE_LUA_STEP;
    if (lua->instructions >= 0 && !is_slow(lua))
        return;
    note_place(lua);
    if (lua->slow)
        lua_pushfstring(state, "%smore than %f seconds; does a loop not end?", lua->place,
                        (lua_Number)lua->seconds);
    else
        lua_pushfstring(state, "%smore than %d instructions; does a loop not end?", lua->place,
                        MAX_INSTRUCTIONS);
    lua_error(state);
}

/* Memory that runs out where nothing is protected: while results are read. */
static int panic(lua_State *state) {
    lathe_diag_fail(lathe_arena_diag(lathe_lua_of(state)->arena), (lathe_where){0},
                    "Lua: more than %d MiB of memory", MAX_MEMORY >> 20);
}

static int open_state(lua_State *state) {
    lua_newtable(state);
    lua_createtable(state, 0, 1);
    lua_pushliteral(state, "k");
    lua_setfield(state, -2, "__mode");
    lua_setmetatable(state, -2);
    lua_rawsetp(state, LUA_REGISTRYINDEX, &lathe_lua_tags);
    lua_newtable(state);
    lua_pushvalue(state, -1);
    lua_rawsetp(state, LUA_REGISTRYINDEX, &lathe_lua_environment);
    lathe_lua_open_base(state);
    return 0;
}

lathe_lua *lathe_lua_create(lathe_arena *arena, lathe_lua_folders folders) {
    lathe_lua *lua = lathe_arena_alloc(arena, 1, sizeof *lua);
    *lua = (lathe_lua){.arena = arena,
                       .folders = folders,
                       .instructions = MAX_INSTRUCTIONS,
                       .nodes = MAX_NODES,
                       .seconds = MAX_SECONDS};
    lua->state = lua_newstate(allocate, lua);
    if (!lua->state)
        lathe_diag_fail(lathe_arena_diag(arena), (lathe_where){0}, "no memory for Lua");
    memcpy(lua_getextraspace(lua->state), &lua, sizeof lua);
    lua_atpanic(lua->state, panic);
    lua_pushcfunction(lua->state, open_state);
    if (lua_pcall(lua->state, 0, 0, 0) != LUA_OK) {
        lathe_lua_destroy(lua);
        lathe_diag_fail(lathe_arena_diag(arena), (lathe_where){0}, "no memory for Lua");
    }
    lua_sethook(lua->state, watch, LUA_MASKCOUNT | LUA_MASKCALL, LATHE_LUA_STEP);
    return lua;
}

void lathe_lua_destroy(lathe_lua *lua) {
    if (lua && lua->state)
        lua_close(lua->state);
    if (lua)
        lua->state = NULL;
}

void lathe_lua_renew(lathe_lua *lua) {
    lua->instructions = MAX_INSTRUCTIONS;
    lua->nodes = MAX_NODES;
}

void lathe_lua_limit(lathe_lua *lua, double seconds) {
    lua->seconds = seconds;
}

void lathe_lua_set_tp(lathe_lua *lua, int64_t tp) {
    lua->tp = tp;
    lua->refusal_count = 0;
}

void lathe_lua_refuse(lathe_lua *lua, lathe_where where, const char *reason) {
    for (size_t i = 0; i < lua->refusal_count; i++)
        if (strcmp(lua->refusals[i].reason, reason) == 0)
            return;
    lua->refusals =
        lathe_arena_grow(lua->arena, lua->refusals, lua->refusal_count, sizeof *lua->refusals);
    lua->refusals[lua->refusal_count++] = (lathe_refusal){where, reason};
}

const lathe_refusal *lathe_lua_refusals(const lathe_lua *lua, size_t *count) {
    *count = lua->refusal_count;
    return lua->refusals;
}

lathe_arena *lathe_lua_arena(const lathe_lua *lua) {
    return lua->arena;
}

const char *lathe_lua_root(const lathe_lua *lua) {
    return lua->folders.root;
}

const lathe_source *lathe_lua_sources(const lathe_lua *lua, size_t *count) {
    *count = lua->source_count;
    return lua->sources;
}

const lathe_source *lathe_lua_read(lathe_lua *lua, const char *shown, const char *path) {
    for (size_t i = 0; i < lua->source_count; i++)
        if (strcmp(lua->sources[i].shown, shown) == 0)
            return &lua->sources[i];
    lathe_text text = {.arena = lua->arena};
    if (!lathe_text_read(&text, path))
        return NULL;
    lua->sources =
        lathe_arena_grow(lua->arena, lua->sources, lua->source_count, sizeof *lua->sources);
    lua->sources[lua->source_count] =
        (lathe_source){shown, path, lathe_text_string(&text), text.size};
    return &lua->sources[lua->source_count++];
}

/* Whether `path`, links followed, lies below `folder`. */
static bool is_below(const char *path, const char *folder) {
    char real_path[PATH_MAX], real_folder[PATH_MAX];
    if (!realpath(path, real_path) || !realpath(folder, real_folder))
        return false;
    const size_t length = strlen(real_folder);
    return strncmp(real_path, real_folder, length) == 0 && real_path[length] == '/';
}

static bool is_plain_name(const char *name) {
    return *name && *name != '/' && !strchr(name, '\\') && !strstr(name, "..");
}

/* How messages call a file: relative to the root, or by `name` alone outside it. */
static const char *shown_name(const lathe_lua *lua, const char *path, const char *name) {
    char real_path[PATH_MAX], real_root[PATH_MAX];
    if (!realpath(path, real_path) || !realpath(lua->folders.root, real_root))
        return name;
    const size_t length = strlen(real_root);
    if (strncmp(real_path, real_root, length) != 0 || real_path[length] != '/')
        return name;
    return lathe_arena_copy(lua->arena, real_path + length + 1, strlen(real_path + length + 1));
}

/* Finds `name` beside the layout, in layouts/ or in templates/. Sets how messages call it. */
static const char *find_file(lathe_lua *lua, const char *name, const char **shown) {
    const char *root = lua->folders.root;
    const char *folders[] = {lua->folders.layout, lathe_arena_print(lua->arena, "%s/layouts", root),
                             lathe_arena_print(lua->arena, "%s/templates", root)};
    for (int i = 0; i < 3; i++) {
        const char *path = lathe_arena_print(lua->arena, "%s/%s", folders[i], name);
        if (!is_below(path, folders[i]))
            continue;
        *shown = shown_name(lua, path, name);
        return path;
    }
    return NULL;
}

void lathe_lua_load(lua_State *state, const char *name, const char *path) {
    lathe_lua *lua = lathe_lua_of(state);
    const char *shown = name;
    if (!path && !is_plain_name(name))
        luaL_error(state, "include \"%s\": allowed: a path below layouts/ or templates/", name);
    if (!path && !(path = find_file(lua, name, &shown)))
        luaL_error(state, "include \"%s\": no such file in layouts/ or templates/", name);
    const lathe_source *source = lathe_lua_read(lua, shown, path);
    if (!source)
        luaL_error(state, "%s: cannot be read: %s", shown, strerror(errno));
    const char *chunk = lathe_arena_print(lua->arena, "@%s", shown);
    if (luaL_loadbufferx(state, source->text, source->size, chunk, "t") != LUA_OK)
        lua_error(state);
    lua_newtable(state); /* the chunk's own environment */
    lua_createtable(state, 0, 1);
    lua_rawgetp(state, LUA_REGISTRYINDEX, &lathe_lua_environment);
    lua_setfield(state, -2, "__index");
    lua_setmetatable(state, -2);
    lua_setupvalue(state, -2, 1);
}

/* ---- trees ---- */

static lathe_node to_node(lathe_lua *lua, int index, lathe_where where, int depth);

static const char *copy_string(lathe_lua *lua, int index) {
    size_t size;
    const char *text = lua_tolstring(lua->state, index, &size);
    return lathe_arena_copy(lua->arena, text, size);
}

/* Reads the tag of the table at `index` into `table`; the memo of a tagged table is tag[6]. */
static const lathe_table *read_tag(lathe_lua *lua, int index, lathe_table *table) {
    lua_State *state = lua->state;
    lua_rawgetp(state, LUA_REGISTRYINDEX, &lathe_lua_tags);
    lua_pushvalue(state, index);
    const lathe_table *known = NULL;
    if (lua_rawget(state, -2) == LUA_TTABLE) {
        const char **texts[] = {&table->constructor, &table->name, &table->second,
                                &table->where.file};
        for (int i = 0; i < 4; i++) {
            lua_rawgeti(state, -1, i + 1);
            *texts[i] = copy_string(lua, -1);
            lua_pop(state, 1);
        }
        lua_rawgeti(state, -1, 5);
        table->where.line = (int)lua_tointeger(state, -1);
        lua_rawgeti(state, -2, 6);
        known = lua_touserdata(state, -1);
        lua_rawgeti(state, -3, 7);
        if (lua_isstring(state, -1))
            table->called.file = copy_string(lua, -1);
        lua_rawgeti(state, -4, 8);
        table->called.line = (int)lua_tointeger(state, -1);
        lua_pop(state, 4);
        if (!known) {
            lua_pushlightuserdata(state, table);
            lua_rawseti(state, -2, 6);
            lua_pushvalue(state, index);
            table->handle = luaL_ref(state, LUA_REGISTRYINDEX);
        }
    }
    lua_pop(state, 2);
    return known;
}

static int compare_fields(const void *a, const void *b) {
    return strcmp(((const lathe_field *)a)->key, ((const lathe_field *)b)->key);
}

static void read_fields(lathe_lua *lua, int index, lathe_table *table, int depth) {
    lua_State *state = lua->state;
    lathe_field *fields = NULL;
    lua_pushnil(state);
    while (lua_next(state, index)) {
        const int value = lua_gettop(state), key = value - 1;
        if (lua_type(state, key) == LUA_TSTRING) {
            fields = lathe_arena_grow(lua->arena, fields, table->field_count, sizeof *fields);
            fields[table->field_count++] =
                (lathe_field){copy_string(lua, key), to_node(lua, value, table->where, depth)};
        } else if (!lua_isinteger(state, key) || lua_tointeger(state, key) < 1 ||
                   lua_tointeger(state, key) > (lua_Integer)table->item_count) {
            lathe_diag_fail(lathe_arena_diag(lua->arena), table->where,
                            "%s: a key is neither a name nor a position of a list without gaps",
                            lathe_tree_describe(lua->arena, table));
        }
        lua_pop(state, 1);
    }
    if (fields)
        qsort(fields, table->field_count, sizeof *fields, compare_fields);
    table->fields = fields;
}

static const lathe_table *to_table(lathe_lua *lua, int index, lathe_where where, int depth) {
    lua_State *state = lua->state;
    if (depth > MAX_DEPTH || !lua_checkstack(state, 16))
        lathe_diag_fail(lathe_arena_diag(lua->arena), where,
                        "tables are nested more than %d deep (a circle?)", MAX_DEPTH);
    lathe_table *table = lathe_tree_make(lua->arena);
    table->where = where;
    const lathe_table *known = read_tag(lua, index, table);
    if (known)
        return known;
    table->item_count = (size_t)lua_rawlen(state, index);
    lathe_node *items =
        table->item_count ? lathe_arena_alloc(lua->arena, table->item_count, sizeof *items) : NULL;
    for (size_t i = 0; i < table->item_count; i++) {
        lua_rawgeti(state, index, (lua_Integer)i + 1);
        items[i] = to_node(lua, lua_gettop(state), table->where, depth + 1);
        lua_pop(state, 1);
    }
    table->items = items;
    read_fields(lua, index, table, depth + 1);
    return table;
}

static lathe_where definition(lua_State *state, int index) {
    lua_Debug info = {0};
    lua_pushvalue(state, index);
    lua_getinfo(state, ">S", &info);
    lathe_arena *arena = lathe_lua_of(state)->arena;
    if (*info.source != '@')
        return (lathe_where){0};
    return (lathe_where){lathe_arena_copy(arena, info.source + 1, strlen(info.source + 1)),
                         info.linedefined};
}

static lathe_node to_node(lathe_lua *lua, int index, lathe_where where, int depth) {
    lua_State *state = lua->state;
    if (--lua->nodes < 0)
        lathe_diag_fail(lathe_arena_diag(lua->arena), where, "more than %d values", MAX_NODES);
    switch (lua_type(state, index)) {
    case LUA_TNIL:
        return (lathe_node){.kind = LATHE_NODE_NIL};
    case LUA_TBOOLEAN:
        return (lathe_node){.kind = LATHE_NODE_BOOLEAN, .boolean = lua_toboolean(state, index)};
    case LUA_TNUMBER:
        if (lua_isinteger(state, index))
            return (lathe_node){.kind = LATHE_NODE_INTEGER,
                                .integer = lua_tointeger(state, index),
                                .real = (double)lua_tointeger(state, index)};
        return (lathe_node){.kind = LATHE_NODE_REAL, .real = lua_tonumber(state, index)};
    case LUA_TSTRING:
        return (lathe_node){.kind = LATHE_NODE_STRING, .string = copy_string(lua, index)};
    case LUA_TTABLE:
        return (lathe_node){.kind = LATHE_NODE_TABLE, .table = to_table(lua, index, where, depth)};
    default:
        break;
    }
    lua_pushvalue(state, index);
    return (lathe_node){.kind = LATHE_NODE_FUNCTION,
                        .where = definition(state, index),
                        .function = luaL_ref(state, LUA_REGISTRYINDEX)};
}

/* ---- calls ---- */

/* Reads of a field that a table made in C lacks; those of the upvalue are known and nil. */
static int unknown_field(lua_State *state) {
    lua_pushvalue(state, 2);
    if (lua_rawget(state, lua_upvalueindex(1)) == LUA_TBOOLEAN)
        return 0;
    return luaL_error(state, "nothing is called '%s' here", luaL_tolstring(state, 2, NULL));
}

/* Makes reads of absent fields of the table on top an error. */
static void make_strict(lua_State *state, const lathe_table *table) {
    lua_createtable(state, 0, 1);
    lua_newtable(state);
    for (size_t i = 0; i < table->field_count; i++)
        if (table->fields[i].value.kind == LATHE_NODE_NIL) {
            lua_pushboolean(state, 1);
            lua_setfield(state, -2, table->fields[i].key);
        }
    lua_pushcclosure(state, unknown_field, 1);
    lua_setfield(state, -2, "__index");
    lua_setmetatable(state, -2);
}

static void push_node(lua_State *state, const lathe_node *node) {
    luaL_checkstack(state, 4, NULL);
    switch (node->kind) {
    case LATHE_NODE_BOOLEAN:
        lua_pushboolean(state, node->boolean);
        return;
    case LATHE_NODE_INTEGER:
        lua_pushinteger(state, node->integer);
        return;
    case LATHE_NODE_REAL:
        lua_pushnumber(state, node->real);
        return;
    case LATHE_NODE_STRING:
        lua_pushstring(state, node->string);
        return;
    case LATHE_NODE_FUNCTION:
        lua_rawgeti(state, LUA_REGISTRYINDEX, node->function);
        return;
    case LATHE_NODE_TABLE:
        break;
    case LATHE_NODE_NIL:
        lua_pushnil(state);
        return;
    }
    if (node->table->handle) {
        lua_rawgeti(state, LUA_REGISTRYINDEX, node->table->handle);
        return;
    }
    lua_createtable(state, 0, (int)node->table->field_count);
    for (size_t i = 0; i < node->table->field_count; i++) {
        push_node(state, &node->table->fields[i].value);
        lua_setfield(state, -2, node->table->fields[i].key);
    }
    for (size_t i = 0; i < node->table->item_count; i++) {
        push_node(state, &node->table->items[i]);
        lua_rawseti(state, -2, (lua_Integer)i + 1);
    }
    if (node->table->strict)
        make_strict(state, node->table);
}

typedef struct {
    const char *name, *path;
    const lathe_node *function, *args;
    size_t count;
} request;

/* In protected mode: loads or finds the function, pushes the arguments, calls, leaves one result.
 */
static int perform(lua_State *state) {
    const request *r = lua_touserdata(state, 1);
    lua_settop(state, 0);
    if (r->function)
        lua_rawgeti(state, LUA_REGISTRYINDEX, r->function->function);
    else
        lathe_lua_load(state, r->name, r->path);
    luaL_checkstack(state, (int)r->count + 8, NULL);
    for (size_t i = 0; i < r->count; i++)
        push_node(state, &r->args[i]);
    lua_call(state, (int)r->count, 1);
    return 1;
}

/* An error without words of its own gets them, and its place. */
static int word_error(lua_State *state) {
    if (lua_type(state, 1) == LUA_TSTRING)
        return 1;
    lathe_lua *lua = lathe_lua_of(state);
    note_place(lua);
    lua_pushfstring(state, "%serror: found %s, allowed: a message", lua->place,
                    luaL_typename(state, 1));
    return 1;
}

static lathe_node protect(lathe_lua *lua, request *r, const char *what) {
    lua_State *state = lua->state;
    lathe_diag *diag = lathe_arena_diag(lua->arena);
    lua->include_depth = 0;
    lua->begin = thread_seconds();
    lua->slow = false;
    lua->place[0] = '\0';
    lua_settop(state, 0);
    lua_pushcfunction(state, word_error);
    lua_pushcfunction(state, perform);
    lua_pushlightuserdata(state, r);
    const int status = lua_pcall(state, 1, 1, 1);
    lua_remove(state, 1);
    if (status == LUA_ERRMEM && lua->slow)
        lathe_diag_fail(diag, (lathe_where){0}, "%smore than %g seconds; does a loop not end?",
                        lua->place, lua->seconds);
    if (status == LUA_ERRMEM)
        lathe_diag_fail(diag, (lathe_where){0}, "%s%smore than %d MiB of memory", lua->place,
                        *lua->place ? "" : lathe_arena_print(lua->arena, "%s: ", what),
                        MAX_MEMORY >> 20);
    if (status != LUA_OK) {
        const char *message = lua_tostring(state, -1);
        if (!message)
            message = lathe_arena_print(lua->arena, "%s: failed with no message", what);
        lathe_diag_raise(diag, message);
    }
    lua->begin = 0;
    const lathe_where where = r->function ? r->function->where : (lathe_where){what, 0};
    return to_node(lua, 1, where, 0);
}

lathe_node lathe_lua_run(lathe_lua *lua, const char *name, const char *path) {
    return protect(lua, &(request){.name = name, .path = path}, name);
}

lathe_node lathe_lua_call(lathe_lua *lua, const lathe_node *function, const lathe_node *args,
                          size_t count, const char *what) {
    return protect(lua, &(request){.function = function, .args = args, .count = count}, what);
}
