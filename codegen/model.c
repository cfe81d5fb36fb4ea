/* SPDX-License-Identifier: Apache-2.0
 * Reads what `model(d)` returned: groups, values, weights, caches, parts, kinds, layers. */
#include "layout.h"
#include "shard.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    lathe_lua *lua;
    lathe_arena *arena;
    const lathe_deployment *deployment;
    lathe_model *model;
} reader;

static _Noreturn void fail(const reader *r, lathe_where where, const char *message) {
    lathe_diag_fail(lathe_arena_diag(r->arena), where, "%s", message);
}

static lathe_dim read_dim(const reader *r, const lathe_table *t, size_t index) {
    static const struct {
        const char *name;
        lathe_dim_kind kind;
    } symbols[] = {{"rows", LATHE_DIM_ROWS},
                   {"requests", LATHE_DIM_REQUESTS},
                   {"q", LATHE_DIM_Q},
                   {"pages", LATHE_DIM_PAGES},
                   {"table_width", LATHE_DIM_TABLE_WIDTH}};
    const lathe_node *node = &t->items[index];
    const char *what =
        lathe_arena_print(r->arena, "%s: dimension %zu", lathe_tree_describe(r->arena, t), index);
    if (node->kind == LATHE_NODE_FUNCTION)
        return (lathe_dim){LATHE_DIM_FUNCTION, 0, *node};
    if (node->kind != LATHE_NODE_STRING)
        return (lathe_dim){LATHE_DIM_NUMBER,
                           lathe_tree_number(r->arena, t->where, what, node, 1, LATHE_MAX_SIZE),
                           {0}};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (strcmp(symbols[i].name, node->string) == 0)
            return (lathe_dim){.kind = symbols[i].kind};
    fail(r, t->where,
         lathe_arena_print(r->arena,
                           "%s: found %s, allowed: an integer, a function of the variant, rows "
                           "requests q pages table_width",
                           what, lathe_tree_found(r->arena, node)));
}

/* {dtype, dim, ...} */
static void read_type(const reader *r, const lathe_table *t, lathe_datum *datum) {
    const char *what = lathe_tree_describe(r->arena, t);
    if (t->item_count < 2 || t->item_count > LATHE_MAX_DIMS + 1)
        fail(r, t->where,
             lathe_arena_print(r->arena,
                               "%s: found %zu items, allowed: a dtype and 1 to %d dimensions", what,
                               t->item_count, LATHE_MAX_DIMS));
    datum->dtype = lathe_dtype_parse(r->arena, t->where, what, &t->items[0]);
    datum->rank = (int)t->item_count - 1;
    for (int i = 0; i < datum->rank; i++)
        datum->dims[i] = read_dim(r, t, (size_t)i + 1);
}

/* Two calls of one function that declares: its line says little, those of its calls more. */
static const char *describe_call(const reader *r, lathe_where called) {
    return called.file ? lathe_arena_print(r->arena, ", called at %s:%d", called.file, called.line)
                       : "";
}

static _Noreturn void fail_duplicate(const reader *r, lathe_where where, lathe_where called,
                                     const char *name, const lathe_datum *before) {
    if (before->kind == LATHE_DATUM_IMPLICIT)
        fail(r, where,
             lathe_arena_print(r->arena, "duplicate name \"%s\": every step has it", name));
    const bool same = where.line == before->where.line && called.file && before->called.file &&
                      strcmp(where.file, before->where.file) == 0;
    fail(r, where,
         lathe_arena_print(r->arena, "duplicate name \"%s\"%s: declared before at %s:%d%s", name,
                           same ? describe_call(r, called) : "", before->where.file,
                           before->where.line, same ? describe_call(r, before->called) : ""));
}

static lathe_datum *add_datum(reader *r, lathe_where where, lathe_where called,
                              lathe_datum_kind kind, const char *name) {
    lathe_model *m = r->model;
    for (size_t i = 0; i < m->datum_count; i++)
        if (strcmp(m->data[i].name, name) == 0)
            fail_duplicate(r, where, called, name, &m->data[i]);
    m->data = lathe_arena_grow(r->arena, m->data, m->datum_count, sizeof *m->data);
    lathe_datum *datum = &m->data[m->datum_count++];
    *datum = (lathe_datum){.where = where, .called = called, .kind = kind, .name = name};
    return datum;
}

