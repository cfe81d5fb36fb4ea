/* SPDX-License-Identifier: Apache-2.0
 * Finds the constants of one launch: options, attributes, defaults, and sizes in the shapes of what
 * is bound. */
#include "bind_internal.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>

/* A number, or a function of the variant. */
static lathe_node resolve(const lathe_binder *b, const lathe_node *node, const char *what) {
    if (node->kind != LATHE_NODE_FUNCTION)
        return *node;
    if (!b->variant)
        lathe_bind_fail(b, node->where, "%s: a function of the variant, but `prepare` has none",
                        what);
    lathe_table *variant = lathe_tree_make(b->arena);
    variant->strict = true;
    lathe_tree_set_integer(b->arena, variant, "q", b->variant->q);
    lathe_tree_set_integer(b->arena, variant, "requests", b->variant->requests);
    lathe_tree_set_integer(b->arena, variant, "rows", b->variant->rows);
    const lathe_node argument = {.kind = LATHE_NODE_TABLE, .table = variant};
    return lathe_lua_call(b->plan->lua, node, &argument, 1, what);
}

static void give(lathe_binder *b, size_t i, lathe_where where, const lathe_node *node,
                 const char *what) {
    const lathe_node value = resolve(b, node, what);
    const char *origin = lathe_arena_print(b->arena, "%s:%d, %s", where.file, where.line, what);
    b->constants[i] =
        lathe_tactic_bound(b->arena, &b->provider->constants[i], where, &value, origin);
    b->blame[i] = origin;
}

/* How a sum over the ranks is added up: the places in this list are what constants get. */
static int read_order(const lathe_binder *b, const lathe_part *part, const lathe_node *node) {
    static const char *const names[] = {"ascending", "bf16_each", "library"};
    const char *library = b->provider->collective;
    for (int i = library ? 2 : 0; i < (library ? 3 : 2); i++)
        if (node->kind == LATHE_NODE_STRING && strcmp(node->string, names[i]) == 0)
            return i;
    lathe_bind_fail(b, part->where, "part \"%s\": attribute 'order': found %s, allowed: %s",
                    part->name, lathe_tree_found(b->arena, node),
                    library ? "\"library\", the order of a collective"
                            : "\"ascending\" \"bf16_each\"; \"library\" only with a collective");
}

static void give_attribute(lathe_binder *b, size_t i) {
    const char *name;
    const lathe_const *c = &b->provider->constants[i];
    const lathe_part *part = lathe_bind_part(b, c->from, &name);
    const lathe_node *node = part && part->set ? lathe_tree_find(part->set, name) : NULL;
    if (node && strcmp(name, "order") == 0) {
        const lathe_node order = {.kind = LATHE_NODE_INTEGER,
                                  .integer = read_order(b, part, node),
                                  .real = (double)read_order(b, part, node)};
        give(b, i, part->where, &order,
             lathe_arena_print(b->arena, "order of %s is %s", part->name, node->string));
        return;
    }
    if (node) {
        give(b, i, part->where, node, lathe_arena_print(b->arena, "%s of %s", name, part->name));
        return;
    }
    if (c->otherwise.kind == LATHE_NODE_NIL)
        lathe_bind_fail(b, part ? part->where : b->launch->use->where,
                        "constant %s (%s:%d) comes from %s, but %s%s%s sets no '%s'", c->name,
                        c->where.file, c->where.line, c->from, part ? "part \"" : "no part",
                        part ? part->name : "", part ? "\"" : "", name);
}

static void give_ranks(lathe_binder *b, size_t i) {
    const lathe_deployment *d = b->plan->deployment;
    const lathe_node node = {.kind = LATHE_NODE_INTEGER, .integer = d->tp, .real = (double)d->tp};
    give(b, i, d->where, &node, "tp");
}

/* Names that constants of the source take; of attributes those of the kind. */
static const char *list_sources(const lathe_binder *b, lathe_const_source source,
                                const char *kind) {
    lathe_text text = {.arena = b->arena};
    const size_t length = kind ? strlen(kind) : 0;
    for (size_t i = 0; i < b->provider->constant_count; i++) {
        const lathe_const *c = &b->provider->constants[i];
        if (c->source != source)
            continue;
        const char *name = !kind ? c->from
                           : strncmp(c->from, kind, length) || c->from[length] != '.'
                               ? NULL
                               : c->from + length + 1;
        if (name)
            lathe_text_print(&text, "%s%s", text.size ? " " : "", name);
    }
    return text.size ? lathe_text_string(&text) : "none";
}

