/* SPDX-License-Identifier: Apache-2.0
 * Rules 3 and 5 of the scan: a generated file is read by a grammar that knows nothing but includes,
 * structs of constants and entry points of one call, and each is compared with the plan. Its types
 * are checked by libclang against the arguments of the specs, which rule 1 has compared with the
 * templates: the templates need not be parsed again. */
#include "scan_unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    lathe_scan_unit *unit;
    const lathe_scan_input *in;
    const lathe_scan_file *file;
    const lathe_token_list *list;
    size_t at;
    bool *structs, *entries, *includes; /* seen, by kernel */
    bool lost;                          /* the grammar was left */
} reader;

static const lathe_token *peek(const reader *r) {
    static const lathe_token end = {"the end of the file", LATHE_TOKEN_MARK, 0, 0};
    return r->at < r->list->count ? &r->list->tokens[r->at] : &end;
}

static int line_here(const reader *r) {
    const size_t last = r->list->count ? r->list->count - 1 : 0;
    return r->list->count ? r->list->tokens[r->at < last ? r->at : last].line : 1;
}

/* Rule 5: says what stands here and leaves the grammar; only the first such place of a file is
 * reported. */
static void refuse(reader *r, const char *wanted) {
    if (!r->lost)
        lathe_scan_find(r->unit, r->file->file, line_here(r),
                        "found `%s`, allowed is %s: a generated file holds includes, structs of "
                        "static constexpr constants and entry points of one call",
                        peek(r)->text, wanted);
    r->lost = true;
}

static bool accept(reader *r, const char *text) {
    if (r->lost || r->at >= r->list->count || !lathe_token_is(peek(r), text))
        return false;
    r->at++;
    return true;
}

static void expect(reader *r, const char *text) {
    if (!accept(r, text))
        refuse(r, text);
}

static const lathe_token *expect_kind(reader *r, lathe_token_kind kind, const char *wanted) {
    const lathe_token *t = peek(r);
    if (r->lost || r->at >= r->list->count || t->kind != kind) {
        refuse(r, wanted);
        return t;
    }
    r->at++;
    return t;
}

static const lathe_token *expect_name(reader *r) {
    return expect_kind(r, LATHE_TOKEN_NAME, "a name");
}

#define FIND(r, line, ...) lathe_scan_find((r)->unit, (r)->file->file, line, __VA_ARGS__)

/* --- includes --- */

static void read_include(reader *r) {
    expect(r, "#");
    expect(r, "include");
    const lathe_token *path = expect_kind(r, LATHE_TOKEN_LITERAL, "a path in quotes");
    if (r->lost || strcmp(path->text, "\"prims.cuh\"") == 0)
        return;
    bool known = false;
    for (size_t i = 0; i < r->file->kernel_count; i++) {
        const char *file = r->in->providers[r->file->kernels[i].provider].file;
        const size_t n = strlen(file);
        if (strlen(path->text) == n + 2 && strncmp(path->text + 1, file, n) == 0)
            r->includes[i] = known = true;
    }
    if (!known)
        FIND(r, path->line, "#include %s; allowed are the templates of this file's kernels",
             path->text);
}

/* --- config structs --- */

typedef struct {
    const char *text; /* as written, sign included */
    double real;
    int64_t integer;
    bool is_integer, is_single; /* single: with the suffix f */
} number;

static number read_number(reader *r) {
    const bool negative = accept(r, "-");
    const lathe_token *t = expect_kind(r, LATHE_TOKEN_LITERAL, "a number");
    number n = {.text = lathe_scan_format(r->unit, "%s%s", negative ? "-" : "", t->text)};
    char *end;
    n.integer = strtoll(n.text, &end, 10);
    n.is_integer = !*end;
    n.real = strtod(n.text, &end);
    n.is_single = strcmp(end, "f") == 0;
    if (*end && !n.is_single && !r->lost) {
        r->at--;
        refuse(r, "a decimal number");
    }
    return n;
}

static bool equals(const number *n, const lathe_scan_value *v) {
    if (v->type == LATHE_SCAN_INT)
        return n->is_integer && n->integer == v->integer;
    return n->is_single ? (float)n->real == (float)v->real : n->real == v->real;
}

static const char *spell_value(lathe_scan_unit *u, const lathe_scan_value *v) {
    if (v->type == LATHE_SCAN_INT)
        return lathe_scan_format(u, "int %lld", (long long)v->integer);
    return lathe_scan_format(u, "float %.17g", v->real);
}

