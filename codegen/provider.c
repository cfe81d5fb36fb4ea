/* SPDX-License-Identifier: Apache-2.0
 * Reads a provider's spec and checks it as far as that goes without a layout. */
#include "provider.h"

#include "text.h"

#include <string.h>

static const char *const dirs[] = {"in", "out", "inout", "workspace", "mailbox"};

const char *lathe_dir_name(lathe_dir dir) {
    return dirs[dir];
}

int lathe_provider_constant(const lathe_provider *provider, const char *name) {
    for (size_t i = 0; i < provider->constant_count; i++)
        if (strcmp(provider->constants[i].name, name) == 0)
            return (int)i;
    return -1;
}

int lathe_provider_arg(const lathe_provider *provider, const char *name) {
    for (size_t i = 0; i < provider->arg_count; i++)
        if (strcmp(provider->args[i].name, name) == 0)
            return (int)i;
    return -1;
}

static bool is_identifier(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return *name && !strchr("0123456789", *name) && name[strspn(name, letters)] == '\0';
}

static _Noreturn void fail(lathe_arena *arena, const lathe_table *t, const char *format,
                           const char *found) {
    const char *message = lathe_arena_print(arena, "%s: ", lathe_tree_describe(arena, t));
    lathe_diag_fail(lathe_arena_diag(arena), t->where, "%s%s%s", message, format, found);
}

static _Noreturn void fail_found(lathe_arena *arena, const lathe_table *t, const char *what,
                                 const char *found, const char *allowed) {
    fail(arena, t, lathe_arena_print(arena, "%s: found %s, allowed: ", what, found), allowed);
}

/* A copy of a field's node, nil where absent. */
static lathe_node node_or_nil(const lathe_node *node) {
    return node ? *node : (lathe_node){.kind = LATHE_NODE_NIL};
}

static lathe_node number_or_nil(lathe_arena *arena, const lathe_table *t, const char *key) {
    const lathe_node *node = lathe_tree_find(t, key);
    if (node && node->kind != LATHE_NODE_INTEGER && node->kind != LATHE_NODE_REAL)
        fail_found(arena, t, lathe_arena_print(arena, "field '%s'", key),
                   lathe_tree_found(arena, node), "a number");
    return node_or_nil(node);
}

static void read_source(lathe_arena *arena, const lathe_table *t, lathe_const *c) {
    int sources = 0;
    if ((c->from = lathe_tree_string_or(arena, t, "from", NULL))) {
        c->source = LATHE_CONST_ATTRIBUTE;
        sources++;
        if (!strchr(c->from, '.'))
            fail_found(arena, t, "field 'from'", c->from, "\"KIND.ATTRIBUTE\"");
    }
    const char *option = lathe_tree_string_or(arena, t, "option", NULL);
    const char *has = lathe_tree_string_or(arena, t, "has", NULL);
    const lathe_node *value = lathe_tree_function_or_null(arena, t, "value");
    if (option) {
        c->source = LATHE_CONST_OPTION;
        c->from = option;
        sources++;
    }
    if (has) {
        c->source = LATHE_CONST_HAS;
        c->from = has;
        sources++;
    }
    if (value) {
        c->source = LATHE_CONST_COMPUTED;
        c->value = *value;
        sources++;
    }
    if (lathe_tree_boolean_or(arena, t, "tactic", false)) {
        c->source = LATHE_CONST_TACTIC;
        sources++;
    }
    if (lathe_tree_boolean_or(arena, t, "ranks", false)) {
        c->source = LATHE_CONST_RANKS;
        sources++;
    }
    if (sources > 1)
        fail(arena, t, "allowed: one of the fields from, option, has, ranks, value, tactic", "");
}

static lathe_const read_constant(lathe_arena *arena, const lathe_table *t) {
    lathe_tree_check(arena, t,
                     "default doc from has max min neutral option ranks tactic type value", false);
    lathe_const c = {.where = t->where, .name = t->name};
    const char *type = lathe_tree_string(arena, t, "type");
    c.real = strcmp(type, "float") == 0;
    if (!c.real && strcmp(type, "int") != 0)
        fail_found(arena, t, "field 'type'", type, "\"int\", \"float\"");
    if (!is_identifier(t->name))
        fail(arena, t, "allowed: a name like kTile", "");
    read_source(arena, t, &c);
    c.neutral = lathe_tree_boolean_or(arena, t, "neutral", false);
    if (c.neutral && c.source != LATHE_CONST_TACTIC)
        fail(arena, t, "field 'neutral': allowed with 'tactic'", "");
    c.otherwise = number_or_nil(arena, t, "default");
    c.min = number_or_nil(arena, t, "min");
    c.max = number_or_nil(arena, t, "max");
    c.doc = lathe_tree_string_or(arena, t, "doc", "");
    return c;
}