/* A name that no constant takes is a slip of the pen. */
static void check_options(const lathe_binder *b) {
    const lathe_table *options = b->launch->use->options;
    for (size_t i = 0; options && i < options->field_count; i++) {
        bool taken = false;
        for (size_t j = 0; j < b->provider->constant_count && !taken; j++)
            taken = b->provider->constants[j].source == LATHE_CONST_OPTION &&
                    strcmp(b->provider->constants[j].from, options->fields[i].key) == 0;
        if (!taken)
            lathe_bind_fail(b, b->launch->use->where, "unknown option '%s'; allowed: %s",
                            options->fields[i].key, list_sources(b, LATHE_CONST_OPTION, NULL));
    }
}

static void check_attributes(const lathe_binder *b, const lathe_part *part) {
    for (size_t i = 0; part->set && i < part->set->field_count; i++) {
        const char *key = part->set->fields[i].key;
        const char *from = lathe_arena_print(b->arena, "%s.%s", part->kind, key);
        /* The rule, or all that a library has, needs no constant. */
        bool taken =
            strcmp(key, "order") == 0 && read_order(b, part, &part->set->fields[i].value) % 2 == 0;
        for (size_t j = 0; j < b->provider->constant_count && !taken; j++)
            taken = b->provider->constants[j].source == LATHE_CONST_ATTRIBUTE &&
                    strcmp(b->provider->constants[j].from, from) == 0;
        if (!taken)
            lathe_bind_fail(b, part->where,
                            "part \"%s\": unknown attribute '%s'; no constant of %s comes from it; "
                            "allowed: %s",
                            part->name, key, b->provider->spec,
                            list_sources(b, LATHE_CONST_ATTRIBUTE, part->kind));
    }
}

void lathe_bind_given(lathe_binder *b) {
    check_options(b);
    for (size_t i = 0; i < b->launch->part_count; i++)
        check_attributes(b, b->launch->parts[i]);
    for (size_t i = 0; i < b->provider->constant_count; i++) {
        const lathe_const *c = &b->provider->constants[i];
        const lathe_table *options = b->launch->use->options;
        if (c->source == LATHE_CONST_OPTION) {
            const lathe_node *node = options ? lathe_tree_find(options, c->from) : NULL;
            if (node)
                give(b, i, b->launch->use->where, node,
                     lathe_arena_print(b->arena, "option %s", c->from));
        } else if (c->source == LATHE_CONST_ATTRIBUTE) {
            give_attribute(b, i);
        }
        if (c->source == LATHE_CONST_RANKS)
            give_ranks(b, i);
        const bool early = c->source == LATHE_CONST_OPTION || c->source == LATHE_CONST_ATTRIBUTE;
        if (early && !b->constants[i].known && c->otherwise.kind != LATHE_NODE_NIL)
            give(b, i, c->where, &c->otherwise, "default");
    }
}

static const char *describe_datum(const lathe_binder *b, const lathe_binding *binding) {
    const lathe_datum *d = binding->datum;
    const lathe_state *state = &b->states[d - b->plan->model->data];
    const char *from = "";
    if (d->kind == LATHE_DATUM_VALUE && state->producer)
        from =
            lathe_arena_print(b->arena, ", from provider %s (%s)", state->producer->provider->name,
                              lathe_bind_describe(b->arena, state->producer));
    return lathe_arena_print(b->arena, "\"%s\" %s (%s:%d%s)", d->name,
                             lathe_shape_text(b->arena, &binding->shape), d->where.file,
                             d->where.line, from);
}

static void unify_dim(lathe_binder *b, size_t i, int dim, int64_t actual) {
    const lathe_arg *arg = &b->provider->args[i];
    const lathe_binding *binding = &b->args[i];
    const int c = arg->dims[dim].constant;
    const lathe_const *constant = &b->provider->constants[c];
    if (constant->source == LATHE_CONST_TACTIC || constant->source == LATHE_CONST_COMPUTED)
        return; /* compared once the tactic is known */
    if (!b->constants[c].known) {
        const lathe_where where = binding->datum->where;
        const lathe_node node = {
            .kind = LATHE_NODE_INTEGER, .integer = actual, .real = (double)actual};
        const char *origin = lathe_arena_print(b->arena, "%s:%d, %s[%d]", where.file, where.line,
                                               binding->datum->name, dim);
        b->constants[c] = lathe_tactic_bound(b->arena, constant, where, &node, origin);
        b->blame[c] = lathe_arena_print(b->arena, "argument '%s', bound to %s", arg->name,
                                        describe_datum(b, binding));
    } else if (b->constants[c].integer != actual) {
        lathe_bind_fail(b, b->launch->parts[0]->where,
                        "shapes do not meet: %s is %" PRId64 " by %s, but %" PRId64
                        " by argument '%s', bound to %s",
                        constant->name, b->constants[c].integer, b->blame[c], actual, arg->name,
                        describe_datum(b, binding));
    }
}

