/* SPDX-License-Identifier: Apache-2.0
 * Binds the arguments of one launch to data: ports, forms, dtypes. */
#include "bind_internal.h"

#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *lathe_bind_describe(lathe_arena *arena, const lathe_launch *launch) {
    lathe_text text = {.arena = arena};
    lathe_text_print(&text, "%s: part%s", launch->list, launch->part_count > 1 ? "s" : "");
    for (size_t i = 0; i < launch->part_count; i++)
        lathe_text_print(&text, "%s \"%s\"", i ? "," : "", launch->parts[i]->name);
    return lathe_text_string(&text);
}

const char *lathe_bind_describe_state(lathe_arena *arena, const lathe_state *s) {
    if (!s->written)
        return "not written";
    const char *exchange =
        s->exchange ? lathe_arena_print(arena, " through exchange \"%s\"", s->exchange) : "";
    const char *from =
        s->producer ? lathe_arena_print(arena, "provider %s (%s)", s->producer->provider->name,
                                        lathe_bind_describe(arena, s->producer))
                    : "the step's input";
    return lathe_arena_print(arena, "%s %s %s%s from %s", lathe_form_name(s->form),
                             lathe_dtype_name(s->dtype), lathe_shape_text(arena, &s->shape),
                             exchange, from);
}

_Noreturn void lathe_bind_fail(const lathe_binder *b, lathe_where where, const char *format, ...) {
    char message[4096];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(message, sizeof message, format, list);
    va_end(list);
    lathe_diag_fail(lathe_arena_diag(b->arena), where, "%s: provider %s: %s",
                    lathe_bind_describe(b->arena, b->launch), b->provider->name, message);
}

const lathe_part *lathe_bind_part(const lathe_binder *b, const char *port, const char **name) {
    const char *dot = strchr(port, '.');
    const size_t length = (size_t)(dot - port);
    *name = dot + 1;
    for (size_t i = 0; i < b->launch->part_count; i++) {
        const char *kind = b->launch->parts[i]->kind;
        if (strlen(kind) == length && memcmp(kind, port, length) == 0)
            return b->launch->parts[i];
    }
    return NULL;
}

static const lathe_port *find_port(const lathe_port *ports, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(ports[i].port, name) == 0)
            return &ports[i];
    return NULL;
}

/* Whether a part of this launch before `reader` writes `name`. */
static bool is_internal(const lathe_binder *b, const lathe_part *reader, const char *name) {
    for (size_t i = 0; i < b->launch->part_count && b->launch->parts[i] != reader; i++)
        for (size_t j = 0; j < b->launch->parts[i]->write_count; j++)
            if (strcmp(b->launch->parts[i]->writes[j].name, name) == 0)
                return true;
    return false;
}

/* What one argument's ports lead to. */
typedef struct {
    const lathe_part *part;
    const lathe_port *port;
    bool read;
} target;

static target find_target(const lathe_binder *b, const lathe_arg *arg) {
    const bool reads = arg->dir != LATHE_DIR_OUT, writes = arg->dir != LATHE_DIR_IN;
    target t = {0};
    for (size_t i = 0; i < arg->port_count; i++) {
        const char *name;
        const lathe_part *part = lathe_bind_part(b, arg->ports[i], &name);
        if (!part)
            continue;
        t.part = part;
        if (writes && (t.port = find_port(part->writes, part->write_count, name)))
            return t;
        if (reads && (t.port = find_port(part->reads, part->read_count, name))) {
            t.read = true;
            return t;
        }
    }
    return t;
}

static const char *list_ports(const lathe_binder *b, const lathe_arg *arg) {
    lathe_text text = {.arena = b->arena};
    for (size_t i = 0; i < arg->port_count; i++)
        lathe_text_print(&text, "%s%s", i ? " or " : "", arg->ports[i]);
    return lathe_text_string(&text);
}

static const lathe_datum *find_datum(const lathe_binder *b, const target *t, const lathe_arg *arg) {
    const lathe_datum *datum = lathe_model_find(b->plan->model, t->port->name);
    if (!datum && !arg->optional)
        lathe_bind_fail(b, t->part->where,
                        "argument '%s' (%s:%d): part \"%s\" %s \"%s\", which is not declared; "
                        "what crosses launches is a value, weight or cache of the model",
                        arg->name, arg->where.file, arg->where.line, t->part->name,
                        t->read ? "reads" : "writes", t->port->name);
    return datum;
}