static void read_value(reader *r, const lathe_table *t) {
    lathe_tree_check(r->arena, t, "input output per", true);
    lathe_datum *datum = add_datum(r, t->where, t->called, LATHE_DATUM_VALUE, t->name);
    read_type(r, t, datum);
    datum->input = lathe_tree_boolean_or(r->arena, t, "input", false);
    datum->output = lathe_tree_boolean_or(r->arena, t, "output", false);
    const char *per = lathe_tree_string_or(r->arena, t, "per", "step");
    datum->per_layer = strcmp(per, "layer") == 0;
    if (!datum->per_layer && strcmp(per, "step") != 0)
        fail(r, t->where,
             lathe_arena_print(
                 r->arena, "value \"%s\": field 'per': found \"%s\", allowed: \"layer\", \"step\"",
                 t->name, per));
}

/* What synthetic weights put there; layouts/README.md says what each means. */
static const char *read_init(const reader *r, const lathe_table *t) {
    static const char *const kinds[] = {"weight", "embedding",    "offset",     "gain",
                                        "gate",   "router",       "bias",       "codes",
                                        "scales", "global_scale", "input_scale"};
    const char *init = lathe_tree_string_or(r->arena, t, "init", NULL);
    for (size_t i = 0; init && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i], init) == 0)
            return init;
    if (init && strncmp(init, "head:", 5) == 0)
        return init;
    if (init)
        fail(r, t->where,
             lathe_arena_print(r->arena,
                               "tensor \"%s\": field 'init': found \"%s\", allowed: weight "
                               "embedding offset gain gate router bias codes scales global_scale "
                               "input_scale head:TENSOR",
                               t->name, init));
    return NULL;
}

static lathe_tensor read_tensor(const reader *r, const lathe_table *t) {
    lathe_tree_check(r->arena, t, "groups init shard", true);
    lathe_datum type = {0};
    read_type(r, t, &type);
    lathe_tensor tensor = {.where = t->where, .name = t->name, .dtype = type.dtype};
    tensor.shape.rank = type.rank;
    for (int i = 0; i < type.rank; i++) {
        if (type.dims[i].kind != LATHE_DIM_NUMBER)
            fail(r, t->where,
                 lathe_arena_print(r->arena, "tensor \"%s\": dimension %d: allowed: an integer",
                                   t->name, i + 1));
        tensor.shape.dims[i] = type.dims[i].number;
    }
    tensor.shard = (int)lathe_tree_integer_or(r->arena, t, "shard", 0, type.rank - 1, -1);
    tensor.groups = lathe_tree_integer_or(r->arena, t, "groups", 1, 65536, 1);
    tensor.init = read_init(r, t);
    return tensor;
}

static void read_weight(reader *r, const lathe_table *t) {
    lathe_tree_check(r->arena, t, "axis from held", true);
    lathe_datum *datum = add_datum(r, t->where, t->called, LATHE_DATUM_WEIGHT, t->name);
    read_type(r, t, datum);
    const lathe_table *from = lathe_tree_table(r->arena, t, "from");
    datum->axis = (int)lathe_tree_integer_or(r->arena, t, "axis", 0, datum->rank - 1, 0);
    datum->held = lathe_tree_string_or(r->arena, t, "held", NULL);
    datum->tensor_count = from->item_count;
    datum->tensors = lathe_arena_alloc(r->arena, from->item_count + 1, sizeof *datum->tensors);
    for (size_t i = 0; i < from->item_count; i++) {
        datum->tensors[i] = read_tensor(
            r, lathe_tree_expect(r->arena, t->where, "from", &from->items[i], "tensor"));
        datum->per_layer = datum->per_layer || strstr(datum->tensors[i].name, "{l}") != NULL;
    }
    lathe_shard_check(r->lua, r->deployment, datum);
}

/* Names that a look-up would have found, for messages. */
static const char *list_words(const reader *r, const char *(*at)(const reader *, size_t),
                              size_t count) {
    lathe_text text = {.arena = r->arena};
    for (size_t i = 0; i < count; i++)
        lathe_text_print(&text, "%s\"%s\"", i ? " " : "", at(r, i));
    return count ? lathe_text_string(&text) : "none";
}