void lathe_bind_unify(lathe_binder *b, size_t i) {
    const lathe_arg *arg = &b->provider->args[i];
    const lathe_binding *binding = &b->args[i];
    /* An output of partial sums has one dimension more than the value it is the sum of. */
    const int lead = arg->form == LATHE_K_PARTIALS && arg->dir != LATHE_DIR_IN ? 1 : 0;
    if (arg->rank != binding->shape.rank + lead)
        lathe_bind_fail(b, b->launch->parts[0]->where,
                        "shapes do not meet: argument '%s' (%s:%d) has %d dimensions, bound to %s",
                        arg->name, arg->where.file, arg->where.line, arg->rank,
                        describe_datum(b, binding));
    for (int d = 0; d < binding->shape.rank; d++) {
        const lathe_arg_dim *dim = &arg->dims[d + lead];
        const int64_t actual = binding->shape.dims[d];
        if (dim->constant >= 0)
            unify_dim(b, i, d + lead, actual);
        else if (dim->pages ? actual != 0 : dim->number && dim->number != actual)
            lathe_bind_fail(b, b->launch->parts[0]->where,
                            "shapes do not meet: dimension %d of argument '%s' (%s:%d) is %s, "
                            "bound to %s",
                            d + 1, arg->name, arg->where.file, arg->where.line,
                            dim->pages ? "pages"
                                       : lathe_arena_print(b->arena, "%" PRId64, dim->number),
                            describe_datum(b, binding));
    }
}

/* Whether a constant occurs in the shape of an argument of a port, and whether in one that is
 * bound. */
static bool occurs(const lathe_binder *b, int constant, bool bound) {
    for (size_t i = 0; i < b->provider->arg_count; i++) {
        const lathe_arg *arg = &b->provider->args[i];
        if (!arg->port_count || (bound && !b->args[i].bound))
            continue;
        for (int d = 0; d < arg->rank; d++)
            if (arg->dims[d].constant == constant)
                return true;
    }
    return false;
}

void lathe_bind_settle(lathe_binder *b) {
    for (size_t i = 0; i < b->provider->constant_count; i++) {
        const lathe_const *c = &b->provider->constants[i];
        if (c->source == LATHE_CONST_HAS) {
            const bool bound = b->args[lathe_provider_arg(b->provider, c->from)].bound;
            b->constants[i] = (lathe_bound){true, bound, bound,
                                            lathe_arena_print(b->arena, "argument %s is %sbound",
                                                              c->from, bound ? "" : "not ")};
        }
        if (c->source != LATHE_CONST_SHAPE || b->constants[i].known)
            continue;
        if (c->otherwise.kind != LATHE_NODE_NIL)
            give(b, i, c->where, &c->otherwise, "default");
        else if (occurs(b, (int)i, false) && !occurs(b, (int)i, true))
            b->constants[i] = (lathe_bound){true, 0, 0, "its argument is not bound"};
    }
}

void lathe_bind_complete(const lathe_binder *b) {
    for (size_t i = 0; i < b->provider->constant_count; i++) {
        const lathe_const *c = &b->provider->constants[i];
        if (!b->constants[i].known && c->source != LATHE_CONST_TACTIC &&
            c->source != LATHE_CONST_COMPUTED)
            lathe_bind_fail(b, c->where, "constant %s has no value: %s", c->name,
                            c->source == LATHE_CONST_OPTION
                                ? "the use gives no such option and there is no default"
                                : "no bound argument's shape names it");
    }
}

lathe_node lathe_bind_call(const lathe_binder *b, const lathe_node *function,
                           const lathe_bound *constants, const char *what) {
    const lathe_node args[2] = {lathe_tactic_constants(b->arena, b->provider, constants), b->arch};
    return lathe_lua_call(b->plan->lua, function, args, 2, what);
}
