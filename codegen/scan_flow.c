/* SPDX-License-Identifier: Apache-2.0
 * Follows names from a template's entry function: which declarations it reaches, and in which of
 * them which template parameter is the entry's config struct. Overloads count together; a name that
 * is shadowed counts as the declaration, so the answer errs towards reaching too much. */
#include "scan_template.h"

#include <string.h>

#define PARAMETERS 8

typedef struct {
    const char *names[PARAMETERS]; /* of the type parameters; "" for others */
    size_t count;
} parameter_names;

/* `config` has bit i set where template parameter i is the config struct. */
typedef struct {
    parameter_names names;
    unsigned config, done;
    bool visited;
} state;

typedef struct {
    lathe_scan_unit *unit;
    lathe_flow *flow;
    state *states;
} trace;

static int angle(const lathe_token *t) {
    if (t->kind != LATHE_TOKEN_MARK)
        return 0;
    if (lathe_token_is(t, "<"))
        return 1;
    return lathe_token_is(t, ">") ? -1 : lathe_token_is(t, ">>") ? -2 : 0;
}

static void read_names(const lathe_declaration *d, parameter_names *names) {
    const lathe_token *t = d->list->tokens;
    *names = (parameter_names){.count = 0};
    if (d->end - d->first < 4 || !lathe_token_is(&t[d->first], "template"))
        return;
    int depth = 1;
    names->names[0] = "";
    names->count = 1;
    for (size_t i = d->first + 2; i + 1 < d->end && (depth += angle(&t[i])) > 0; i++) {
        if (depth == 1 && lathe_token_is(&t[i], ",") && names->count < PARAMETERS)
            names->names[names->count++] = "";
        const bool type = lathe_token_is(&t[i], "class") || lathe_token_is(&t[i], "typename");
        if (depth == 1 && type && t[i + 1].kind == LATHE_TOKEN_NAME)
            names->names[names->count - 1] = t[i + 1].text;
    }
}

static bool is_config(const state *s, const lathe_token *t) {
    if (t->kind != LATHE_TOKEN_NAME)
        return false;
    for (size_t i = 0; i < s->names.count; i++)
        if (s->config >> i & 1u && strcmp(s->names.names[i], t->text) == 0)
            return true;
    return false;
}

static void add_read(trace *x, const lathe_token_list *l, const lathe_token *t) {
    lathe_flow *f = x->flow;
    lathe_read *larger = lathe_scan_grow(x->unit, f->reads, f->read_count, sizeof *larger);
    if (!larger)
        return;
    f->reads = larger;
    f->reads[f->read_count++] = (lathe_read){t->text, l->file, t->line};
}

/* Bits of the template arguments at `i` (the `<`) that are the config struct and nothing else. */
static unsigned read_arguments(const state *s, const lathe_declaration *d, size_t i) {
    const lathe_token *t = d->list->tokens;
    unsigned bits = 0, position = 0;
    int depth = 1;
    for (i++; i + 1 < d->end && position < PARAMETERS; i++) {
        const bool starts = angle(&t[i - 1]) == 1 || lathe_token_is(&t[i - 1], ",");
        const bool ends = angle(&t[i + 1]) < 0 || lathe_token_is(&t[i + 1], ",");
        if (depth == 1 && starts && ends && is_config(s, &t[i]))
            bits |= 1u << position;
        if (depth == 1 && lathe_token_is(&t[i], ","))
            position++;
        depth += angle(&t[i]);
        if (depth <= 0)
            return bits;
        if (lathe_token_is(&t[i], ";") || lathe_token_is(&t[i], "{"))
            return 0; /* the `<` was a comparison */
    }
    return bits;
}

/* Without explicit arguments a template deduces them: parameters of the same name are taken to be
 * the same. */
static unsigned deduce(const state *caller, const state *callee) {
    unsigned bits = 0;
    for (size_t i = 0; i < callee->names.count; i++) {
        const lathe_token t = {callee->names.names[i], LATHE_TOKEN_NAME, 0, 0};
        if (t.text[0] && is_config(caller, &t))
            bits |= 1u << i;
    }
    return bits;
}

static void follow(trace *x, const lathe_declaration *d, const state *s, size_t i) {
    const lathe_token *t = &d->list->tokens[i];
    const bool explicit_arguments = i + 1 < d->end && lathe_token_is(t + 1, "<");
    const unsigned given = explicit_arguments ? read_arguments(s, d, i + 1) : 0;
    for (size_t n = 0; n < x->unit->declaration_count; n++) {
        if (strcmp(x->unit->declarations[n].name, t->text) != 0)
            continue;
        x->flow->reached[n] = true;
        x->states[n].config |= explicit_arguments ? given : deduce(s, &x->states[n]);
    }
}

static void walk(trace *x, const lathe_declaration *d, const state *s) {
    const lathe_token *t = d->list->tokens;
    for (size_t i = d->first; i < d->end; i++) {
        if (t[i].kind != LATHE_TOKEN_NAME)
            continue;
        const char *before = i > d->first ? t[i - 1].text : "";
        if (strcmp(before, ".") == 0 || strcmp(before, "->") == 0)
            continue;
        const bool qualifies = i + 2 < d->end && lathe_token_is(&t[i + 1], "::");
        if (qualifies && strcmp(before, "::") != 0 && is_config(s, &t[i]))
            add_read(x, d->list, &t[i + 2]);
        else
            follow(x, d, s, i);
    }
}

/* The next declaration reached with parameters not yet walked, or the count. */
static size_t next(const trace *x) {
    for (size_t i = 0; i < x->unit->declaration_count; i++) {
        const state *s = &x->states[i];
        if (x->flow->reached[i] && (!s->visited || s->config != s->done))
            return i;
    }
    return x->unit->declaration_count;
}

bool lathe_flow_trace(lathe_flow *f, lathe_scan_unit *u, const lathe_declaration *entry) {
    const size_t count = u->declaration_count;
    *f = (lathe_flow){.reached = lathe_scan_alloc(u, count * sizeof *f->reached)};
    trace x = {u, f, lathe_scan_alloc(u, count * sizeof *x.states)};
    if (!f->reached || !x.states)
        return false;
    memset(f->reached, 0, count * sizeof *f->reached);
    memset(x.states, 0, count * sizeof *x.states);
    for (size_t i = 0; i < count; i++)
        read_names(&u->declarations[i], &x.states[i].names);
    const size_t first = (size_t)(entry - u->declarations);
    f->reached[first] = true;
    x.states[first].config = 1;
    for (size_t i = next(&x); i < count; i = next(&x)) {
        x.states[i].visited = true;
        x.states[i].done = x.states[i].config;
        walk(&x, &u->declarations[i], &x.states[i]);
    }
    return !u->failed;
}