static const char *group_name(const reader *r, size_t i) {
    return r->model->groups[i].name;
}

static const char *kind_name(const reader *r, size_t i) {
    return r->model->kinds[i].name;
}

static const char *variant_name(const reader *r, size_t i) {
    return r->deployment->variants[i].name;
}

static void read_cache(reader *r, const lathe_table *t) {
    lathe_tree_check(r->arena, t, "group", true);
    lathe_datum *datum = add_datum(r, t->where, t->called, LATHE_DATUM_CACHE, t->name);
    read_type(r, t, datum);
    datum->per_layer = true;
    datum->group = lathe_tree_string(r->arena, t, "group");
    if (datum->dims[0].kind != LATHE_DIM_PAGES)
        fail(r, t->where,
             lathe_arena_print(r->arena, "cache \"%s\": dimension 1: allowed: pages", t->name));
    for (size_t i = 0; i < r->model->group_count; i++)
        if (strcmp(r->model->groups[i].name, datum->group) == 0)
            return;
    fail(r, t->where,
         lathe_arena_print(r->arena, "cache \"%s\": field 'group': found \"%s\", allowed: %s",
                           t->name, datum->group,
                           list_words(r, group_name, r->model->group_count)));
}

static void add_implicit(reader *r, const char *name, lathe_dtype dtype, int rank, lathe_dim first,
                         lathe_dim second) {
    lathe_datum *datum =
        add_datum(r, r->model->where, (lathe_where){0}, LATHE_DATUM_IMPLICIT, name);
    datum->dtype = dtype;
    datum->rank = rank;
    datum->dims[0] = first;
    datum->dims[1] = second;
}

static void add_implicits(reader *r) {
    const lathe_dim rows = {.kind = LATHE_DIM_ROWS}, requests = {.kind = LATHE_DIM_REQUESTS};
    const lathe_dim width = {.kind = LATHE_DIM_TABLE_WIDTH}, none = {0};
    add_implicit(r, "tokens", LATHE_I32, 1, rows, none);
    add_implicit(r, "positions", LATHE_I64, 1, rows, none);
    add_implicit(r, "rank", LATHE_I32, 1, (lathe_dim){LATHE_DIM_NUMBER, 2, {0}}, none);
    add_implicit(r, "faults", LATHE_I32, 1, (lathe_dim){LATHE_DIM_NUMBER, 16, {0}}, none);
    for (size_t i = 0; i < r->model->group_count; i++) {
        const char *group = r->model->groups[i].name;
        add_implicit(r, lathe_arena_print(r->arena, "block_tables.%s", group), LATHE_I32, 2,
                     requests, width);
        add_implicit(r, lathe_arena_print(r->arena, "seq_lens.%s", group), LATHE_I32, 1, requests,
                     none);
        add_implicit(r, lathe_arena_print(r->arena, "slot_mapping.%s", group), LATHE_I64, 1, rows,
                     none);
    }
}

static void read_groups(reader *r, const lathe_table *t) {
    const lathe_table *list = lathe_tree_table_or_null(r->arena, t, "groups");
    const size_t count = list ? list->item_count : 0;
    lathe_model *m = r->model;
    m->groups = lathe_arena_alloc(r->arena, count + 1, sizeof *m->groups);
    for (size_t i = 0; i < count; i++) {
        const lathe_table *g =
            lathe_tree_expect(r->arena, t->where, "groups", &list->items[i], "group");
        lathe_tree_check(r->arena, g, "window", false);
        for (size_t j = 0; j < m->group_count; j++)
            if (strcmp(m->groups[j].name, g->name) == 0)
                fail(r, g->where,
                     lathe_arena_print(r->arena, "duplicate group \"%s\": stands before at %s:%d",
                                       g->name, m->groups[j].where.file, m->groups[j].where.line));
        const int64_t window = lathe_tree_integer_or(r->arena, g, "window", 0, (int64_t)1 << 30, 0);
        m->groups[m->group_count++] = (lathe_group){g->where, g->name, window};
    }
}

static void read_list(reader *r, const lathe_table *t, const char *field, const char *constructor,
                      void (*read)(reader *, const lathe_table *)) {
    const lathe_table *list = lathe_tree_table_or_null(r->arena, t, field);
    for (size_t i = 0; list && i < list->item_count; i++)
        read(r, lathe_tree_expect(r->arena, t->where, field, &list->items[i], constructor));
}

