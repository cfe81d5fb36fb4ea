/* SPDX-License-Identifier: Apache-2.0
 * Chooses the tactics of a kernel: the table's exact entry first, the spec's rule last. */
#include "tactic.h"

#include "tactic_table.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>

static const lathe_arch archs[] = {
    {"sm_90a", 232448, 65536, 132, 2048, 32},  {"sm_100a", 232448, 65536, 148, 2048, 32},
    {"sm_103a", 232448, 65536, 148, 2048, 32}, {"sm_120a", 101376, 65536, 188, 1536, 24},
    {"host", 232448, 65536, 2, 2048, 32},
};

const lathe_arch *lathe_arch_find(lathe_diag *diag, lathe_where where, const char *name) {
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(archs[i].name, name) == 0)
            return &archs[i];
    lathe_diag_fail(diag, where,
                    "unknown architecture \"%s\"; allowed: sm_90a sm_100a sm_103a sm_120a host",
                    name);
}

static bool is_real(const lathe_node *node) {
    return node->kind == LATHE_NODE_INTEGER || node->kind == LATHE_NODE_REAL;
}

lathe_bound lathe_tactic_bound(lathe_arena *arena, const lathe_const *c, lathe_where where,
                               const lathe_node *node, const char *origin) {
    lathe_diag *diag = lathe_arena_diag(arena);
    if (c->real ? !is_real(node) : node->kind != LATHE_NODE_INTEGER)
        lathe_diag_fail(diag, where, "constant %s (%s): found %s, allowed: %s", c->name, origin,
                        lathe_tree_found(arena, node), c->real ? "a number" : "an integer");
    const bool finite = node->real - node->real == 0;
    if (!finite || (is_real(&c->min) && node->real < c->min.real) ||
        (is_real(&c->max) && node->real > c->max.real))
        lathe_diag_fail(diag, where, "constant %s (%s): found %s, allowed: from %s to %s (%s:%d)",
                        c->name, origin, lathe_tree_found(arena, node),
                        is_real(&c->min) ? lathe_tree_found(arena, &c->min) : "any",
                        is_real(&c->max) ? lathe_tree_found(arena, &c->max) : "any", c->where.file,
                        c->where.line);
    if (!c->real && (node->integer < INT32_MIN || node->integer > INT32_MAX))
        lathe_diag_fail(diag, where, "constant %s (%s): found %s, allowed: 32 bits", c->name,
                        origin, lathe_tree_found(arena, node));
    return (lathe_bound){true, node->integer, node->real, origin};
}

/* Constants not known yet are nil; a name the spec does not declare is an error. */
lathe_node lathe_tactic_constants(lathe_arena *arena, const lathe_provider *p,
                                  const lathe_bound *constants) {
    lathe_table *t = lathe_tree_make(arena);
    t->strict = true;
    for (size_t i = 0; i < p->constant_count; i++) {
        const lathe_bound *b = &constants[i];
        const lathe_node_kind kind = !b->known              ? LATHE_NODE_NIL
                                     : p->constants[i].real ? LATHE_NODE_REAL
                                                            : LATHE_NODE_INTEGER;
        const lathe_node node = {.kind = kind, .integer = b->integer, .real = b->real};
        lathe_tree_set_node(arena, t, p->constants[i].name, node);
    }
    return (lathe_node){.kind = LATHE_NODE_TABLE, .table = t};
}

/* A set of the kinds. */
static lathe_node kinds_node(lathe_arena *arena, const char *const *kinds, size_t count) {
    const lathe_node yes = {.kind = LATHE_NODE_BOOLEAN, .boolean = true};
    const char **sorted = lathe_arena_alloc(arena, count + 1, sizeof *sorted);
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        for (; at > 0 && strcmp(sorted[at - 1], kinds[i]) > 0; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = kinds[i];
    }
    lathe_table *t = lathe_tree_make(arena);
    for (size_t i = 0; i < count; i++)
        if (!i || strcmp(sorted[i], sorted[i - 1]) != 0)
            lathe_tree_set_node(arena, t, sorted[i], yes);
    return (lathe_node){.kind = LATHE_NODE_TABLE, .table = t};
}

lathe_node lathe_tactic_arch(lathe_arena *arena, const lathe_arch *arch, int64_t ranks,
                             const char *const *kinds, size_t kind_count) {
    lathe_table *t = lathe_tree_make(arena);
    t->strict = true;
    lathe_tree_set_integer(arena, t, "multiprocessors", arch->multiprocessors);
    lathe_tree_set_node(arena, t, "name",
                        (lathe_node){.kind = LATHE_NODE_STRING, .string = arch->name});
    lathe_tree_set_node(arena, t, "parts", kinds_node(arena, kinds, kind_count));
    lathe_tree_set_integer(arena, t, "ranks", ranks);
    lathe_tree_set_integer(arena, t, "registers", arch->registers);
    lathe_tree_set_integer(arena, t, "shared", arch->shared);
    return (lathe_node){.kind = LATHE_NODE_TABLE, .table = t};
}