static size_t find_value(const lathe_scan_kernel *k, const char *name) {
    size_t i = 0;
    while (i < k->value_count && strcmp(k->values[i].name, name) != 0)
        i++;
    return i;
}

static void check_constant(reader *r, const lathe_scan_kernel *k, const lathe_token *type,
                           const lathe_token *name, const number *n, bool *seen) {
    const size_t i = find_value(k, name->text);
    if (i == k->value_count) {
        FIND(r, name->line, "constant %s::%s is not in the plan", k->config, name->text);
        return;
    }
    const lathe_scan_value *v = &k->values[i];
    const bool integer = lathe_token_is(type, "int");
    if (integer != (v->type == LATHE_SCAN_INT) || !equals(n, v))
        FIND(r, name->line, "constant %s::%s is %s %s; the plan says %s", k->config, name->text,
             type->text, n->text, spell_value(r->unit, v));
    if (seen[i])
        FIND(r, name->line, "constant %s::%s stands twice", k->config, name->text);
    seen[i] = true;
}

static void read_constant(reader *r, const lathe_scan_kernel *k, bool *seen) {
    expect(r, "static");
    expect(r, "constexpr");
    const lathe_token *type = expect_name(r);
    if (!r->lost && !lathe_token_is(type, "int") && !lathe_token_is(type, "float") &&
        !lathe_token_is(type, "double")) {
        r->at--;
        refuse(r, "int, float or double");
    }
    const lathe_token *name = expect_name(r);
    expect(r, "=");
    const number n = read_number(r);
    expect(r, ";");
    if (!r->lost && k)
        check_constant(r, k, type, name, &n, seen);
}

static void read_struct(reader *r) {
    expect(r, "struct");
    const lathe_token *name = expect_name(r);
    size_t i = 0;
    while (i < r->file->kernel_count && strcmp(r->file->kernels[i].config, name->text) != 0)
        i++;
    const lathe_scan_kernel *k = i < r->file->kernel_count ? &r->file->kernels[i] : NULL;
    if (!r->lost && !k)
        FIND(r, name->line, "struct %s belongs to no kernel of this file", name->text);
    const size_t bytes = k && k->value_count ? k->value_count : 1;
    bool *seen = lathe_scan_alloc(r->unit, bytes);
    if (!seen)
        return;
    memset(seen, 0, bytes);
    expect(r, "{");
    while (!r->lost && !accept(r, "}"))
        read_constant(r, k, seen);
    expect(r, ";");
    for (size_t v = 0; !r->lost && k && v < k->value_count; v++)
        if (!seen[v])
            FIND(r, name->line, "constant %s::%s is missing; the plan says %s", k->config,
                 k->values[v].name, spell_value(r->unit, &k->values[v]));
    for (; !r->lost && k && i < r->file->kernel_count; i++)
        if (strcmp(r->file->kernels[i].config, name->text) == 0)
            r->structs[i] = true;
}

/* --- entry points --- */

/* A literal or `Config::kName`; -1 for a name that the plan lacks. */
static int64_t read_bound(reader *r) {
    if (peek(r)->kind == LATHE_TOKEN_LITERAL)
        return read_number(r).integer;
    const lathe_token *config = expect_name(r);
    expect(r, "::");
    const lathe_token *name = expect_name(r);
    for (size_t i = 0; !r->lost && i < r->file->kernel_count; i++) {
        const lathe_scan_kernel *k = &r->file->kernels[i];
        const size_t value = find_value(k, name->text);
        if (strcmp(k->config, config->text) == 0 && value < k->value_count)
            return k->values[value].integer;
    }
    return -1;
}

typedef struct {
    int64_t threads, min_blocks, cluster;
    int line;
} bounds;

static bounds read_bounds(reader *r) {
    bounds b = {.line = line_here(r), .cluster = 1};
    if (accept(r, "__cluster_dims__")) {
        expect(r, "(");
        b.cluster = read_bound(r);
        expect(r, ")");
    }
    expect(r, "__launch_bounds__");
    expect(r, "(");
    b.threads = read_bound(r);
    if (accept(r, ","))
        b.min_blocks = read_bound(r);
    expect(r, ")");
    return b;
}

static void check_bounds(reader *r, const lathe_scan_kernel *k, const bounds *b) {
    if (b->threads != k->threads || b->min_blocks != k->min_blocks)
        FIND(r, b->line,
             "launch bounds of %s are (%lld, %lld); step.json says (%u, %u), 0 where there is none",
             k->entry, (long long)b->threads, (long long)b->min_blocks, k->threads, k->min_blocks);
    const uint32_t cluster = k->cluster > 1 ? k->cluster : 1;
    if (b->cluster != cluster)
        FIND(r, b->line, "%s has clusters of %lld; step.json says %u", k->entry,
             (long long)b->cluster, cluster);
}