static lathe_port read_port(const reader *r, const lathe_table *part, const char *field,
                            const lathe_field *entry) {
    lathe_port port = {.port = entry->key};
    const lathe_node *node = &entry->value;
    if (node->kind == LATHE_NODE_STRING) {
        port.name = node->string;
    } else if (node->kind == LATHE_NODE_TABLE && strcmp(node->table->constructor, "prev") == 0 &&
               *field == 'r') {
        port.name = node->table->name;
        port.previous = true;
    } else {
        fail(r, part->where,
             lathe_arena_print(r->arena, "part \"%s\": %s.%s: found %s, allowed: a name%s",
                               part->name, field, entry->key, lathe_tree_found(r->arena, node),
                               *field == 'r' ? " or prev \"NAME\"" : ""));
    }
    return port;
}

static lathe_port *read_ports(const reader *r, const lathe_table *part, const char *field,
                              size_t *count) {
    const lathe_table *t = lathe_tree_table_or_null(r->arena, part, field);
    *count = t ? t->field_count : 0;
    if (t && t->item_count)
        fail(r, part->where,
             lathe_arena_print(r->arena,
                               "part \"%s\": %s: found an item without a port, allowed: "
                               "port = name",
                               part->name, field));
    lathe_port *ports = lathe_arena_alloc(r->arena, *count + 1, sizeof *ports);
    for (size_t i = 0; i < *count; i++)
        ports[i] = read_port(r, part, field, &t->fields[i]);
    return ports;
}

static const lathe_part *read_part(const reader *r, const lathe_table *t) {
    lathe_tree_check(r->arena, t, "reads set writes", false);
    lathe_part *part = lathe_arena_alloc(r->arena, 1, sizeof *part);
    *part = (lathe_part){.where = t->where, .name = t->name, .kind = t->second};
    part->reads = read_ports(r, t, "reads", &part->read_count);
    part->writes = read_ports(r, t, "writes", &part->write_count);
    part->set = lathe_tree_table_or_null(r->arena, t, "set");
    return part;
}

static lathe_part_list read_parts(const reader *r, lathe_where where, const char *name,
                                  const lathe_table *list) {
    lathe_part_list parts = {.where = where, .name = name};
    parts.part_count = list ? list->item_count : 0;
    parts.parts = lathe_arena_alloc(r->arena, parts.part_count + 1, sizeof *parts.parts);
    for (size_t i = 0; i < parts.part_count; i++) {
        const lathe_table *t = lathe_tree_expect(r->arena, where, name, &list->items[i], "part");
        parts.parts[i] = read_part(r, t);
        for (size_t j = 0; j < i; j++)
            if (strcmp(parts.parts[j]->name, t->name) == 0)
                fail(r, t->where,
                     lathe_arena_print(
                         r->arena, "duplicate part \"%s\" in %s: stands before at %s:%d", t->name,
                         name, parts.parts[j]->where.file, parts.parts[j]->where.line));
    }
    return parts;
}

static void read_kind(reader *r, const lathe_table *t) {
    lathe_model *m = r->model;
    lathe_tree_check(r->arena, t, "parts", false);
    for (size_t i = 0; i < m->kind_count; i++)
        if (strcmp(m->kinds[i].name, t->name) == 0)
            fail(r, t->where,
                 lathe_arena_print(r->arena, "duplicate kind \"%s\": stands before at %s:%d",
                                   t->name, m->kinds[i].where.file, m->kinds[i].where.line));
    m->kinds = lathe_arena_grow(r->arena, m->kinds, m->kind_count, sizeof *m->kinds);
    m->kinds[m->kind_count++] =
        read_parts(r, t->where, t->name, lathe_tree_table(r->arena, t, "parts"));
}

static size_t find_kind(const reader *r, lathe_where where, const char *name) {
    for (size_t i = 0; i < r->model->kind_count; i++)
        if (strcmp(r->model->kinds[i].name, name) == 0)
            return i;
    fail(r, where,
         lathe_arena_print(r->arena, "layers: found \"%s\", allowed: %s", name,
                           list_words(r, kind_name, r->model->kind_count)));
}