static lathe_arg_dim read_dim(lathe_arena *arena, const lathe_provider *p, const lathe_table *t,
                              const lathe_node *node) {
    lathe_arg_dim dim = {.constant = -1};
    if (node->kind == LATHE_NODE_FUNCTION) {
        dim.function = *node;
    } else if (node->kind == LATHE_NODE_STRING && strcmp(node->string, "pages") == 0) {
        dim.pages = true;
    } else if (node->kind == LATHE_NODE_STRING) {
        dim.constant = lathe_provider_constant(p, node->string);
        if (dim.constant < 0)
            fail(arena, t, "field 'shape': no constant is called ", node->string);
        if (p->constants[dim.constant].real)
            fail(arena, t, "field 'shape': not an int constant: ", node->string);
    } else {
        dim.number = lathe_tree_number(
            arena, t->where, lathe_arena_print(arena, "arg \"%s\": field 'shape'", t->name), node,
            1, LATHE_MAX_SIZE);
    }
    return dim;
}

static void read_shape(lathe_arena *arena, const lathe_provider *p, const lathe_table *t,
                       lathe_arg *arg) {
    const lathe_table *shape = lathe_tree_table(arena, t, "shape");
    if (shape->item_count < 1 || shape->item_count > LATHE_MAX_DIMS)
        fail(arena, t, "field 'shape': allowed: 1 to 8 dimensions", "");
    arg->rank = (int)shape->item_count;
    for (int i = 0; i < arg->rank; i++)
        arg->dims[i] = read_dim(arena, p, t, &shape->items[i]);
}

static void read_ports(lathe_arena *arena, const lathe_table *t, lathe_arg *arg) {
    const lathe_node *node = lathe_tree_find(t, "port");
    const bool list = node && node->kind == LATHE_NODE_TABLE;
    arg->port_count = list ? node->table->item_count : 1;
    arg->ports = lathe_arena_alloc(arena, arg->port_count + 1, sizeof *arg->ports);
    for (size_t i = 0; i < arg->port_count; i++) {
        arg->ports[i] = list ? lathe_tree_item_string(arena, node->table, i, "field 'port'")
                             : lathe_tree_string(arena, t, "port");
        if (!strchr(arg->ports[i], '.'))
            fail_found(arena, t, "field 'port'", arg->ports[i], "\"KIND.PORT\"");
    }
    if (!arg->port_count)
        fail_found(arena, t, "field 'port'", "none", "\"KIND.PORT\"");
}

static lathe_dir read_dir(lathe_arena *arena, const lathe_table *t) {
    const char *name = lathe_tree_string(arena, t, "dir");
    for (int i = 0; i <= LATHE_DIR_MAILBOX; i++)
        if (strcmp(dirs[i], name) == 0)
            return (lathe_dir)i;
    fail_found(arena, t, "field 'dir'", name, "in out inout workspace mailbox");
}

/* Whether a mailbox argument carries a value of the step. Without a port the kernel pushes and
 * polls something of its own, of which nothing more is said. */
