/* SPDX-License-Identifier: Apache-2.0
 * Rules 1, 2 and 6 of the scan: a template's parameters, the constants it reads, and what may stand
 * in it at all.
 *
 * An uninstantiated template is followed by name: from the entry function through every declaration
 * of templates/ whose name stands in a body, and the config struct through the template parameters
 * that it is passed as. */
#include "scan_template.h"

#include <string.h>

/* --- 1: parameters --- */

static const lathe_declaration *find_entry(const lathe_scan_unit *u, const char *file,
                                           const char *name) {
    for (size_t i = 0; i < u->declaration_count; i++) {
        const lathe_declaration *d = &u->declarations[i];
        if (d->function && strcmp(d->name, name) == 0 && strcmp(d->list->file, file) == 0)
            return d;
    }
    return NULL;
}

static const char *spell(lathe_scan_unit *u, const char *name, const char *element, bool readonly,
                         bool pointer) {
    return lathe_scan_format(u, "%s%s %s%s", readonly ? "const " : "", element, pointer ? "*" : "",
                             name);
}

static void check_parameter(lathe_scan_unit *u, const lathe_scan_provider *p,
                            const lathe_declaration *d, size_t i) {
    const lathe_parameter *found = &d->parameters[i];
    const char *text = spell(u, found->name, found->element, found->readonly, found->pointer);
    if (i >= p->arg_count) {
        lathe_scan_find(u, d->list->file, found->line,
                        "parameter %zu of %s is `%s`; the spec has only %zu arguments (%s:%d)",
                        i + 1, d->name, text, p->arg_count, p->spec, p->line);
        return;
    }
    const lathe_scan_arg *wanted = &p->args[i];
    const bool same = found->pointer && found->readonly == wanted->readonly &&
                      strcmp(found->name, wanted->name) == 0 &&
                      strcmp(found->element, wanted->element) == 0;
    if (!same)
        lathe_scan_find(u, d->list->file, found->line,
                        "parameter %zu of %s is `%s`; the spec's argument is `%s` (%s:%d)", i + 1,
                        d->name, text,
                        spell(u, wanted->name, wanted->element, wanted->readonly, true), p->spec,
                        wanted->line);
}

static void check_arguments(lathe_scan_unit *u, const lathe_scan_provider *p,
                            const lathe_declaration *d) {
    for (size_t i = 0; i < d->parameter_count; i++)
        check_parameter(u, p, d, i);
    for (size_t i = d->parameter_count; i < p->arg_count; i++)
        lathe_scan_find(u, d->list->file, d->line,
                        "%s has %zu parameters; the spec's argument %zu, `%s`, is missing (%s:%d)",
                        d->name, d->parameter_count, i + 1, p->args[i].name, p->spec,
                        p->args[i].line);
}

/* --- 2: constants --- */

static const char *list_constants(lathe_scan_unit *u, const lathe_scan_provider *p) {
    const char *text = p->constant_count ? "" : "none";
    for (size_t i = 0; i < p->constant_count; i++)
        text = lathe_scan_format(u, "%s%s%s", text, i ? ", " : "", p->constants[i].name);
    return text;
}

static size_t find_constant(const lathe_scan_provider *p, const char *name) {
    size_t i = 0;
    while (i < p->constant_count && strcmp(p->constants[i].name, name) != 0)
        i++;
    return i;
}

static bool is_read(const lathe_flow *f, const char *name, size_t before) {
    for (size_t i = 0; i < before; i++)
        if (strcmp(f->reads[i].name, name) == 0)
            return true;
    return false;
}

static void check_constants(lathe_scan_unit *u, const lathe_scan_provider *p,
                            const lathe_declaration *entry, const lathe_flow *f) {
    for (size_t i = 0; i < f->read_count; i++) {
        const lathe_read *r = &f->reads[i];
        if (find_constant(p, r->name) == p->constant_count && !is_read(f, r->name, i))
            lathe_scan_find(u, r->file, r->line,
                            "constant %s is read but not declared by %s; declared are %s (%s:%d)",
                            r->name, p->name, list_constants(u, p), p->spec, p->line);
    }
    for (size_t i = 0; i < p->constant_count; i++)
        if (!is_read(f, p->constants[i].name, f->read_count))
            lathe_scan_find(u, p->spec, p->constants[i].line,
                            "constant %s is declared but never read by %s (%s:%d)",
                            p->constants[i].name, entry->name, entry->list->file, entry->line);
}

/* --- 6: what stands in prims only --- */

static const char *const forbidden[] = {"asm",      "threadIdx", "blockIdx", "blockDim", "gridDim",
                                        "warpSize", "volatile",  "goto",     "std",      "new",
                                        "delete",   "throw",     "try",      "printf",   "malloc"};