static void check_previous(const lathe_binder *b, const target *t, const lathe_datum *datum) {
    if (t->port->previous && !datum->per_layer)
        lathe_bind_fail(b, t->part->where, "prev \"%s\": it is not per layer (%s:%d)", datum->name,
                        datum->where.file, datum->where.line);
}

static void check_written(const lathe_binder *b, const target *t, const lathe_arg *arg,
                          const lathe_datum *datum) {
    if (datum->kind != LATHE_DATUM_VALUE)
        return;
    const lathe_state *state = &b->states[datum - b->plan->model->data];
    if (!state->written && state->receiver)
        lathe_bind_fail(b, t->part->where,
                        "argument '%s' (%s:%d): part \"%s\" reads the value \"%s\" (%s:%d), which "
                        "was published and which %s (provider %s) has received; allowed: one "
                        "receiver",
                        arg->name, arg->where.file, arg->where.line, t->part->name, datum->name,
                        datum->where.file, datum->where.line,
                        lathe_bind_describe(b->arena, state->receiver),
                        state->receiver->provider->name);
    if (!state->written)
        lathe_bind_fail(b, t->part->where,
                        "argument '%s' (%s:%d): part \"%s\" reads the value \"%s\" (%s:%d), "
                        "which no launch before it writes",
                        arg->name, arg->where.file, arg->where.line, t->part->name, datum->name,
                        datum->where.file, datum->where.line);
}

/* The state of what is read: values as they were written last, all else as declared. */
static lathe_state read_state(const lathe_binder *b, const target *t, const lathe_arg *arg,
                              const lathe_datum *datum) {
    const size_t index = (size_t)(datum - b->plan->model->data);
    check_written(b, t, arg, datum);
    if (datum->kind == LATHE_DATUM_VALUE)
        return b->states[index];
    return (lathe_state){
        .written = true,
        .form = LATHE_WHOLE,
        .dtype = datum->dtype,
        .shape = lathe_layout_shape(b->plan->lua, b->plan->deployment, datum, b->variant)};
}

static void check_dtype(const lathe_binder *b, const lathe_arg *arg, const lathe_datum *datum,
                        lathe_dtype found) {
    if (found != arg->dtype)
        lathe_bind_fail(b, datum->where, "\"%s\" is %s, but argument '%s' (%s:%d) takes %s",
                        datum->name, lathe_dtype_name(found), arg->name, arg->where.file,
                        arg->where.line, lathe_dtype_name(arg->dtype));
}

