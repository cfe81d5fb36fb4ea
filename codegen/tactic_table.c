/* SPDX-License-Identifier: Apache-2.0
 * Reads a measured table and finds the entry of a kernel: provider, shape and rows must all agree.
 */
#include "tactic_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct lathe_tactics {
    const char *file;
    const char *foreign; /* why nothing is taken of it; NULL: it is of the step's architecture */
    lathe_tactic_entry *entries;
    size_t entry_count;
    lathe_ceilings ceilings;
};

lathe_ceilings lathe_tactic_ceilings(const lathe_tactics *table) {
    return table->ceilings;
}

const char *lathe_tactic_foreign(const lathe_tactics *table) {
    return table->foreign;
}

const char *lathe_tactic_file(const lathe_tactics *table) {
    return table->file;
}

size_t lathe_tactic_used(const lathe_tactics *table, size_t *count) {
    size_t used = 0;
    for (size_t i = 0; i < table->entry_count; i++)
        used += table->entries[i].used;
    *count = table->entry_count;
    return used;
}

void lathe_tactic_list_unused(const lathe_tactics *table, lathe_text *out) {
    for (size_t i = 0; i < table->entry_count && !table->foreign; i++)
        if (!table->entries[i].used)
            lathe_text_print(out, "%s:%d: \"%s\" is for no kernel of this step\n", table->file,
                             table->entries[i].where.line, table->entries[i].provider);
}

/* Whether a tactic, or else the shape of an entry, may name the constant. */
static bool is_named_by(const lathe_const *c, bool tactic) {
    return tactic ? c->source == LATHE_CONST_TACTIC
                  : c->source != LATHE_CONST_TACTIC && c->source != LATHE_CONST_COMPUTED;
}

const char *lathe_tactic_list_constants(lathe_arena *arena, const lathe_provider *p, bool tactic) {
    lathe_text text = {.arena = arena};
    for (size_t i = 0; i < p->constant_count; i++)
        if (is_named_by(&p->constants[i], tactic))
            lathe_text_print(&text, "%s%s", text.size ? " " : "", p->constants[i].name);
    return text.size ? lathe_text_string(&text) : "none";
}

/* What was measured, where and how: kept for readers and for `lathe tune`; checked for form only.
 */