static void read_layers(reader *r, const lathe_table *t) {
    const lathe_table *list = lathe_tree_table(r->arena, t, "layers");
    lathe_model *m = r->model;
    m->layers = lathe_arena_alloc(r->arena, list->item_count + 1, sizeof *m->layers);
    if (!list->item_count)
        fail(r, t->where, "model: field 'layers': found none, allowed: a kind name per layer");
    if (list->item_count > LATHE_MAX_LAYERS)
        fail(r, t->where,
             lathe_arena_print(r->arena,
                               "model: field 'layers': found %zu layers, allowed: at most %d",
                               list->item_count, LATHE_MAX_LAYERS));
    for (size_t i = 0; i < list->item_count; i++)
        m->layers[m->layer_count++] =
            find_kind(r, t->where, lathe_tree_item_string(r->arena, list, i, "layers"));
    const lathe_table *aux = r->deployment->aux;
    for (size_t i = 0; i < aux->item_count; i++)
        lathe_tree_number(r->arena, r->deployment->where, "aux", &aux->items[i], 0,
                          (int64_t)m->layer_count - 1);
}

static size_t find_variant(const reader *r, const lathe_table *t) {
    const char *name = lathe_tree_string(r->arena, t, "variant");
    const lathe_deployment *d = r->deployment;
    for (size_t v = 0; v < d->variant_count; v++)
        if (strcmp(d->variants[v].name, name) == 0)
            return v;
    fail(r, t->where,
         lathe_arena_print(r->arena, "probe: field 'variant': found \"%s\", allowed: %s", name,
                           list_words(r, variant_name, d->variant_count)));
}

static void read_probe_layers(const reader *r, const lathe_table *t, lathe_probe *probe) {
    const lathe_table *list = lathe_tree_table(r->arena, t, "layers");
    probe->layers = lathe_arena_alloc(r->arena, list->item_count + 1, sizeof *probe->layers);
    for (size_t i = 0; i < list->item_count; i++) {
        const int64_t least = i ? (int64_t)probe->layers[i - 1] + 1 : 0;
        probe->layers[probe->layer_count++] =
            (size_t)lathe_tree_number(r->arena, t->where, "probe: field 'layers', ascending",
                                      &list->items[i], least, (int64_t)r->model->layer_count - 1);
    }
    if (!probe->layer_count)
        fail(r, t->where, "probe: field 'layers': found none, allowed: at least one");
}

static double read_limit(const reader *r, const lathe_table *t) {
    const lathe_node *node = lathe_tree_find(t, "limit");
    if (!node || (node->kind != LATHE_NODE_REAL && node->kind != LATHE_NODE_INTEGER) ||
        !(node->real > 0 && node->real < 1))
        fail(r, t->where,
             lathe_arena_print(r->arena,
                               "probe: field 'limit': found %s, allowed: a number between 0 and 1",
                               node ? lathe_tree_found(r->arena, node) : "nothing"));
    return node->real;
}

static void read_probe(reader *r, const lathe_table *model) {
    const lathe_node *node = lathe_tree_find(model, "probe");
    lathe_probe *probe = &r->model->probe;
    if (!node)
        return;
    const lathe_table *t = lathe_tree_expect(r->arena, model->where, "probe", node, "probe");
    lathe_tree_check(r->arena, t, "about layers limit parts sums variant", false);
    if (r->deployment->tp == 1)
        fail(r, t->where, "probe: found in a deployment of one rank, allowed: of several");
    const lathe_table *sums = lathe_tree_table(r->arena, t, "sums");
    if (sums->item_count != 2)
        fail(r, t->where, "probe: field 'sums': allowed: two values");
    for (size_t i = 0; i < 2; i++)
        probe->sums[i] = lathe_tree_item_string(r->arena, sums, i, "sums");
    probe->about = lathe_tree_string_or(r->arena, t, "about", "");
    probe->limit = read_limit(r, t);
    probe->variant = find_variant(r, t);
    read_probe_layers(r, t, probe);
    probe->list = read_parts(r, t->where, "probe", lathe_tree_table(r->arena, t, "parts"));
}

/* The parts that the ranks hold of a weight are parts of the same tensor: cut along its first axis,
 * where the weight itself is cut along another or not at all. */