/* Calls function(c, arch). */
static lathe_node call(const lathe_choice *choice, const lathe_node *function,
                       const lathe_bound *constants, const char *what) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_node args[2] = {lathe_tactic_constants(arena, choice->provider, constants),
                                choice->given};
    return lathe_lua_call(choice->lua, function, args, 2, what);
}

static _Noreturn void fail(const lathe_choice *choice, const char *message) {
    lathe_diag_fail(lathe_arena_diag(lathe_lua_arena(choice->lua)), choice->where,
                    "%s: provider %s: %s", choice->launch, choice->provider->name, message);
}

/* With `constants` as far as they are known: once before a tactic is chosen, then for each tactic.
 */
static void check_supported(const lathe_choice *choice, const lathe_bound *constants) {
    const lathe_node *function = &choice->provider->unsupported;
    if (function->kind == LATHE_NODE_NIL)
        return;
    const lathe_node reason = call(choice, function, constants, "unsupported");
    if (reason.kind == LATHE_NODE_STRING)
        fail(choice,
             lathe_arena_print(lathe_lua_arena(choice->lua), "unsupported: %s", reason.string));
    if (reason.kind != LATHE_NODE_NIL)
        lathe_diag_fail(lathe_arena_diag(lathe_lua_arena(choice->lua)), function->where,
                        "unsupported: allowed: a string or nil");
}

/* Fills in the tactic's constants from `t`. */
static void take_tactic(const lathe_choice *choice, const lathe_table *t, lathe_where where,
                        const char *origin, lathe_tactic *tactic) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_provider *p = choice->provider;
    lathe_text name = {.arena = arena};
    tactic->constants = lathe_arena_alloc(arena, p->constant_count + 1, sizeof *tactic->constants);
    memcpy(tactic->constants, choice->constants, p->constant_count * sizeof *tactic->constants);
    for (size_t i = 0; i < t->field_count; i++) {
        const int c = lathe_provider_constant(p, t->fields[i].key);
        if (c < 0 || p->constants[c].source != LATHE_CONST_TACTIC)
            lathe_diag_fail(lathe_arena_diag(arena), where,
                            "tactic of %s: unknown field '%s'; allowed: %s", p->name,
                            t->fields[i].key, lathe_tactic_list_constants(arena, p, true));
        tactic->constants[c] =
            lathe_tactic_bound(arena, &p->constants[c], where, &t->fields[i].value, origin);
    }
    for (size_t i = 0; i < p->constant_count; i++) {
        const lathe_const *c = &p->constants[i];
        if (c->source != LATHE_CONST_TACTIC)
            continue;
        if (!tactic->constants[i].known && c->otherwise.kind != LATHE_NODE_NIL)
            tactic->constants[i] = lathe_tactic_bound(
                arena, c, c->where, &c->otherwise,
                lathe_arena_print(arena, "%s:%d, default", c->where.file, c->where.line));
        if (!tactic->constants[i].known)
            lathe_diag_fail(lathe_arena_diag(arena), where, "tactic of %s: %s is missing", p->name,
                            c->name);
        lathe_text_print(&name, "%s%s=%" PRId64, name.size ? "," : "", c->name,
                         tactic->constants[i].integer);
    }
    tactic->name = name.size ? lathe_text_string(&name) : "only";
}

static void compute_constants(const lathe_choice *choice, lathe_tactic *tactic) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_provider *p = choice->provider;
    for (size_t i = 0; i < p->constant_count; i++) {
        const lathe_const *c = &p->constants[i];
        if (c->source != LATHE_CONST_COMPUTED)
            continue;
        const lathe_node value = call(choice, &c->value, tactic->constants, c->name);
        tactic->constants[i] = lathe_tactic_bound(
            arena, c, c->where, &value,
            lathe_arena_print(arena, "%s:%d, computed", c->where.file, c->where.line));
    }
}