static bool is_published(lathe_arena *arena, const lathe_table *t) {
    static const char *const words[] = {"dtype", "form", "optional", "shape"};
    if (lathe_tree_find(t, "port")) {
        const char *form = lathe_tree_string(arena, t, "form");
        if (strcmp(form, "rank_partials") != 0 && strcmp(form, "columns") != 0)
            fail_found(arena, t, "field 'form'", form, "rank_partials columns (in a mailbox)");
        return true;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (lathe_tree_find(t, words[i]))
            fail(arena, t, "allowed in a mailbox only with 'port': field ", words[i]);
    return false;
}

static lathe_arg read_arg(lathe_arena *arena, const lathe_provider *p, const lathe_table *t) {
    static const char *const allowed[] = {
        [LATHE_DIR_IN] = "dir doc dtype form optional port settled shape",
        [LATHE_DIR_OUT] = "ahead dir doc dtype form optional port shape when",
        [LATHE_DIR_INOUT] = "dir doc dtype form optional port shape",
        [LATHE_DIR_WORKSPACE] = "dir doc dtype shape zeroed",
        [LATHE_DIR_MAILBOX] = "bytes dir doc dtype exchange form optional port shape when",
    };
    lathe_arg arg = {.where = t->where, .name = t->name, .dir = read_dir(arena, t)};
    lathe_tree_check(arena, t, allowed[arg.dir], false);
    if (!is_identifier(t->name))
        fail(arena, t, "allowed: a name that C++ allows", "");
    arg.when = node_or_nil(lathe_tree_function_or_null(arena, t, "when"));
    if (arg.dir == LATHE_DIR_MAILBOX) {
        arg.exchange = lathe_tree_string(arena, t, "exchange");
        arg.bytes = node_or_nil(lathe_tree_function_or_null(arena, t, "bytes"));
        if (arg.bytes.kind == LATHE_NODE_NIL)
            fail_found(arena, t, "field 'bytes'", "none", "a function of the constants");
        if (!is_published(arena, t))
            return arg;
    }
    arg.dtype = lathe_dtype_parse(arena, t->where, lathe_tree_describe(arena, t),
                                  lathe_tree_find(t, "dtype"));
    arg.form = lathe_form_parse(arena, t->where, lathe_tree_describe(arena, t),
                                lathe_tree_string_or(arena, t, "form", "whole"));
    read_shape(arena, p, t, &arg);
    arg.optional = lathe_tree_boolean_or(arena, t, "optional", false);
    arg.zeroed = lathe_tree_boolean_or(arena, t, "zeroed", false);
    arg.settled = lathe_tree_boolean_or(arena, t, "settled", false);
    arg.ahead = lathe_tree_boolean_or(arena, t, "ahead", false);
    if (arg.dir != LATHE_DIR_WORKSPACE)
        read_ports(arena, t, &arg);
    return arg;
}

/* What is there before a trigger needs one. */
static void check_ahead(lathe_arena *arena, const lathe_table *t, const lathe_provider *p) {
    for (size_t i = 0; i < p->arg_count; i++)
        if (p->args[i].ahead && !p->triggers)
            fail_found(arena, t, "field 'ahead'", "true", "in a provider with triggers = true");
}

static void read_covers(lathe_arena *arena, const lathe_table *t, lathe_provider *p) {
    const lathe_table *parts = lathe_tree_table(arena, t, "parts");
    const bool lists = parts->item_count && parts->items[0].kind == LATHE_NODE_TABLE;
    p->cover_count = lists ? parts->item_count : 1;
    p->covers = lathe_arena_alloc(arena, p->cover_count, sizeof *p->covers);
    for (size_t i = 0; i < p->cover_count; i++) {
        const lathe_table *list =
            lists ? lathe_tree_expect(arena, t->where, "parts", &parts->items[i], "") : parts;
        lathe_kinds *cover = &p->covers[i];
        if (!list->item_count)
            fail_found(arena, t, "field 'parts'", "none", "kinds of parts");
        cover->kind_count = list->item_count;
        cover->kinds = lathe_arena_alloc(arena, cover->kind_count, sizeof *cover->kinds);
        for (size_t j = 0; j < cover->kind_count; j++) {
            cover->kinds[j] = lathe_tree_item_string(arena, list, j, "field 'parts'");
            for (size_t k = 0; k < j; k++)
                if (strcmp(cover->kinds[j], cover->kinds[k]) == 0)
                    fail(arena, t, "field 'parts': stands twice: ", cover->kinds[j]);
        }
    }
}

static void read_constants(lathe_arena *arena, const lathe_table *t, lathe_provider *p) {
    const lathe_table *list = lathe_tree_table(arena, t, "constants");
    p->constants = lathe_arena_alloc(arena, list->item_count + 1, sizeof *p->constants);
    for (size_t i = 0; i < list->item_count; i++) {
        const lathe_table *c =
            lathe_tree_expect(arena, t->where, "constants", &list->items[i], "const");
        if (lathe_provider_constant(p, c->name) >= 0)
            fail(arena, c, "the name stands twice", "");
        p->constants[p->constant_count++] = read_constant(arena, c);
        p->tactic_count += p->constants[i].source == LATHE_CONST_TACTIC;
    }
}

static void read_args(lathe_arena *arena, const lathe_table *t, lathe_provider *p) {
    const lathe_table *list = lathe_tree_table(arena, t, "args");
    p->args = lathe_arena_alloc(arena, list->item_count + 1, sizeof *p->args);
    for (size_t i = 0; i < list->item_count; i++) {
        const lathe_table *a = lathe_tree_expect(arena, t->where, "args", &list->items[i], "arg");
        if (lathe_provider_arg(p, a->name) >= 0)
            fail(arena, a, "the name stands twice", "");
        p->args[p->arg_count++] = read_arg(arena, p, a);
    }
    for (size_t i = 0; i < p->constant_count; i++)
        if (p->constants[i].source == LATHE_CONST_HAS &&
            lathe_provider_arg(p, p->constants[i].from) < 0)
            lathe_diag_fail(lathe_arena_diag(arena), p->constants[i].where,
                            "const \"%s\": field 'has': no argument is called \"%s\"",
                            p->constants[i].name, p->constants[i].from);
}

static void read_functions(lathe_arena *arena, const lathe_table *t, lathe_provider *p) {
    p->launch = node_or_nil(lathe_tree_function_or_null(arena, t, "launch"));
    p->cost = node_or_nil(lathe_tree_function_or_null(arena, t, "cost"));
    p->tactics = node_or_nil(lathe_tree_function_or_null(arena, t, "tactics"));
    p->otherwise = node_or_nil(lathe_tree_function_or_null(arena, t, "default"));
    p->unsupported = node_or_nil(lathe_tree_function_or_null(arena, t, "unsupported"));
    if (p->launch.kind == LATHE_NODE_NIL)
        fail_found(arena, t, "field 'launch'", "none", "a function");
    if (p->cost.kind == LATHE_NODE_NIL)
        fail_found(arena, t, "field 'cost'", "none", "a function");
    if (p->tactic_count && p->otherwise.kind == LATHE_NODE_NIL)
        fail(arena, t, "field 'default': a function is needed, there are tactic constants", "");
}

static bool is_provider_name(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t folder = strspn(name, letters);
    return folder && name[folder] == '/' && name[folder + 1] &&
           name[folder + 1 + strspn(name + folder + 1, letters)] == '\0';
}

/* The library moves one whole value into another: no kernel, nothing to choose. */
static void read_collective(lathe_arena *arena, const lathe_table *t, lathe_provider *p) {
    const bool gather = strcmp(p->collective, "all_gather") == 0;
    lathe_tree_check(arena, t, "args collective constants doc parts unsupported", false);
    if (!gather && strcmp(p->collective, "all_reduce") != 0)
        fail_found(arena, t, "field 'collective'", p->collective, "all_reduce all_gather");
    read_covers(arena, t, p);
    read_constants(arena, t, p);
    read_args(arena, t, p);
    p->unsupported = node_or_nil(lathe_tree_function_or_null(arena, t, "unsupported"));
    const lathe_arg *from = p->args, *to = p->args + 1;
    if (p->arg_count != 2 || from->dir != LATHE_DIR_IN || to->dir != LATHE_DIR_OUT ||
        from->dtype != to->dtype || from->form != LATHE_WHOLE || from->optional || to->optional ||
        to->form != (gather ? LATHE_COLUMNS : LATHE_WHOLE))
        fail(arena, t,
             "field 'args': allowed with 'collective': one in of form whole, then one out of the "
             "same dtype, of form ",
             gather ? "columns" : "whole");
    if (p->tactic_count)
        fail(arena, t, "field 'constants': a collective has no tactics", "");
}

lathe_provider *lathe_provider_load(lathe_lua *lua, lathe_where where, const char *name) {
    lathe_arena *arena = lathe_lua_arena(lua);
    lathe_diag *diag = lathe_arena_diag(arena);
    if (!is_provider_name(name))
        lathe_diag_fail(diag, where, "use \"%s\": allowed: FOLDER/NAME of a-z 0-9 _", name);
    const char *spec = lathe_arena_print(arena, "templates/%s.lua", name);
    const char *path = lathe_arena_print(arena, "%s/%s", lathe_lua_root(lua), spec);
    if (!lathe_lua_read(lua, spec, path))
        lathe_diag_fail(diag, where, "use \"%s\": unknown provider, there is no %s", name, spec);
    const lathe_node returned = lathe_lua_run(lua, spec, path);
    const lathe_table *t = lathe_tree_expect(arena, (lathe_where){spec, 0}, "what the file returns",
                                             &returned, "provider");
    lathe_tree_check(arena, t,
                     "args collective constants cost default doc early entry launch parts tactics "
                     "spills triggers unsupported",
                     false);
    if (strcmp(t->name, name) != 0)
        fail(arena, t, "the name must be that of the file, ", name);
    lathe_provider *p = lathe_arena_alloc(arena, 1, sizeof *p);
    *p = (lathe_provider){.where = t->where, .name = t->name, .spec = spec};
    p->doc = lathe_tree_string_or(arena, t, "doc", "");
    if ((p->collective = lathe_tree_string_or(arena, t, "collective", NULL))) {
        read_collective(arena, t, p);
        return p;
    }
    p->entry = lathe_tree_string(arena, t, "entry");
    if (!is_identifier(p->entry))
        fail_found(arena, t, "field 'entry'", p->entry, "a name that C++ allows");
    p->early = lathe_tree_boolean_or(arena, t, "early", false);
    p->triggers = lathe_tree_boolean_or(arena, t, "triggers", false);
    p->spills = lathe_tree_string_or(arena, t, "spills", NULL);
    if (p->spills && (!*p->spills || strlen(p->spills) > 120))
        fail_found(arena, t, "field 'spills'", *p->spills ? p->spills : "nothing",
                   "why its kernels may spill registers, in 120 bytes");
    read_covers(arena, t, p);
    read_constants(arena, t, p);
    read_args(arena, t, p);
    check_ahead(arena, t, p);
    read_functions(arena, t, p);
    return p;
}
