/* SPDX-License-Identifier: Apache-2.0
 * Rule 4 of the scan: a kernel launched early waits on every path, one that triggers does, and no
 * other does either.
 *
 * "On every path" is judged by statements: grid_wait() must stand in a statement of the entry
 * function that no control flow guards, or in such a statement of a function called from one, and
 * no return may stand before it. */
#include "scan_template.h"

#include <string.h>

#define DEPTH 8

static bool is_any(const lathe_token *t, const char *const *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (lathe_token_is(t, words[i]))
            return true;
    return false;
}

static bool is_call(const lathe_declaration *d, size_t i, const char *name) {
    const lathe_token *t = &d->list->tokens[i];
    return i + 1 < d->end && t->kind == LATHE_TOKEN_NAME && lathe_token_is(t, name) &&
           lathe_token_is(t + 1, "(");
}

/* Index of the body's opening brace, or d->end. */
static size_t find_body(const lathe_declaration *d) {
    const lathe_token *t = d->list->tokens;
    size_t i = d->first;
    while (i + 1 < d->end && !(lathe_token_is(&t[i], d->name) && lathe_token_is(&t[i + 1], "(")))
        i++;
    i = i + 1 < d->end ? lathe_token_close(d->list, i + 1, d->end) : d->end;
    while (i < d->end && !lathe_token_is(&t[i], "{"))
        i++;
    return i;
}

static size_t skip_line(const lathe_declaration *d, size_t i, size_t end) {
    const int line = d->list->tokens[i].line;
    while (i < end && d->list->tokens[i].line == line)
        i++;
    return i;
}

/* Index after the `;` of a statement without control flow. */
static size_t skip_simple(const lathe_declaration *d, size_t i, size_t end) {
    const lathe_token *t = d->list->tokens;
    while (i < end && !lathe_token_is(&t[i], ";")) {
        const bool opens = t[i].kind == LATHE_TOKEN_MARK && strchr("([{", t[i].text[0]);
        i = opens ? lathe_token_close(d->list, i, end) : i + 1;
    }
    return i < end ? i + 1 : end;
}

static bool is_control(const lathe_token *t) {
    static const char *const words[] = {"if", "for", "while", "switch", "do", "else"};
    return is_any(t, words, sizeof words / sizeof *words);
}

/* Index after the statement at `i`, whatever it is; an `else` counts as a statement of its own. */
static size_t skip_statement(const lathe_declaration *d, size_t i, size_t end) {
    const lathe_token *t = d->list->tokens;
    while (i < end) { /* each round strips one head, as in `for (...) if (...) x;` */
        if (lathe_token_is(&t[i], "#")) {
            i = skip_line(d, i, end);
        } else if (lathe_token_is(&t[i], "{")) {
            return lathe_token_close(d->list, i, end);
        } else if (lathe_token_is(&t[i], "do")) {
            return skip_simple(d, skip_statement(d, i + 1, end), end);
        } else if (lathe_token_is(&t[i], "else")) {
            i++;
        } else if (is_control(&t[i])) {
            i += i + 1 < end && lathe_token_is(&t[i + 1], "constexpr") ? 2 : 1;
            i = lathe_token_close(d->list, i, end);
        } else {
            return skip_simple(d, i, end);
        }
    }
    return end;
}

/* A place in a template. */
typedef struct {
    const lathe_token *token; /* NULL: none */
    const char *file;
} place;

typedef struct {
    lathe_scan_unit *unit;
    place returned; /* a return that may come before the wait */
    place written;  /* a global write that does */
} search;

static bool surely_waits(search *s, const lathe_declaration *d, int depth);

/* The function that the name at `i` calls or may call; NULL: none of templates/. */
static const lathe_declaration *callee_at(const search *s, const lathe_declaration *d, size_t i,
                                          size_t *from) {
    const lathe_token *t = &d->list->tokens[i];
    for (; t->kind == LATHE_TOKEN_NAME && *from < s->unit->declaration_count; ++*from) {
        const lathe_declaration *callee = &s->unit->declarations[*from];
        if (callee->function && callee != d && lathe_token_is(t, callee->name)) {
            ++*from;
            return callee;
        }
    }
    return NULL;
}

/* Whether the simple statement [i, end) waits. What stands behind ?, && or || may not run. */
static bool statement_waits(search *s, const lathe_declaration *d, size_t i, size_t end,
                            int depth) {
    static const char *const guards[] = {"?", "&&", "||"};
    for (; i < end; i++) {
        if (is_any(&d->list->tokens[i], guards, sizeof guards / sizeof *guards))
            return false;
        if (is_call(d, i, "grid_wait"))
            return true;
        size_t from = 0;
        for (const lathe_declaration *c; depth < DEPTH && (c = callee_at(s, d, i, &from));)
            if (surely_waits(s, c, depth + 1))
                return true;
    }
    return false;
}

/* The first prim in [i, end) that writes global memory, in functions called from there too. Plain
 * stores are not seen. */