/* Reads one parameter and says how it is spelled: "const bf16 *x". */
static const char *read_parameter(reader *r, const char **name) {
    const bool readonly = accept(r, "const");
    const char *element = expect_name(r)->text;
    while (!r->lost && peek(r)->kind == LATHE_TOKEN_NAME)
        element = lathe_scan_format(r->unit, "%s %s", element, expect_name(r)->text);
    expect(r, "*");
    accept(r, "__restrict__");
    *name = expect_name(r)->text;
    return lathe_scan_format(r->unit, "%s%s *%s", readonly ? "const " : "", element, *name);
}

static void check_entry_parameter(reader *r, const lathe_scan_kernel *k, size_t i,
                                  const char *found, int line) {
    const lathe_scan_arg *a = i < k->arg_count ? &k->args[i] : NULL;
    const char *wanted =
        a ? lathe_scan_format(r->unit, "%s%s *%s", a->readonly ? "const " : "", a->element, a->name)
          : "nothing";
    if (strcmp(found, wanted) != 0)
        FIND(r, line, "parameter %zu of %s is `%s`; step.json says %s", i + 1, k->entry, found,
             wanted);
}

static void read_parameters(reader *r, const lathe_scan_kernel *k, int line) {
    size_t count = 0;
    expect(r, "(");
    while (!r->lost && !accept(r, ")")) {
        if (count)
            expect(r, ",");
        const char *name;
        const int here = line_here(r);
        const char *found = read_parameter(r, &name);
        if (!r->lost && k)
            check_entry_parameter(r, k, count, found, here);
        count++;
    }
    for (; !r->lost && k && count < k->arg_count; count++)
        FIND(r, line, "%s has no parameter %zu; step.json says `%s`", k->entry, count + 1,
             k->args[count].name);
}

static void check_word(reader *r, const lathe_scan_kernel *k, const lathe_token *t,
                       const char *what, const char *wanted) {
    if (!r->lost && k && !lathe_token_is(t, wanted))
        FIND(r, t->line, "%s has %s `%s`, must be `%s`", k->entry, what, t->text, wanted);
}

static void read_call(reader *r, const lathe_scan_kernel *k) {
    const lathe_token *function = expect_name(r);
    expect(r, "<");
    check_word(r, k, function, "a call of", k ? r->in->providers[k->provider].entry : "");
    check_word(r, k, expect_name(r), "the config struct", k ? k->config : "");
    expect(r, ">");
    expect(r, "(");
    size_t count = 0;
    while (!r->lost && !accept(r, ")")) {
        if (count)
            expect(r, ",");
        const lathe_token *t = expect_name(r);
        const char *what = lathe_scan_format(r->unit, "as argument %zu of its call", count + 1);
        check_word(r, k, t, what, k && count < k->arg_count ? k->args[count].name : "nothing");
        count++;
    }
    if (!r->lost && k && count < k->arg_count)
        FIND(r, function->line, "%s passes %zu arguments, must be %zu", k->entry, count,
             k->arg_count);
    expect(r, ";");
}

static const lathe_scan_kernel *find_kernel(reader *r, const lathe_token *entry) {
    for (size_t i = 0; i < r->file->kernel_count; i++) {
        if (lathe_token_is(entry, r->file->kernels[i].entry)) {
            if (r->entries[i])
                FIND(r, entry->line, "entry point %s stands twice", entry->text);
            r->entries[i] = true;
            return &r->file->kernels[i];
        }
    }
    FIND(r, entry->line, "entry point %s is not in step.json", entry->text);
    return NULL;
}

static void read_entry(reader *r) {
    expect(r, "extern");
    expect(r, "\"C\"");
    expect(r, "__global__");
    const bool early = !r->lost && (lathe_token_is(peek(r), "__launch_bounds__") ||
                                    lathe_token_is(peek(r), "__cluster_dims__"));
    bounds b = {0};
    if (early)
        b = read_bounds(r);
    expect(r, "void");
    if (!early)
        b = read_bounds(r);
    const lathe_token *name = expect_name(r);
    if (r->lost)
        return;
    const lathe_scan_kernel *k = find_kernel(r, name);
    if (k)
        check_bounds(r, k, &b);
    read_parameters(r, k, name->line);
    expect(r, "{");
    read_call(r, k);
    expect(r, "}");
}

