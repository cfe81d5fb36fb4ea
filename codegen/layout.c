/* SPDX-License-Identifier: Apache-2.0
 * Reads what a layout file returned: deployments first, the model when one is picked (model.c). */
#include "layout.h"

#include "text.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_ROWS = 4096 };

static lathe_use read_use(lathe_arena *arena, const lathe_table *t) {
    lathe_tree_check(arena, t, "options parts stream", false);
    lathe_use use = {.where = t->where, .provider = t->name};
    const lathe_table *parts = lathe_tree_table(arena, t, "parts");
    const char *what = lathe_arena_print(arena, "use \"%s\": parts", t->name);
    use.part_count = parts->item_count;
    use.parts = lathe_arena_alloc(arena, use.part_count + 1, sizeof *use.parts);
    if (!use.part_count)
        lathe_diag_fail(lathe_arena_diag(arena), t->where, "%s: found none, allowed: part names",
                        what);
    for (size_t i = 0; i < use.part_count; i++)
        use.parts[i] = lathe_tree_item_string(arena, parts, i, what);
    use.options = lathe_tree_table_or_null(arena, t, "options");
    const char *stream = lathe_tree_string_or(arena, t, "stream", "main");
    use.side = strcmp(stream, "side") == 0;
    if (!use.side && strcmp(stream, "main") != 0)
        lathe_diag_fail(lathe_arena_diag(arena), t->where,
                        "use \"%s\": field 'stream': found \"%s\", allowed: \"main\", \"side\"",
                        t->name, stream);
    return use;
}

static lathe_variant read_variant(lathe_arena *arena, const lathe_table *d,
                                  const lathe_node *node) {
    const lathe_table *t = lathe_tree_expect(arena, d->where, "variants", node, "");
    if (t->item_count != 2 || t->field_count)
        lathe_diag_fail(lathe_arena_diag(arena), d->where,
                        "variants: found a list of %zu, allowed: pairs {requests, q}",
                        t->item_count);
    lathe_variant v = {0};
    v.requests =
        lathe_tree_number(arena, d->where, "variants: requests", &t->items[0], 1, MAX_ROWS);
    v.q = lathe_tree_number(arena, d->where, "variants: q", &t->items[1], 1, MAX_ROWS);
    v.rows = v.requests * v.q;
    v.name = lathe_arena_print(arena, "%" PRId64 "x%" PRId64, v.requests, v.q);
    return v;
}

static void read_variants(lathe_arena *arena, const lathe_table *t, lathe_deployment *d) {
    const lathe_table *list = lathe_tree_table(arena, t, "variants");
    d->variant_count = list->item_count;
    d->variants = lathe_arena_alloc(arena, d->variant_count + 1, sizeof *d->variants);
    if (!d->variant_count)
        lathe_diag_fail(lathe_arena_diag(arena), t->where,
                        "deployment: field 'variants': found none, allowed: pairs {requests, q}");
    for (size_t i = 0; i < d->variant_count; i++) {
        d->variants[i] = read_variant(arena, t, &list->items[i]);
        for (size_t j = 0; j < i; j++)
            if (strcmp(d->variants[i].name, d->variants[j].name) == 0)
                lathe_diag_fail(lathe_arena_diag(arena), t->where,
                                "deployment: variant %s stands twice", d->variants[i].name);
    }
}

/* The model says how many layers there are (model.c), the step which of them write something. */
static void read_aux(lathe_arena *arena, const lathe_table *t, lathe_deployment *d) {
    d->aux = lathe_tree_table(arena, t, "aux");
    for (size_t i = 0; i < d->aux->item_count; i++) {
        const int64_t layer =
            lathe_tree_number(arena, t->where, "aux", &d->aux->items[i], 0, LATHE_MAX_LAYERS - 1);
        const int64_t before = i ? d->aux->items[i - 1].integer : -1;
        if (layer <= before)
            lathe_diag_fail(lathe_arena_diag(arena), t->where,
                            "aux: found %" PRId64 " after %" PRId64
                            ", allowed: layer numbers in ascending order, each once",
                            layer, before);
    }
}

static lathe_deployment read_deployment(lathe_arena *arena, const lathe_table *t) {
    lathe_tree_check(arena, t, "aux invariant max_context name page_tokens provide set tp variants",
                     false);
    lathe_deployment d = {.where = t->where, .table = t};
    d.name = lathe_tree_string(arena, t, "name");
    d.tp = lathe_tree_integer(arena, t, "tp", 1, 1024);
    d.max_context = lathe_tree_integer(arena, t, "max_context", 1, (int64_t)1 << 30);
    d.page_tokens = lathe_tree_integer(arena, t, "page_tokens", 1, 65536);
    d.invariant = lathe_tree_boolean_or(arena, t, "invariant", false);
    (void)lathe_tree_table(arena, t, "set");
    read_aux(arena, t, &d);
    read_variants(arena, t, &d);
    const lathe_table *uses = lathe_tree_table(arena, t, "provide");
    d.use_count = uses->item_count;
    d.uses = lathe_arena_alloc(arena, d.use_count + 1, sizeof *d.uses);
    for (size_t i = 0; i < d.use_count; i++)
        d.uses[i] =
            read_use(arena, lathe_tree_expect(arena, t->where, "provide", &uses->items[i], "use"));
    return d;
}