static void read_grid(const lathe_choice *choice, const lathe_table *launch, lathe_tactic *tactic) {
    static const int64_t limits[3] = {INT32_MAX, 65535, 65535};
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_where where = choice->provider->launch.where;
    const lathe_node *grid = lathe_tree_find(launch, "grid");
    for (size_t i = 0; i < 3; i++)
        tactic->grid[i] = 1;
    if (!grid || grid->kind != LATHE_NODE_TABLE) {
        tactic->grid[0] = lathe_tree_number(arena, where, "launch: grid", grid, 1, limits[0]);
        return;
    }
    if (grid->table->item_count > 3 || grid->table->item_count < 1)
        lathe_diag_fail(lathe_arena_diag(arena), where, "launch: grid: allowed: 1 to 3 numbers");
    for (size_t i = 0; i < grid->table->item_count; i++)
        tactic->grid[i] =
            lathe_tree_number(arena, where, "launch: grid", &grid->table->items[i], 1, limits[i]);
}

static int64_t min_blocks(const lathe_arch *arch, const lathe_tactic *t) {
    int64_t blocks = arch->registers / (t->registers * t->block);
    if (blocks > arch->threads / t->block)
        blocks = arch->threads / t->block;
    if (blocks > arch->blocks)
        blocks = arch->blocks;
    return blocks < 1 ? 1 : blocks;
}

static void check_limits(const lathe_choice *choice, const lathe_tactic *t) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_arch *arch = choice->arch;
    if (t->shared > arch->shared)
        fail(choice, lathe_arena_print(arena,
                                       "tactic %s needs %" PRId64
                                       " bytes of shared memory; %s allows %" PRId64,
                                       t->name, t->shared, arch->name, arch->shared));
    if (t->registers * t->block > arch->registers)
        fail(choice,
             lathe_arena_print(arena,
                               "tactic %s needs %" PRId64 " registers for each of %" PRId64
                               " threads; %s allows %" PRId64 " in all",
                               t->name, t->registers, t->block, arch->name, arch->registers));
}

/* Eight is what every GPU that has clusters can start. */
static void read_cluster(const lathe_choice *choice, const lathe_table *launch,
                         lathe_tactic *tactic) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_where where = choice->provider->launch.where;
    tactic->cluster = lathe_tree_integer_or(arena, launch, "cluster", 1, 8, 1);
    if (tactic->grid[0] % tactic->cluster)
        lathe_diag_fail(lathe_arena_diag(arena), where,
                        "launch: cluster: found %" PRId64 ", allowed: a divisor of the %" PRId64
                        " blocks along x",
                        tactic->cluster, tactic->grid[0]);
    if (tactic->cluster > 1 && tactic->cooperative)
        lathe_diag_fail(lathe_arena_diag(arena), where,
                        "launch: cluster: found with cooperative, allowed: one of them");
}

static void lay_out_launch(const lathe_choice *choice, lathe_tactic *tactic) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_provider *p = choice->provider;
    const lathe_node result = call(choice, &p->launch, tactic->constants, "launch");
    const lathe_table *t = lathe_tree_returned(arena, p->launch.where, "launch", &result);
    lathe_tree_check(arena, t, "block cluster cooperative grid registers shared", false);
    read_grid(choice, t, tactic);
    tactic->block = lathe_tree_integer(arena, t, "block", 1, 1024);
    tactic->shared = lathe_tree_integer_or(arena, t, "shared", 0, INT32_MAX, 0);
    tactic->registers = lathe_tree_integer(arena, t, "registers", 16, 255);
    tactic->cooperative = lathe_tree_boolean_or(arena, t, "cooperative", false);
    read_cluster(choice, t, tactic);
    if (tactic->block % 32)
        lathe_diag_fail(lathe_arena_diag(arena), p->launch.where,
                        "launch: block: found %" PRId64 ", allowed: a multiple of 32",
                        tactic->block);
    check_limits(choice, tactic);
    tactic->min_blocks = min_blocks(choice->arch, tactic);
}

static lathe_tactic make_tactic(const lathe_choice *choice, const lathe_table *t, lathe_where where,
                                const char *origin) {
    lathe_tactic tactic = {0};
    take_tactic(choice, t, where, origin, &tactic);
    compute_constants(choice, &tactic);
    check_supported(choice, tactic.constants);
    if (!choice->provider->collective)
        lay_out_launch(choice, &tactic);
    return tactic;
}

static bool same_tactic(const lathe_choice *choice, const lathe_tactic *a, const lathe_table *b) {
    const lathe_provider *p = choice->provider;
    for (size_t i = 0; i < p->constant_count; i++) {
        if (p->constants[i].source != LATHE_CONST_TACTIC)
            continue;
        const lathe_node *node = lathe_tree_find(b, p->constants[i].name);
        if (node && node->integer != a->constants[i].integer)
            return false;
    }
    return true;
}