static const char *wrong_held(const lathe_datum *weight, const lathe_datum *held) {
    if (!held || held->kind != LATHE_DATUM_WEIGHT)
        return "is no weight";
    const lathe_tensor *whole = &weight->tensors[0], *part = &held->tensors[0];
    if (weight->tensor_count != 1 || held->tensor_count != 1 || held->is_held ||
        strcmp(whole->name, part->name) != 0 || !lathe_shape_equal(&whole->shape, &part->shape))
        return "is not of the same one tensor";
    if (part->shard != 0 || part->groups != 1 || whole->shard == 0)
        return "must be cut along axis 0, and the weight itself along another or not at all";
    return NULL;
}

static void check_held(const reader *r) {
    for (size_t i = 0; i < r->model->datum_count; i++) {
        const lathe_datum *weight = &r->model->data[i];
        if (!weight->held)
            continue;
        lathe_datum *held = (lathe_datum *)lathe_model_find(r->model, weight->held);
        const char *why = wrong_held(weight, held);
        if (why)
            fail(r, weight->where,
                 lathe_arena_print(r->arena, "weight \"%s\": field 'held': \"%s\" %s", weight->name,
                                   weight->held, why));
        held->is_held = true;
    }
}

static int compare_data(const void *a, const void *b) {
    return strcmp(((const lathe_datum *)a)->name, ((const lathe_datum *)b)->name);
}

static void fail_on_refusals(const reader *r, const lathe_layout *layout) {
    size_t count;
    const lathe_refusal *refusals = lathe_lua_refusals(r->lua, &count);
    if (!count)
        return;
    lathe_text text = {.arena = r->arena};
    for (size_t i = 0; i < count; i++)
        lathe_text_print(&text, "\n  %s:%d: %s", refusals[i].where.file, refusals[i].where.line,
                         refusals[i].reason);
    lathe_diag_fail(lathe_arena_diag(r->arena), r->deployment->where,
                    "layout \"%s\" cannot be split over %" PRId64 " ranks:%s", layout->name,
                    r->deployment->tp, lathe_text_string(&text));
}

static void read_names(const reader *r, const lathe_table *t, const char *key) {
    const lathe_table *list = lathe_tree_table_or_null(r->arena, t, key);
    for (size_t i = 0; list && i < list->item_count; i++)
        lathe_tree_item_string(r->arena, list, i, key);
}

/* What else is known of a checkpoint; the emitter writes it as it stands. */
static void read_checkpoint(const reader *r, const lathe_table *t) {
    const lathe_table *c = lathe_tree_table_or_null(r->arena, t, "checkpoint");
    r->model->checkpoint = c;
    if (!c)
        return;
    lathe_tree_check(r->arena, c, "files names unread", false);
    read_names(r, c, "names");
    read_names(r, c, "unread");
    const lathe_table *files = lathe_tree_table_or_null(r->arena, c, "files");
    for (size_t i = 0; files && i < files->field_count; i++)
        lathe_tree_table(r->arena, files, files->fields[i].key);
}

static void read_model(reader *r, const lathe_table *t) {
    lathe_model *m = r->model;
    m->where = t->where;
    lathe_tree_check(r->arena, t,
                     "caches checkpoint epilogue groups kinds layers prepare probe prologue serves "
                     "values weights",
                     false);
    read_groups(r, t);
    add_implicits(r);
    read_list(r, t, "values", "value", read_value);
    read_list(r, t, "weights", "weight", read_weight);
    read_list(r, t, "caches", "cache", read_cache);
    qsort(m->data, m->datum_count, sizeof *m->data, compare_data);
    check_held(r);
    m->prepare =
        read_parts(r, t->where, "prepare", lathe_tree_table_or_null(r->arena, t, "prepare"));
    m->prologue =
        read_parts(r, t->where, "prologue", lathe_tree_table_or_null(r->arena, t, "prologue"));
    m->epilogue =
        read_parts(r, t->where, "epilogue", lathe_tree_table_or_null(r->arena, t, "epilogue"));
    read_list(r, t, "kinds", "kind", read_kind);
    read_layers(r, t);
    read_checkpoint(r, t);
    m->serves = lathe_tree_table_or_null(r->arena, t, "serves");
    read_probe(r, t);
}