static const char *const allowed[] = {"__device__", "__forceinline__", "__noinline__",
                                      "__restrict__"};

static bool in_table(const char *name, const char *const *table, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, table[i]) == 0)
            return true;
    return false;
}

static bool is_forbidden(const char *name) {
    if (strncmp(name, "__", 2) == 0)
        return !in_table(name, allowed, sizeof allowed / sizeof *allowed);
    return strncmp(name, "atomic", 6) == 0 ||
           in_table(name, forbidden, sizeof forbidden / sizeof *forbidden);
}

static bool opens_lambda(const lathe_token_list *l, size_t i) {
    static const char *const before[] = {"=", "(", ",", "return", "{", ";"};
    if (!lathe_token_is(&l->tokens[i], "[") || i == 0 || i + 1 >= l->count)
        return false;
    const char *previous = l->tokens[i - 1].text;
    return !lathe_token_is(&l->tokens[i + 1], "[") &&
           in_table(previous, before, sizeof before / sizeof *before);
}

/* `#ifndef X`, `#define X` on the next line, `#endif`: the guard of a header. */
static bool is_guard(const lathe_token_list *l, size_t i) {
    const lathe_token *t = l->tokens;
    if (lathe_token_is(&t[i + 1], "endif"))
        return true;
    const bool first = lathe_token_is(&t[i + 1], "ifndef");
    const size_t at = first ? i : i >= 3 ? i - 3 : 0;
    return at + 5 < l->count && lathe_token_is(&t[at + 1], "ifndef") &&
           lathe_token_is(&t[at + 4], "define") && lathe_token_is(&t[at + 2], t[at + 5].text) &&
           (at + 6 == l->count || t[at + 6].line > t[at + 5].line);
}

/* A directive may be `#include "x"`, `#pragma` or a guard's. */
static void check_directive(lathe_scan_unit *u, const lathe_token_list *l, size_t i) {
    const lathe_token *t = &l->tokens[i];
    if (i + 1 == l->count || lathe_token_is(t + 1, "pragma") || is_guard(l, i))
        return;
    if (!lathe_token_is(t + 1, "include")) {
        lathe_scan_find(u, l->file, t->line,
                        "#%s in a template; allowed are #include \"...\", #pragma and a guard",
                        t[1].text);
        return;
    }
    const char *path = i + 2 < l->count ? t[2].text : "";
    if (path[0] != '"' || strncmp(path, "\"prims/", 7) == 0 || strstr(path, ".."))
        lathe_scan_find(u, l->file, t->line,
                        "#include of %s in a template; allowed are \"prims.cuh\" and headers of "
                        "templates/",
                        path[0] == '"' ? path : "a system header");
}

static void check_discipline(lathe_scan_unit *u, const lathe_token_list *l) {
    for (size_t i = 0; i < l->count; i++) {
        const lathe_token *t = &l->tokens[i];
        if (t->kind == LATHE_TOKEN_NAME && is_forbidden(t->text))
            lathe_scan_find(u, l->file, t->line, "`%s` in a template; it may stand in prims only",
                            t->text);
        else if (t->kind == LATHE_TOKEN_MARK && lathe_token_is(t, "#"))
            check_directive(u, l, i);
        else if (t->kind == LATHE_TOKEN_MARK && opens_lambda(l, i))
            lathe_scan_find(u, l->file, t->line, "a lambda in a template; write a function");
    }
}

void lathe_scan_template(lathe_scan_unit *u, const lathe_scan_input *in,
                         const lathe_scan_provider *p) {
    const char *file = lathe_scan_format(u, "%s/%s", in->shown, p->file);
    const char *path = lathe_scan_format(u, "%s/%s", in->templates, p->file);
    const lathe_scan_source source = {
        .path = path, .shown = file, .root = in->templates, .root_shown = in->shown};
    lathe_scan_unit_parse(u, &source);
    for (size_t i = 0; i < u->list_count; i++)
        check_discipline(u, u->lists[i]);
    const lathe_declaration *entry = find_entry(u, file, p->entry);
    if (!entry) {
        if (!u->broken)
            lathe_scan_find(u, file, 1,
                            "no function template %s in this file; the spec names it (%s:%d)",
                            p->entry, p->spec, p->line);
        return;
    }
    if (u->broken) /* what the parser made of the rest misleads */
        return;
    check_arguments(u, p, entry);
    lathe_flow flow;
    if (!lathe_flow_trace(&flow, u, entry))
        return;
    check_constants(u, p, entry, &flow);
    lathe_scan_launch(u, p, entry, &flow);
}