static void list_tactic(const lathe_provider *p, const lathe_table *t, lathe_text *out) {
    bool first = true;
    for (size_t i = 0; i < p->constant_count; i++) {
        const lathe_node *node = lathe_tree_find(t, p->constants[i].name);
        if (p->constants[i].source != LATHE_CONST_TACTIC || !node)
            continue;
        lathe_text_print(out, "%s%s=%" PRId64, first ? out->size ? "; " : "" : ",",
                         p->constants[i].name, node->integer);
        first = false;
    }
}

/* A tactic, measured or by the rule, must be one of those the spec says exist for this shape. */
static void check_exists(const lathe_choice *choice, const lathe_tactic *tactic,
                         lathe_where where) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_node *function = &choice->provider->tactics;
    if (function->kind == LATHE_NODE_NIL)
        return;
    const lathe_node result = call(choice, function, choice->constants, "tactics");
    const lathe_table *list = lathe_tree_returned(arena, function->where, "tactics", &result);
    lathe_text allowed = {.arena = arena};
    for (size_t i = 0; i < list->item_count; i++) {
        const lathe_table *t = lathe_tree_expect(arena, function->where, "what 'tactics' returns",
                                                 &list->items[i], "");
        if (same_tactic(choice, tactic, t))
            return;
        list_tactic(choice->provider, t, &allowed);
    }
    lathe_diag_fail(lathe_arena_diag(arena), where,
                    "tactic %s of %s: the spec has none such for this shape on %s; allowed: %s",
                    tactic->name, choice->provider->name, choice->arch->name,
                    allowed.size ? lathe_text_string(&allowed) : "none");
}

/* What the spec's rule returns: one tactic, or a list of them in order of preference. */
static const lathe_table *ask_rule(const lathe_choice *choice) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_node *function = &choice->provider->otherwise;
    if (function->kind == LATHE_NODE_NIL)
        return lathe_tree_make(arena);
    const lathe_node result = call(choice, function, choice->constants, "default");
    return lathe_tree_returned(arena, function->where, "default", &result);
}

/* Appends a tactic that is not there yet; those of one name have the same constants. */
static void add_new(const lathe_choice *choice, const lathe_table *t, lathe_tactic *tactics,
                    size_t *count) {
    const lathe_where where = choice->provider->otherwise.where;
    const lathe_tactic rule = make_tactic(
        choice, t, where,
        lathe_arena_print(lathe_lua_arena(choice->lua), "%s:%d, rule", where.file, where.line));
    for (size_t i = 0; i < *count; i++)
        if (strcmp(tactics[i].name, rule.name) == 0)
            return;
    if (strcmp(choice->arch->name, "host") != 0)
        check_exists(choice, &rule, where);
    tactics[(*count)++] = rule;
}

static void add_rule(const lathe_choice *choice, const lathe_table *rule, lathe_tactic *tactics,
                     size_t *count) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    if (!rule->item_count)
        add_new(choice, rule, tactics, count);
    for (size_t i = 0; i < rule->item_count; i++)
        add_new(choice,
                lathe_tree_expect(arena, choice->provider->otherwise.where,
                                  "an entry of what 'default' returns", &rule->items[i], ""),
                tactics, count);
}

/* The entry that fits, of the table that is asked first and has one. */
static const lathe_tactic_entry *find_entry(const lathe_choice *choice) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_tactics *tables[2] = {choice->before, choice->table};
    const lathe_tactic_entry *entry = NULL;
    for (size_t i = 0; i < 2 && !entry; i++)
        if (tables[i])
            entry = lathe_tactic_find(arena, tables[i], choice->provider, choice->constants,
                                      choice->rows);
    return entry;
}

/* The name of the first tactic of the spec's rule. */
static const char *name_rule(const lathe_choice *choice, const lathe_table *rule) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    lathe_tactic *tactics = lathe_arena_alloc(arena, rule->item_count + 1, sizeof *tactics);
    size_t count = 0;
    add_rule(choice, rule, tactics, &count);
    return tactics[0].name;
}

/* Appends the constants of a tactic that is not there yet. */
static void list_new(const lathe_choice *choice, const lathe_table *t, lathe_where where,
                     lathe_tactic *tactics, size_t *count) {
    lathe_tactic *tactic = &tactics[*count];
    *tactic = (lathe_tactic){0};
    take_tactic(choice, t, where, "listed", tactic);
    for (size_t i = 0; i < *count; i++)
        if (strcmp(tactics[i].name, tactic->name) == 0)
            return;
    ++*count;
}