static void check_record(lathe_arena *arena, const lathe_table *t) {
    const lathe_table *record = lathe_tree_table(arena, t, "record");
    lathe_table named = *record;
    named.constructor = "record";
    lathe_tree_check(arena, &named, "date driver gpu losers median_us spread_us toolkit tried",
                     false);
    static const char *const texts[] = {"date", "driver", "gpu", "toolkit"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        (void)lathe_tree_string(arena, &named, texts[i]);
    static const char *const numbers[] = {"median_us", "spread_us"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const lathe_node *node = lathe_tree_find(record, numbers[i]);
        if (!node || (node->kind != LATHE_NODE_REAL && node->kind != LATHE_NODE_INTEGER))
            lathe_diag_fail(lathe_arena_diag(arena), t->where,
                            "record: field '%s': found %s, allowed: a number", numbers[i],
                            lathe_tree_found(arena, node));
    }
    (void)lathe_tree_table(arena, &named, "losers");
}

static lathe_tactic_entry read_entry(lathe_lua *lua, const lathe_table *t) {
    lathe_arena *arena = lathe_lua_arena(lua);
    lathe_tree_check(arena, t, "choose record rows shape", false);
    lathe_tactic_entry entry = {.where = t->where, .provider = t->name};
    entry.shape = lathe_tree_table(arena, t, "shape");
    entry.rows = lathe_tree_integer(arena, t, "rows", 0, 65536);
    check_record(arena, t);
    const lathe_table *list = lathe_tree_table(arena, t, "choose");
    if (!list->item_count)
        lathe_diag_fail(lathe_arena_diag(arena), t->where,
                        "tactic \"%s\": field 'choose': found none, allowed: tactics", t->name);
    entry.choice_count = list->item_count;
    entry.choices = lathe_arena_alloc(arena, list->item_count, sizeof *entry.choices);
    for (size_t i = 0; i < list->item_count; i++)
        entry.choices[i] = lathe_tree_expect(arena, t->where, "choose", &list->items[i], "");
    return entry;
}

/* An entry names every constant that the shapes give, and any others it wants to insist on. */
static void check_shape(lathe_arena *arena, const lathe_tactic_entry *entry,
                        const lathe_provider *p) {
    for (size_t i = 0; i < entry->shape->field_count; i++) {
        const int c = lathe_provider_constant(p, entry->shape->fields[i].key);
        if (c < 0 || !is_named_by(&p->constants[c], false))
            lathe_diag_fail(lathe_arena_diag(arena), entry->where,
                            "tactic \"%s\": field 'shape': unknown field '%s'; allowed: %s",
                            p->name, entry->shape->fields[i].key,
                            lathe_tactic_list_constants(arena, p, false));
    }
    for (size_t i = 0; i < p->constant_count; i++)
        if (p->constants[i].source == LATHE_CONST_SHAPE &&
            !lathe_tree_find(entry->shape, p->constants[i].name))
            lathe_diag_fail(lathe_arena_diag(arena), entry->where,
                            "tactic \"%s\": field 'shape': %s is missing; it must name every "
                            "constant found in shapes",
                            p->name, p->constants[i].name);
}

static void check_choices(lathe_arena *arena, const lathe_tactic_entry *entry,
                          const lathe_provider *p) {
    for (size_t i = 0; i < entry->choice_count; i++)
        for (size_t f = 0; f < entry->choices[i]->field_count; f++) {
            const char *key = entry->choices[i]->fields[f].key;
            const int c = lathe_provider_constant(p, key);
            if (c < 0 || !is_named_by(&p->constants[c], true))
                lathe_diag_fail(lathe_arena_diag(arena), entry->where,
                                "tactic of %s: unknown field '%s'; allowed: %s", p->name, key,
                                lathe_tactic_list_constants(arena, p, true));
        }
}

/* An entry is checked whether a kernel of this step takes it or not. */
static void check_entry(lathe_lua *lua, const lathe_tactic_entry *entry) {
    lathe_arena *arena = lathe_lua_arena(lua);
    const char *spec = lathe_arena_print(arena, "templates/%s.lua", entry->provider);
    if (strstr(spec, "..") ||
        !lathe_lua_read(lua, spec, lathe_arena_print(arena, "%s/%s", lathe_lua_root(lua), spec)))
        lathe_diag_fail(lathe_arena_diag(arena), entry->where,
                        "tactic \"%s\": unknown provider, there is no %s", entry->provider, spec);
    const lathe_provider *p = lathe_provider_load(lua, entry->where, entry->provider);
    check_shape(arena, entry, p);
    check_choices(arena, entry, p);
}

static lathe_ceilings read_ceilings(lathe_arena *arena, const lathe_table *t) {
    const lathe_node *node = lathe_tree_find(t, "ceilings");
    if (!node)
        return (lathe_ceilings){0};
    lathe_table named = *lathe_tree_expect(arena, t->where, "ceilings", node, "");
    named.constructor = "ceilings";
    lathe_tree_check(arena, &named, "bf16_tflops read_gb_s", false);
    return (lathe_ceilings){lathe_tree_integer(arena, &named, "read_gb_s", 1, 1000000),
                            lathe_tree_integer(arena, &named, "bf16_tflops", 1, 1000000)};
}

/* What the table says that it was measured on, where that is not `arch`. */
static const char *find_foreign(lathe_arena *arena, const lathe_table *t, const lathe_arch *arch) {
    if (!lathe_tree_find(t, "arch"))
        return NULL;
    const char *own =
        lathe_arch_find(lathe_arena_diag(arena), t->where, lathe_tree_string(arena, t, "arch"))
            ->name;
    return strcmp(own, arch->name) == 0
               ? NULL
               : lathe_arena_print(arena, "%s:%d: measured on %s, nothing of it is taken for %s",
                                   t->where.file, t->where.line, own, arch->name);
}

lathe_tactics *lathe_tactic_load(lathe_lua *lua, const char *name, const lathe_arch *arch) {
    lathe_arena *arena = lathe_lua_arena(lua);
    lathe_diag *diag = lathe_arena_diag(arena);
    if (!*name || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")])
        lathe_diag_fail(
            diag, (lathe_where){0},
            "tactics \"%s\": allowed: a name of a-z 0-9 _, of a file of layouts/tactics", name);
    const char *shown = lathe_arena_print(arena, "layouts/tactics/%s.lua", name);
    const char *path = lathe_arena_print(arena, "%s/%s", lathe_lua_root(lua), shown);
    if (!lathe_lua_read(lua, shown, path))
        lathe_diag_fail(diag, (lathe_where){0}, "tactics \"%s\": there is no %s", name, shown);
    return lathe_tactic_load_file(lua, shown, path, arch);
}

lathe_tactics *lathe_tactic_load_file(lathe_lua *lua, const char *shown, const char *path,
                                      const lathe_arch *arch) {
    lathe_arena *arena = lathe_lua_arena(lua);
    const lathe_node returned = lathe_lua_run(lua, shown, path);
    const lathe_table *t = lathe_tree_expect(arena, (lathe_where){shown, 0},
                                             "what the file returns", &returned, "tactics");
    lathe_tree_check(arena, t, "arch ceilings doc", true);
    lathe_tactics *table = lathe_arena_alloc(arena, 1, sizeof *table);
    table->file = shown;
    table->foreign = find_foreign(arena, t, arch);
    const lathe_ceilings ceilings = read_ceilings(arena, t);
    table->ceilings = table->foreign ? (lathe_ceilings){0} : ceilings;
    table->entries = lathe_arena_alloc(arena, t->item_count + 1, sizeof *table->entries);
    for (size_t i = 0; i < t->item_count; i++) {
        table->entries[i] =
            read_entry(lua, lathe_tree_expect(arena, t->where, "tactics", &t->items[i], "tactic"));
        check_entry(lua, &table->entries[table->entry_count++]);
    }
    return table;
}

static bool matches(const lathe_tactic_entry *entry, const lathe_provider *p,
                    const lathe_bound *constants, int64_t rows) {
    if (entry->rows != rows)
        return false;
    for (size_t i = 0; i < entry->shape->field_count; i++) {
        const lathe_node *node = &entry->shape->fields[i].value;
        const int c = lathe_provider_constant(p, entry->shape->fields[i].key);
        if (p->constants[c].real ? node->real != constants[c].real
                                 : node->integer != constants[c].integer)
            return false;
    }
    return true;
}

const lathe_tactic_entry *lathe_tactic_find(lathe_arena *arena, const lathe_tactics *table,
                                            const lathe_provider *provider,
                                            const lathe_bound *constants, int64_t rows) {
    lathe_tactic_entry *found = NULL;
    for (size_t i = 0; i < table->entry_count && !table->foreign; i++) {
        lathe_tactic_entry *entry = &table->entries[i];
        if (strcmp(entry->provider, provider->name) != 0)
            continue;
        if (!matches(entry, provider, constants, rows))
            continue;
        if (found)
            lathe_diag_fail(lathe_arena_diag(arena), entry->where,
                            "tactic \"%s\": this shape stands before at line %d", provider->name,
                            found->where.line);
        found = entry;
        entry->used = true;
    }
    return found;
}
