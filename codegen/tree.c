/* SPDX-License-Identifier: Apache-2.0
 * Nodes and tables: look-up by name, checks of types and ranges with located messages. */
#include "tree.h"

#include "text.h"

#include <inttypes.h>
#include <string.h>

const char *lathe_tree_describe(lathe_arena *arena, const lathe_table *table) {
    if (!*table->constructor)
        return "a table";
    if (!*table->name)
        return table->constructor;
    return lathe_arena_print(arena, "%s \"%s\"", table->constructor, table->name);
}

const char *lathe_tree_found(lathe_arena *arena, const lathe_node *node) {
    if (!node)
        return "nothing";
    switch (node->kind) {
    case LATHE_NODE_NIL:
        return "nil";
    case LATHE_NODE_BOOLEAN:
        return node->boolean ? "true" : "false";
    case LATHE_NODE_INTEGER:
        return lathe_arena_print(arena, "%" PRId64, node->integer);
    case LATHE_NODE_REAL:
        return lathe_text_real(arena, node->real);
    case LATHE_NODE_STRING:
        return lathe_arena_print(arena, "the string \"%.60s\"", node->string);
    case LATHE_NODE_TABLE:
        return lathe_tree_describe(arena, node->table);
    case LATHE_NODE_FUNCTION:
        return "a function (of a constructor that lacks its table?)";
    }
    return "?";
}