/* Keeps at most `most`: `rule` and `taken`, and of the others one in every so many. */
static void thin(lathe_tactic *tactics, size_t *count, size_t most, const char *rule,
                 const char *taken) {
    size_t fixed = 0, seen = 0, kept = 0;
    for (size_t i = 0; i < *count; i++)
        fixed += strcmp(tactics[i].name, rule) == 0 || strcmp(tactics[i].name, taken) == 0;
    const size_t others = *count - fixed, room = most > fixed ? most - fixed : 0;
    for (size_t i = 0; i < *count; i++) {
        const bool is_fixed =
            strcmp(tactics[i].name, rule) == 0 || strcmp(tactics[i].name, taken) == 0;
        const bool has_turn = others <= room || (seen + 1) * room / others > seen * room / others;
        seen += !is_fixed;
        if (is_fixed || has_turn)
            tactics[kept++] = tactics[i];
    }
    *count = kept;
}

lathe_tactic *lathe_tactic_list(const lathe_choice *choice, const char *taken, size_t most,
                                size_t *count, const char **rule_name) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_node *function = &choice->provider->tactics;
    lathe_lua_renew(choice->lua);
    const lathe_table *rule = ask_rule(choice);
    const lathe_table *list = lathe_tree_make(arena);
    if (function->kind != LATHE_NODE_NIL) {
        const lathe_node result = call(choice, function, choice->constants, "tactics");
        list = lathe_tree_returned(arena, function->where, "tactics", &result);
    }
    lathe_tactic *tactics =
        lathe_arena_alloc(arena, list->item_count + rule->item_count + 2, sizeof *tactics);
    *count = 0;
    for (size_t i = 0; i < list->item_count; i++)
        list_new(choice,
                 lathe_tree_expect(arena, function->where, "what 'tactics' returns",
                                   &list->items[i], ""),
                 function->where, tactics, count);
    const lathe_where where = choice->provider->otherwise.where;
    if (!rule->item_count)
        list_new(choice, rule, where, tactics, count);
    for (size_t i = 0; i < rule->item_count; i++)
        list_new(choice,
                 lathe_tree_expect(arena, where, "an entry of what 'default' returns",
                                   &rule->items[i], ""),
                 where, tactics, count);
    *rule_name = name_rule(choice, rule);
    thin(tactics, count, most, *rule_name, taken);
    for (size_t i = 0; i < *count; i++) {
        compute_constants(choice, &tactics[i]);
        if (!choice->provider->collective)
            lay_out_launch(choice, &tactics[i]);
    }
    return tactics;
}

/* The lead's constants; of the neutral ones those that would be chosen here. */
static lathe_tactic follow(const lathe_choice *choice, const lathe_tactic *own) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    const lathe_provider *p = choice->provider;
    lathe_table *t = lathe_tree_make(arena);
    for (size_t i = 0; i < p->constant_count; i++)
        if (p->constants[i].source == LATHE_CONST_TACTIC)
            lathe_tree_set_integer(
                arena, t, p->constants[i].name,
                (p->constants[i].neutral ? own : choice->lead)->constants[i].integer);
    return make_tactic(choice, t, p->otherwise.where, "that of the variant of the most rows");
}

lathe_tactic *lathe_tactic_choose(const lathe_choice *choice, size_t *count, const char **why) {
    lathe_arena *arena = lathe_lua_arena(choice->lua);
    check_supported(choice, choice->constants);
    const lathe_tactic_entry *entry = find_entry(choice);
    const size_t listed = entry ? entry->choice_count : 0;
    const lathe_table *rule = ask_rule(choice);
    lathe_tactic *tactics =
        lathe_arena_alloc(arena, listed + 1 + rule->item_count, sizeof *tactics);
    *count = 0;
    for (size_t i = 0; i < listed; i++) {
        const char *origin =
            lathe_arena_print(arena, "%s:%d", entry->where.file, entry->where.line);
        tactics[i] = make_tactic(choice, entry->choices[i], entry->where, origin);
        check_exists(choice, &tactics[i], entry->where);
        ++*count;
    }
    add_rule(choice, rule, tactics, count);
    *why = entry ? lathe_arena_print(arena, "measured, %s:%d", entry->where.file, entry->where.line)
           : choice->table && lathe_tactic_foreign(choice->table)
               ? lathe_arena_print(arena, "the spec's rule, %s is of another architecture",
                                   lathe_tactic_file(choice->table))
           : choice->table ? lathe_arena_print(arena, "the spec's rule, no entry in %s for it",
                                               lathe_tactic_file(choice->table))
                           : "the spec's rule, no table was asked for";
    if (choice->invariant)
        *count = 1;
    if (choice->lead) {
        tactics[0] = follow(choice, &tactics[0]);
        *why = "that of the variant of the most rows, so that a row's bits are the same in all";
    }
    return tactics;
}