static void check_name(lathe_arena *arena, const lathe_table *t, const char *name) {
    for (const char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_", *c))
            lathe_diag_fail(lathe_arena_diag(arena), t->where,
                            "%s: name \"%s\": allowed: a-z 0-9 _", t->constructor, name);
}

lathe_layout *lathe_layout_read(lathe_lua *lua, const char *shown, const lathe_node *returned) {
    lathe_arena *arena = lathe_lua_arena(lua);
    const lathe_table *t = lathe_tree_expect(arena, (lathe_where){shown, 0},
                                             "what the file returns", returned, "layout");
    lathe_tree_check(arena, t, "deployments doc model", false);
    lathe_layout *layout = lathe_arena_alloc(arena, 1, sizeof *layout);
    *layout = (lathe_layout){.where = t->where, .name = t->name};
    check_name(arena, t, t->name);
    layout->doc = lathe_tree_string_or(arena, t, "doc", "");
    const lathe_node *model = lathe_tree_function_or_null(arena, t, "model");
    if (!model)
        lathe_diag_fail(lathe_arena_diag(arena), t->where,
                        "layout \"%s\": field 'model': found nothing, allowed: a function",
                        t->name);
    layout->model = *model;
    const lathe_table *list = lathe_tree_table(arena, t, "deployments");
    layout->deployments = lathe_arena_alloc(arena, list->item_count + 1, sizeof(lathe_deployment));
    for (size_t i = 0; i < list->item_count; i++) {
        const lathe_table *d =
            lathe_tree_expect(arena, t->where, "deployments", &list->items[i], "deployment");
        layout->deployments[layout->deployment_count] = read_deployment(arena, d);
        const lathe_deployment *new = &layout->deployments[layout->deployment_count++];
        check_name(arena, d, new->name);
        for (size_t j = 0; j < i; j++)
            if (layout->deployments[j].tp == new->tp &&
                strcmp(layout->deployments[j].name, new->name) == 0)
                lathe_diag_fail(lathe_arena_diag(arena), d->where,
                                "deployment \"%s\" of tp %" PRId64 " stands twice: before at %s:%d",
                                new->name, new->tp, layout->deployments[j].where.file,
                                layout->deployments[j].where.line);
    }
    return layout;
}

const lathe_variant *lathe_layout_lead(const lathe_deployment *d) {
    const lathe_variant *lead = d->variants;
    for (size_t v = 1; v < d->variant_count; v++)
        if (d->variants[v].rows > lead->rows)
            lead = &d->variants[v];
    return lead;
}

static const char *list_deployments(lathe_arena *arena, const lathe_layout *layout) {
    lathe_text text = {.arena = arena};
    for (size_t i = 0; i < layout->deployment_count; i++) {
        const lathe_deployment *d = &layout->deployments[i];
        lathe_text_print(&text, "%stp %" PRId64 "%s%s", i ? ", " : "", d->tp, *d->name ? " " : "",
                         d->name);
    }
    return layout->deployment_count ? lathe_text_string(&text) : "none";
}

/* Asks the model itself: a deployment like the first one, at another TP size. */
static const char *reasons_against(lathe_lua *lua, const lathe_layout *layout, int64_t tp) {
    lathe_arena *arena = lathe_lua_arena(lua);
    if (!layout->deployment_count)
        return "";
    lathe_table *like = lathe_tree_make(arena);
    const lathe_table *first = layout->deployments[0].table;
    for (size_t i = 0; i < first->field_count; i++)
        if (strcmp(first->fields[i].key, "tp") == 0)
            lathe_tree_set_integer(arena, like, "tp", tp);
        else
            lathe_tree_set_node(arena, like, first->fields[i].key, first->fields[i].value);
    lathe_lua_set_tp(lua, tp);
    const lathe_node argument = {.kind = LATHE_NODE_TABLE, .table = like};
    lathe_diag *diag = lathe_arena_diag(arena);
    lathe_diag saved = *diag;
    if (LATHE_TRY(diag))
        (void)lathe_lua_call(lua, &layout->model, &argument, 1, "model");
    *diag = saved;
    size_t count;
    const lathe_refusal *refusals = lathe_lua_refusals(lua, &count);
    lathe_text text = {.arena = arena};
    for (size_t i = 0; i < count; i++)
        lathe_text_print(&text, "\n  %s:%d: %s", refusals[i].where.file, refusals[i].where.line,
                         refusals[i].reason);
    return lathe_text_string(&text);
}

const lathe_deployment *lathe_layout_pick(lathe_lua *lua, const lathe_layout *layout, int64_t tp,
                                          const char *name) {
    lathe_arena *arena = lathe_lua_arena(lua);
    bool served = false;
    for (size_t i = 0; i < layout->deployment_count; i++) {
        const lathe_deployment *d = &layout->deployments[i];
        served = served || d->tp == tp;
        if (d->tp == tp && strcmp(d->name, name) == 0)
            return d;
    }
    if (served)
        lathe_diag_fail(lathe_arena_diag(arena), layout->where,
                        "layout \"%s\": no deployment \"%s\" of tp %" PRId64 "; there are: %s",
                        layout->name, name, tp, list_deployments(arena, layout));
    lathe_diag_fail(lathe_arena_diag(arena), layout->where,
                    "layout \"%s\": no deployment of tp %" PRId64 "; there are: %s%s", layout->name,
                    tp, list_deployments(arena, layout), reasons_against(lua, layout, tp));
}