lathe_model *lathe_layout_model(lathe_lua *lua, const lathe_layout *layout,
                                const lathe_deployment *deployment) {
    lathe_arena *arena = lathe_lua_arena(lua);
    reader r = {.lua = lua, .arena = arena, .deployment = deployment};
    r.model = lathe_arena_alloc(arena, 1, sizeof *r.model);
    const lathe_node argument = {.kind = LATHE_NODE_TABLE, .table = deployment->table};
    lathe_lua_set_tp(lua, deployment->tp);
    lathe_diag *diag = lathe_arena_diag(arena);
    lathe_diag *saved = lathe_arena_alloc(arena, 1, sizeof *saved);
    *saved = *diag;
    if (LATHE_TRY(diag)) {
        const lathe_node made = lathe_lua_call(lua, &layout->model, &argument, 1, "model");
        fail_on_refusals(&r, layout);
        read_model(&r,
                   lathe_tree_expect(arena, layout->where, "what 'model' returns", &made, "model"));
        *diag = *saved;
    } else {
        /* A refused size may upset what comes after it; the refusal is the cause. */
        char *message = lathe_arena_copy(arena, diag->message, strlen(diag->message));
        *diag = *saved;
        fail_on_refusals(&r, layout);
        lathe_diag_raise(diag, message);
    }
    fail_on_refusals(&r, layout);
    return r.model;
}

const lathe_datum *lathe_model_find(const lathe_model *model, const char *name) {
    const lathe_datum key = {.name = name};
    return bsearch(&key, model->data, model->datum_count, sizeof key, compare_data);
}

static int64_t call_dim(lathe_lua *lua, const lathe_datum *datum, const lathe_dim *dim,
                        const lathe_variant *v, const char *what) {
    lathe_arena *arena = lathe_lua_arena(lua);
    lathe_table *argument = lathe_tree_make(arena);
    argument->strict = true;
    lathe_tree_set_integer(arena, argument, "q", v->q);
    lathe_tree_set_integer(arena, argument, "requests", v->requests);
    lathe_tree_set_integer(arena, argument, "rows", v->rows);
    const lathe_node node = {.kind = LATHE_NODE_TABLE, .table = argument};
    const lathe_node result = lathe_lua_call(lua, &dim->function, &node, 1, what);
    return lathe_tree_number(arena, datum->where, what, &result, 1, LATHE_MAX_SIZE);
}

static int64_t eval_dim(lathe_lua *lua, const lathe_deployment *d, const lathe_datum *datum, int i,
                        const lathe_variant *v) {
    const lathe_dim *dim = &datum->dims[i];
    lathe_arena *arena = lathe_lua_arena(lua);
    const char *what = lathe_arena_print(arena, "\"%s\": dimension %d", datum->name, i + 1);
    if (dim->kind == LATHE_DIM_NUMBER)
        return dim->number;
    if (dim->kind == LATHE_DIM_PAGES)
        return 0;
    if (dim->kind == LATHE_DIM_TABLE_WIDTH)
        return (d->max_context + d->page_tokens - 1) / d->page_tokens;
    if (!v)
        lathe_diag_fail(lathe_arena_diag(arena), datum->where,
                        "%s: depends on the step's rows, so `prepare` cannot touch it", what);
    if (dim->kind == LATHE_DIM_FUNCTION)
        return call_dim(lua, datum, dim, v, what);
    return dim->kind == LATHE_DIM_ROWS ? v->rows : dim->kind == LATHE_DIM_Q ? v->q : v->requests;
}

lathe_shape lathe_layout_shape(lathe_lua *lua, const lathe_deployment *deployment,
                               const lathe_datum *datum, const lathe_variant *variant) {
    lathe_shape shape = {.rank = datum->rank};
    for (int i = 0; i < datum->rank; i++)
        shape.dims[i] = eval_dim(lua, deployment, datum, i, variant);
    if (lathe_shape_count(&shape) > LATHE_MAX_SIZE)
        lathe_diag_fail(lathe_arena_diag(lathe_lua_arena(lua)), datum->where,
                        "\"%s\": %s is too large; allowed: 2^40 elements", datum->name,
                        lathe_shape_text(lathe_lua_arena(lua), &shape));
    return shape;
}