static void check_complete(reader *r) {
    for (size_t i = 0; i < r->file->kernel_count; i++) {
        const lathe_scan_kernel *k = &r->file->kernels[i];
        if (!r->entries[i])
            FIND(r, 1, "entry point %s is missing; step.json names it", k->entry);
        if (!r->structs[i])
            FIND(r, 1, "config struct %s of %s is missing", k->config, k->entry);
        if (!r->includes[i])
            FIND(r, 1, "#include \"%s\" is missing; %s calls it",
                 r->in->providers[k->provider].file, k->entry);
    }
}

static void read_file(reader *r) {
    while (!r->lost && r->at < r->list->count) {
        if (lathe_token_is(peek(r), "#"))
            read_include(r);
        else if (lathe_token_is(peek(r), "struct"))
            read_struct(r);
        else if (lathe_token_is(peek(r), "extern"))
            read_entry(r);
        else
            refuse(r, "#include, struct or extern \"C\"");
    }
    if (!r->lost)
        check_complete(r);
}

/* --- parsing against the specs --- */

#define ROOT "/lathe-scan"

/* What prims.cuh is to a generated file: the types that arguments have, and the macros. */
static const char prims[] =
    "#pragma once\n#define __device__\n#define __global__\n#define __launch_bounds__(...)\n"
    "#define __cluster_dims__(...)\n"
    "#define __restrict__\nstruct bf16 {}; struct e4m3 {}; struct Mailbox {};\n"
    "typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32;\n"
    "typedef unsigned long long u64; typedef long long i64;\n";

/* The template of a provider as its spec declares it. */
static const char *declare(lathe_scan_unit *u, const lathe_scan_provider *p) {
    const char *text = lathe_scan_format(
        u, "#pragma once\n#include \"prims.cuh\"\ntemplate <class C> void %s(", p->entry);
    for (size_t i = 0; i < p->arg_count; i++)
        text = lathe_scan_format(u, "%s%s%s%s *", text, i ? ", " : "",
                                 p->args[i].readonly ? "const " : "", p->args[i].element);
    return lathe_scan_format(u, "%s);\n", text);
}

static void parse(lathe_scan_unit *u, const lathe_scan_input *in, const lathe_scan_file *f) {
    lathe_scan_memory *memory = lathe_scan_alloc(u, (f->kernel_count + 2) * sizeof *memory);
    if (!memory)
        return;
    const char *path = lathe_scan_format(u, "%s/%s", ROOT, f->file);
    size_t count = 0;
    memory[count++] = (lathe_scan_memory){path, f->text};
    memory[count++] = (lathe_scan_memory){ROOT "/prims.cuh", prims};
    for (size_t i = 0; i < f->kernel_count; i++) {
        const lathe_scan_provider *p = &in->providers[f->kernels[i].provider];
        memory[count++] =
            (lathe_scan_memory){lathe_scan_format(u, "%s/%s", ROOT, p->file), declare(u, p)};
    }
    const lathe_scan_source source = {.path = path,
                                      .shown = f->file,
                                      .root = ROOT,
                                      .root_shown = in->shown,
                                      .memory = memory,
                                      .memory_count = count};
    lathe_scan_unit_parse(u, &source);
}

static bool *flags(lathe_scan_unit *u, size_t count) {
    bool *f = lathe_scan_alloc(u, count + 1);
    return f ? memset(f, 0, count + 1) : NULL;
}

/* Errors of the language say nothing new where a rule has found their cause. */
static void drop_errors(lathe_scan_unit *u, size_t errors) {
    if (u->finding_count == errors)
        return;
    u->finding_count -= errors;
    memmove(u->findings, u->findings + errors, u->finding_count * sizeof *u->findings);
}

void lathe_scan_output(lathe_scan_unit *u, const lathe_scan_input *in, const lathe_scan_file *f) {
    parse(u, in, f);
    reader r = {.unit = u,
                .in = in,
                .file = f,
                .structs = flags(u, f->kernel_count),
                .entries = flags(u, f->kernel_count),
                .includes = flags(u, f->kernel_count)};
    for (size_t i = 0; i < u->list_count; i++)
        if (strcmp(u->lists[i]->file, f->file) == 0)
            r.list = u->lists[i];
    if (!r.list || u->failed)
        return;
    const size_t errors = u->finding_count;
    read_file(&r);
    drop_errors(u, errors);
}