const lathe_node *lathe_tree_find(const lathe_table *table, const char *key) {
    size_t low = 0, high = table->field_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(table->fields[middle].key, key);
        if (order == 0)
            return &table->fields[middle].value;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static bool is_word_of(const char *words, const char *word) {
    const size_t length = strlen(word);
    for (const char *w = words; *w;) {
        const size_t n = strcspn(w, " ");
        if (n == length && memcmp(w, word, n) == 0)
            return true;
        w += n;
        w += strspn(w, " ");
    }
    return false;
}

void lathe_tree_check(lathe_arena *arena, const lathe_table *table, const char *allowed,
                      bool items) {
    lathe_diag *diag = lathe_arena_diag(arena);
    for (size_t i = 0; i < table->field_count; i++)
        if (!is_word_of(allowed, table->fields[i].key))
            lathe_diag_fail(diag, table->where, "%s: unknown field '%s'; allowed: %s",
                            lathe_tree_describe(arena, table), table->fields[i].key, allowed);
    if (!items && table->item_count)
        lathe_diag_fail(
            diag, table->where, "%s: found %s without a field name; allowed are the fields: %s",
            lathe_tree_describe(arena, table), lathe_tree_found(arena, &table->items[0]), allowed);
}

const lathe_table *lathe_tree_expect(lathe_arena *arena, lathe_where where, const char *what,
                                     const lathe_node *node, const char *constructor) {
    if (node && node->kind == LATHE_NODE_TABLE &&
        strcmp(node->table->constructor, constructor) == 0)
        return node->table;
    const char *wanted = *constructor ? constructor : "a plain table";
    lathe_diag_fail(lathe_arena_diag(arena), where, "%s: found %s, allowed: %s%s", what,
                    lathe_tree_found(arena, node), wanted, *constructor ? " \"...\" {...}" : "");
}

const lathe_table *lathe_tree_returned(lathe_arena *arena, lathe_where where, const char *what,
                                       const lathe_node *node) {
    lathe_table *named = lathe_arena_alloc(arena, 1, sizeof *named);
    *named = *lathe_tree_expect(arena, where, lathe_arena_print(arena, "what '%s' returns", what),
                                node, "");
    named->constructor = what;
    return named;
}

static _Noreturn void fail_field(lathe_arena *arena, const lathe_table *table, const char *key,
                                 const lathe_node *found, const char *allowed) {
    lathe_diag_fail(lathe_arena_diag(arena), table->where, "%s: field '%s': found %s, allowed: %s",
                    lathe_tree_describe(arena, table), key, lathe_tree_found(arena, found),
                    allowed);
}

const char *lathe_tree_string(lathe_arena *arena, const lathe_table *table, const char *key) {
    const lathe_node *node = lathe_tree_find(table, key);
    if (!node || node->kind != LATHE_NODE_STRING)
        fail_field(arena, table, key, node, "a string");
    return node->string;
}

const char *lathe_tree_string_or(lathe_arena *arena, const lathe_table *table, const char *key,
                                 const char *otherwise) {
    return lathe_tree_find(table, key) ? lathe_tree_string(arena, table, key) : otherwise;
}

int64_t lathe_tree_number(lathe_arena *arena, lathe_where where, const char *what,
                          const lathe_node *node, int64_t min, int64_t max) {
    const bool integer = node && node->kind == LATHE_NODE_INTEGER;
    if (!integer || node->integer < min || node->integer > max)
        lathe_diag_fail(lathe_arena_diag(arena), where,
                        "%s: found %s, allowed: an integer from %" PRId64 " to %" PRId64, what,
                        lathe_tree_found(arena, node), min, max);
    return node->integer;
}

int64_t lathe_tree_integer(lathe_arena *arena, const lathe_table *table, const char *key,
                           int64_t min, int64_t max) {
    const char *what =
        lathe_arena_print(arena, "%s: field '%s'", lathe_tree_describe(arena, table), key);
    return lathe_tree_number(arena, table->where, what, lathe_tree_find(table, key), min, max);
}

int64_t lathe_tree_integer_or(lathe_arena *arena, const lathe_table *table, const char *key,
                              int64_t min, int64_t max, int64_t otherwise) {
    return lathe_tree_find(table, key) ? lathe_tree_integer(arena, table, key, min, max)
                                       : otherwise;
}

bool lathe_tree_boolean_or(lathe_arena *arena, const lathe_table *table, const char *key,
                           bool otherwise) {
    const lathe_node *node = lathe_tree_find(table, key);
    if (!node)
        return otherwise;
    if (node->kind != LATHE_NODE_BOOLEAN)
        fail_field(arena, table, key, node, "true or false");
    return node->boolean;
}

const lathe_table *lathe_tree_table_or_null(lathe_arena *arena, const lathe_table *table,
                                            const char *key) {
    const lathe_node *node = lathe_tree_find(table, key);
    if (!node)
        return NULL;
    if (node->kind != LATHE_NODE_TABLE || *node->table->constructor)
        fail_field(arena, table, key, node, "a table in braces");
    return node->table;
}

const lathe_table *lathe_tree_table(lathe_arena *arena, const lathe_table *table, const char *key) {
    const lathe_table *found = lathe_tree_table_or_null(arena, table, key);
    if (!found)
        fail_field(arena, table, key, NULL, "a table in braces");
    return found;
}

const lathe_node *lathe_tree_function_or_null(lathe_arena *arena, const lathe_table *table,
                                              const char *key) {
    const lathe_node *node = lathe_tree_find(table, key);
    if (node && node->kind != LATHE_NODE_FUNCTION)
        fail_field(arena, table, key, node, "a function");
    return node;
}

const char *lathe_tree_item_string(lathe_arena *arena, const lathe_table *list, size_t index,
                                   const char *what) {
    const lathe_node *node = &list->items[index];
    if (node->kind != LATHE_NODE_STRING)
        lathe_diag_fail(lathe_arena_diag(arena), list->where,
                        "%s, item %zu: found %s, allowed: a string", what, index + 1,
                        lathe_tree_found(arena, node));
    return node->string;
}

lathe_table *lathe_tree_make(lathe_arena *arena) {
    lathe_table *table = lathe_arena_alloc(arena, 1, sizeof *table);
    table->constructor = table->name = table->second = "";
    return table;
}

void lathe_tree_set_node(lathe_arena *arena, lathe_table *table, const char *key,
                         lathe_node value) {
    lathe_field *fields =
        lathe_arena_grow(arena, (lathe_field *)table->fields, table->field_count, sizeof *fields);
    fields[table->field_count++] = (lathe_field){key, value};
    table->fields = fields;
}

void lathe_tree_set_integer(lathe_arena *arena, lathe_table *table, const char *key,
                            int64_t value) {
    lathe_tree_set_node(
        arena, table, key,
        (lathe_node){.kind = LATHE_NODE_INTEGER, .integer = value, .real = (double)value});
}