static place find_write(const search *s, const lathe_declaration *d, size_t i, size_t end,
                        int depth) {
    static const char *const writes[] = {"gpu_store", "gpu_atomic_add", "gpu_atomic_or",
                                         "peer_store16"};
    for (; i < end; i++) {
        const lathe_token *t = &d->list->tokens[i];
        if (is_any(t, writes, sizeof writes / sizeof *writes))
            return (place){t, d->list->file};
        size_t from = 0;
        for (const lathe_declaration *c; depth < DEPTH && (c = callee_at(s, d, i, &from));) {
            const place found = find_write(s, c, find_body(c), c->end, depth + 1);
            if (found.token)
                return found;
        }
    }
    return (place){NULL, NULL};
}

static place find_return(const lathe_declaration *d, size_t i, size_t end) {
    for (; i < end; i++)
        if (lathe_token_is(&d->list->tokens[i], "return"))
            return (place){&d->list->tokens[i], d->list->file};
    return (place){NULL, NULL};
}

static void keep_first(place *kept, place found) {
    if (!kept->token)
        *kept = found;
}

static bool surely_waits(search *s, const lathe_declaration *d, int depth) {
    const lathe_token *t = d->list->tokens;
    const size_t end = d->end;
    place returned = {NULL, NULL};
    for (size_t i = find_body(d); i < end;) {
        if (lathe_token_is(&t[i], "{") || lathe_token_is(&t[i], "}")) {
            i++; /* a plain block guards nothing */
            continue;
        }
        const size_t after = skip_statement(d, i, end);
        const bool guarded = is_control(&t[i]) || lathe_token_is(&t[i], "#");
        if (!guarded && statement_waits(s, d, i, after, depth)) {
            keep_first(&s->returned, returned);
            return true;
        }
        keep_first(&returned, find_return(d, i, after));
        if (depth == 0)
            keep_first(&s->written, find_write(s, d, i, after, 0));
        i = after;
    }
    return false;
}

/* The first call in anything reached from the entry; NULL: none. */
static const lathe_token *find_call(const lathe_scan_unit *u, const lathe_flow *f, const char *call,
                                    const char **file) {
    for (size_t n = 0; n < u->declaration_count; n++) {
        const lathe_declaration *d = &u->declarations[n];
        for (size_t i = d->first; f->reached[n] && i < d->end; i++) {
            if (is_call(d, i, call)) {
                *file = d->list->file;
                return &d->list->tokens[i];
            }
        }
    }
    return NULL;
}

static void check_wait(lathe_scan_unit *u, const lathe_scan_provider *p,
                       const lathe_declaration *entry, const lathe_flow *f) {
    const char *file = NULL;
    const lathe_token *call = find_call(u, f, "grid_wait", &file);
    search s = {.unit = u};
    if (!call) {
        lathe_scan_find(u, entry->list->file, entry->line,
                        "%s never calls grid_wait(); the spec declares it early (%s:%d)",
                        entry->name, p->spec, p->line);
    } else if (!surely_waits(&s, entry, 0)) {
        lathe_scan_find(
            u, file, call->line,
            "grid_wait() stands under control flow; a kernel declared early calls it in "
            "a top-level statement of %s or of a function called from one (%s:%d)",
            entry->name, p->spec, p->line);
    } else {
        if (s.returned.token)
            lathe_scan_find(u, s.returned.file, s.returned.token->line,
                            "%s may return before its grid_wait() at %s:%d; every thread of an "
                            "early kernel waits",
                            entry->name, file, call->line);
        if (s.written.token)
            lathe_scan_find(u, s.written.file, s.written.token->line,
                            "%s before the grid_wait() of %s at %s:%d; an early kernel writes "
                            "nothing global until then",
                            s.written.token->text, entry->name, file, call->line);
    }
}

static void check_absent(lathe_scan_unit *u, const lathe_scan_provider *p, const lathe_flow *f,
                         const char *call, const char *declaration) {
    const char *file = NULL;
    const lathe_token *t = find_call(u, f, call, &file);
    if (t)
        lathe_scan_find(u, file, t->line,
                        "%s() in a kernel that its spec does not declare `%s` (%s:%d)", call,
                        declaration, p->spec, p->line);
}

void lathe_scan_launch(lathe_scan_unit *u, const lathe_scan_provider *p,
                       const lathe_declaration *entry, const lathe_flow *f) {
    const char *file = NULL;
    if (p->early)
        check_wait(u, p, entry, f);
    else
        check_absent(u, p, f, "grid_wait", "early");
    if (!p->triggers)
        check_absent(u, p, f, "grid_trigger", "triggers");
    else if (!find_call(u, f, "grid_trigger", &file))
        lathe_scan_find(u, entry->list->file, entry->line,
                        "%s never calls grid_trigger(); the spec declares that it triggers (%s:%d)",
                        entry->name, p->spec, p->line);
}