static bool same_exchange(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void bind_read(lathe_binder *b, size_t i, const target *t) {
    const lathe_arg *arg = &b->provider->args[i];
    if (is_internal(b, t->part, t->port->name)) {
        if (!arg->optional)
            lathe_bind_fail(b, t->part->where,
                            "argument '%s' (%s:%d): \"%s\" is written inside the same launch",
                            arg->name, arg->where.file, arg->where.line, t->port->name);
        return;
    }
    const lathe_datum *datum = find_datum(b, t, arg);
    if (!datum)
        lathe_bind_fail(b, t->part->where, "part \"%s\" reads \"%s\", which is not declared",
                        t->part->name, t->port->name);
    check_previous(b, t, datum);
    const lathe_state state = read_state(b, t, arg, datum);
    if (state.form != arg->form || !same_exchange(state.exchange, arg->exchange))
        return; /* another argument of the port may take that form; check_ports looks */
    check_dtype(b, arg, datum, state.dtype);
    b->args[i] = (lathe_binding){.bound = true,
                                 .buffer = -1,
                                 .mailbox = -1,
                                 .datum = datum,
                                 .previous = t->port->previous,
                                 .receives = state.exchange != NULL,
                                 .form = state.form,
                                 .shape = state.shape};
    lathe_bind_unify(b, i);
}

static bool is_written_under(const lathe_binder *b, const lathe_arg *arg) {
    const lathe_node answer = lathe_bind_call(b, &arg->when, b->constants, "when");
    if (answer.kind != LATHE_NODE_BOOLEAN)
        lathe_bind_fail(b, arg->where, "argument '%s': 'when' returned %s, allowed: true or false",
                        arg->name, lathe_tree_found(b->arena, &answer));
    return answer.boolean;
}

/* What is published exists in no buffer, so nothing but the next exchange can have it. */
static void check_published(const lathe_binder *b, const target *t, const lathe_arg *arg,
                            const lathe_datum *datum) {
    const char *why = !b->variant                        ? "`prepare` has no exchanges"
                      : datum->output                    ? "it is an output of the step"
                      : datum->per_layer                 ? "it is kept per layer"
                      : datum->kind != LATHE_DATUM_VALUE ? "it is no value"
                                                         : NULL;
    if (why)
        lathe_bind_fail(b, t->part->where,
                        "argument '%s' (%s:%d) publishes \"%s\" (%s:%d) through exchange \"%s\", "
                        "but %s",
                        arg->name, arg->where.file, arg->where.line, datum->name, datum->where.file,
                        datum->where.line, arg->exchange, why);
}

/* A library gathers the ranks' columns one after the other: [..., n] comes as [ranks, ...,
 * n/ranks].
 */
static void gather_shape(const lathe_binder *b, const target *t, lathe_binding *binding) {
    lathe_shape *s = &binding->shape;
    const int64_t ranks = b->plan->deployment->tp, width = s->dims[s->rank - 1];
    if (s->rank == LATHE_MAX_DIMS || width % ranks)
        lathe_bind_fail(b, t->part->where,
                        "\"%s\" %s (%s:%d) cannot be gathered: %" PRId64
                        " ranks do not divide its last dimension",
                        binding->datum->name, lathe_shape_text(b->arena, s),
                        binding->datum->where.file, binding->datum->where.line, ranks);
    memmove(s->dims + 1, s->dims, (size_t)s->rank * sizeof *s->dims);
    s->dims[0] = ranks;
    s->dims[s->rank++] = width / ranks;
}

static void bind_write(lathe_binder *b, size_t i, const target *t) {
    const lathe_arg *arg = &b->provider->args[i];
    const lathe_datum *datum = find_datum(b, t, arg);
    if (!datum)
        return;
    if (datum->kind == LATHE_DATUM_WEIGHT ||
        (datum->kind == LATHE_DATUM_IMPLICIT && arg->dir == LATHE_DIR_OUT) || datum->input)
        lathe_bind_fail(b, t->part->where, "part \"%s\" writes \"%s\", which is not for writing",
                        t->part->name, datum->name);
    if (arg->dir == LATHE_DIR_INOUT)
        check_written(b, t, arg, datum);
    if (arg->dir == LATHE_DIR_MAILBOX)
        check_published(b, t, arg, datum);
    if (arg->form == LATHE_WHOLE || arg->form == LATHE_COLUMNS || arg->dir == LATHE_DIR_MAILBOX)
        check_dtype(b, arg, datum, datum->dtype);
    b->args[i] = (lathe_binding){
        .bound = true,
        .buffer = -1,
        .mailbox = -1,
        .datum = datum,
        .publishes = arg->dir == LATHE_DIR_MAILBOX,
        .form = arg->form,
        .shape = lathe_layout_shape(b->plan->lua, b->plan->deployment, datum, b->variant)};
    if (b->provider->collective && arg->form == LATHE_COLUMNS)
        gather_shape(b, t, &b->args[i]);
    lathe_bind_unify(b, i);
}

/* Which arguments a pass binds: those read, then those always written, then those under a
 * condition. */
typedef enum { PASS_READ, PASS_WRITTEN, PASS_CONDITION } pass;

static pass pass_of(const lathe_binder *b, const lathe_arg *arg) {
    if (arg->dir == LATHE_DIR_IN || (arg->dir == LATHE_DIR_MAILBOX && find_target(b, arg).read))
        return PASS_READ;
    return arg->when.kind == LATHE_NODE_NIL ? PASS_WRITTEN : PASS_CONDITION;
}

static void bind_pass(lathe_binder *b, pass which) {
    for (size_t i = 0; i < b->provider->arg_count; i++) {
        const lathe_arg *arg = &b->provider->args[i];
        if (arg->dir == LATHE_DIR_WORKSPACE || pass_of(b, arg) != which)
            continue;
        if (which == PASS_CONDITION && !is_written_under(b, arg))
            continue;
        if (arg->dir == LATHE_DIR_MAILBOX && !arg->port_count) {
            b->args[i].bound = true;
            continue;
        }
        const target t = find_target(b, arg);
        if (t.port && t.read)
            bind_read(b, i, &t);
        else if (t.port)
            bind_write(b, i, &t);
        else if (!arg->optional)
            lathe_bind_fail(b, b->launch->use->where,
                            "argument '%s' (%s:%d): no buffer feeds %s; part \"%s\" (%s:%d) names "
                            "none",
                            arg->name, arg->where.file, arg->where.line, list_ports(b, arg),
                            t.part ? t.part->name : "", t.part ? t.part->where.file : "",
                            t.part ? t.part->where.line : 0);
    }
}

static bool takes(const lathe_arg *arg, const char *kind, const char *port) {
    for (size_t i = 0; i < arg->port_count; i++) {
        const char *dot = strchr(arg->ports[i], '.');
        if (strlen(kind) == (size_t)(dot - arg->ports[i]) &&
            strncmp(arg->ports[i], kind, (size_t)(dot - arg->ports[i])) == 0 &&
            strcmp(dot + 1, port) == 0)
            return true;
    }
    return false;
}

static const char *exchange_text(lathe_arena *arena, const char *exchange) {
    return exchange ? lathe_arena_print(arena, " through exchange \"%s\"", exchange) : "";
}

static const char *forms_taken(const lathe_binder *b, const char *kind, const char *port) {
    lathe_text text = {.arena = b->arena};
    for (size_t i = 0; i < b->provider->arg_count; i++)
        if (takes(&b->provider->args[i], kind, port))
            lathe_text_print(&text, "%s%s%s", text.size ? ", " : "",
                             lathe_form_name(b->provider->args[i].form),
                             exchange_text(b->arena, b->provider->args[i].exchange));
    return text.size ? lathe_text_string(&text) : NULL;
}

static const char *describe_producer(const lathe_binder *b, const lathe_state *state) {
    if (!state->producer)
        return "the step's input";
    return lathe_arena_print(b->arena, "provider %s (%s, %s:%d)", state->producer->provider->name,
                             lathe_bind_describe(b->arena, state->producer),
                             state->producer->parts[0]->where.file,
                             state->producer->parts[0]->where.line);
}

/* Ports of the kind that arguments read. */
static const char *ports_read(const lathe_binder *b, const char *kind) {
    lathe_text text = {.arena = b->arena};
    const size_t length = strlen(kind);
    for (size_t i = 0; i < b->provider->arg_count; i++) {
        const lathe_arg *arg = &b->provider->args[i];
        for (size_t j = 0; j < arg->port_count && arg->dir != LATHE_DIR_OUT; j++)
            if (strncmp(arg->ports[j], kind, length) == 0 && arg->ports[j][length] == '.')
                lathe_text_print(&text, "%s%s", text.size ? " " : "", arg->ports[j]);
    }
    return text.size ? lathe_text_string(&text) : "none";
}

/* One port that a covered part reads: an argument must have it, in the form it has. */
static void check_read(const lathe_binder *b, const lathe_part *part, const lathe_port *port) {
    if (is_internal(b, part, port->name))
        return;
    for (size_t i = 0; i < b->provider->arg_count; i++)
        if (b->args[i].bound && b->args[i].datum &&
            takes(&b->provider->args[i], part->kind, port->port))
            return;
    const char *forms = forms_taken(b, part->kind, port->port);
    const lathe_datum *datum = lathe_model_find(b->plan->model, port->name);
    if (!forms)
        lathe_bind_fail(b, part->where,
                        "part \"%s\" reads \"%s\" as %s.%s, for which the provider (%s:%d) has no "
                        "argument; allowed: %s",
                        part->name, port->name, part->kind, port->port, b->provider->where.file,
                        b->provider->where.line, ports_read(b, part->kind));
    const lathe_state *state = &b->states[datum ? datum - b->plan->model->data : 0];
    lathe_bind_fail(b, part->where,
                    "forms do not meet: \"%s\" comes as %s%s from %s, but %s.%s is taken as: %s",
                    port->name, lathe_form_name(datum ? state->form : LATHE_WHOLE),
                    datum ? exchange_text(b->arena, state->exchange) : "",
                    datum ? describe_producer(b, state) : "nowhere", part->kind, port->port, forms);
}

static void check_ports(const lathe_binder *b) {
    for (size_t i = 0; i < b->launch->part_count; i++)
        for (size_t j = 0; j < b->launch->parts[i]->read_count; j++)
            check_read(b, b->launch->parts[i], &b->launch->parts[i]->reads[j]);
}

/* Blocks of one launch run in any order, so what it reads must not be what it writes. */
static void check_aliases(const lathe_binder *b) {
    const lathe_provider *p = b->provider;
    for (size_t i = 0; i < p->arg_count; i++)
        for (size_t j = i + 1; j < p->arg_count; j++) {
            const lathe_binding *x = &b->args[i], *y = &b->args[j];
            const bool written = p->args[i].dir != LATHE_DIR_IN || p->args[j].dir != LATHE_DIR_IN;
            if (written && x->bound && y->bound && x->datum && x->datum == y->datum &&
                x->previous == y->previous)
                lathe_bind_fail(b, b->launch->parts[0]->where,
                                "arguments '%s' and '%s' are both \"%s\", and one of them is "
                                "written; allowed: one inout argument",
                                p->args[i].name, p->args[j].name, x->datum->name);
        }
}

static void check_collective(const lathe_binder *b) {
    const char *name = b->provider->collective;
    if (!b->variant || b->plan->deployment->tp == 1)
        lathe_bind_fail(b, b->launch->use->where, "%s in %s; allowed: in the step of several ranks",
                        name, b->variant ? "a deployment of one rank" : "`prepare`");
    const int64_t ranks = strcmp(name, "all_gather") == 0 ? b->plan->deployment->tp : 1;
    const lathe_shape *from = &b->args[0].shape, *to = &b->args[1].shape;
    if (lathe_shape_count(from) * ranks != lathe_shape_count(to))
        lathe_bind_fail(
            b, b->launch->parts[0]->where, "%s over %" PRId64 " ranks makes \"%s\" %s of \"%s\" %s",
            name, b->plan->deployment->tp, b->args[1].datum->name, lathe_shape_text(b->arena, to),
            b->args[0].datum->name, lathe_shape_text(b->arena, from));
}

static lathe_node describe_arch(const lathe_binder *b) {
    const size_t count = b->launch->part_count;
    const char **kinds = lathe_arena_alloc(b->arena, count + 1, sizeof *kinds);
    for (size_t i = 0; i < count; i++)
        kinds[i] = b->launch->parts[i]->kind;
    return lathe_tactic_arch(b->arena, b->plan->arch, b->plan->deployment->tp, kinds, count);
}

size_t lathe_bind(lathe_plan *plan, const lathe_variant *variant, const lathe_launch *launch,
                  const lathe_state *states, lathe_binding *args) {
    const lathe_provider *p = launch->provider;
    lathe_binder b = {.plan = plan,
                      .arena = plan->arena,
                      .variant = variant,
                      .launch = launch,
                      .provider = p,
                      .states = states,
                      .args = args};
    b.constants = lathe_arena_alloc(b.arena, p->constant_count + 1, sizeof *b.constants);
    b.blame = lathe_arena_alloc(b.arena, p->constant_count + 1, sizeof *b.blame);
    for (size_t i = 0; i < p->arg_count; i++)
        args[i] = (lathe_binding){.buffer = -1, .mailbox = -1};
    b.arch = describe_arch(&b);
    lathe_bind_given(&b);
    bind_pass(&b, PASS_READ);
    bind_pass(&b, PASS_WRITTEN);
    check_ports(&b);
    lathe_bind_settle(&b);
    bind_pass(&b, PASS_CONDITION);
    lathe_bind_settle(&b);
    check_aliases(&b);
    if (p->collective)
        check_collective(&b);
    lathe_bind_complete(&b);
    return lathe_bind_kernel(&b);
}
