/* SPDX-License-Identifier: Apache-2.0
 * The text of one .cu: a banner, a config struct whose constants name their origin, an entry point
 * of one call. Comments at the ends of lines fix the line breaks, so that clang-format finds
 * nothing to change. */
#include "emit.h"

#include <inttypes.h>
#include <string.h>

enum { COLUMNS = 100 };

static const char *constant_text(lathe_arena *arena, const lathe_const *c, const lathe_bound *b) {
    if (c->real)
        return lathe_arena_print(arena, "static constexpr float %s = %sf;", c->name,
                                 lathe_text_real(arena, b->real));
    return lathe_arena_print(arena, "static constexpr int %s = %" PRId64 ";", c->name, b->integer);
}

static void write_config(const lathe_plan *plan, const lathe_kernel *k, const lathe_tactic *t,
                         const char *name, lathe_text *out) {
    const lathe_provider *p = k->provider;
    size_t widest = 0, comment = 0;
    for (size_t i = 0; i < p->constant_count; i++) {
        const size_t length =
            strlen(constant_text(plan->arena, &p->constants[i], &t->constants[i]));
        const size_t origin = strlen(t->constants[i].origin);
        widest = length > widest ? length : widest;
        comment = origin > comment ? origin : comment;
    }
    const bool above = 4 + widest + 4 + comment > COLUMNS;
    lathe_text_print(out, "struct %s {\n", name);
    for (size_t i = 0; i < p->constant_count; i++) {
        const char *text = constant_text(plan->arena, &p->constants[i], &t->constants[i]);
        const char *origin = t->constants[i].origin;
        if (above)
            lathe_text_print(out, "    // %.90s\n    %s\n", origin, text);
        else
            lathe_text_print(out, "    %-*s // %s\n", (int)widest, text, origin);
    }
    lathe_text_print(out, "};\n\n");
}

typedef struct {
    const char *code, *comment;
} line;

static line parameter(const lathe_plan *plan, const lathe_kernel *k, size_t i) {
    const lathe_arg *arg = &k->provider->args[i];
    const bool last = i + 1 == k->provider->arg_count;
    line l;
    if (arg->dir == LATHE_DIR_MAILBOX)
        l.code = lathe_arena_print(plan->arena, "Mailbox *%s%s", arg->name, last ? ") {" : ",");
    else
        l.code =
            lathe_arena_print(plan->arena, "%s%s *%s%s", arg->dir == LATHE_DIR_IN ? "const " : "",
                              lathe_dtype_element(arg->dtype), arg->name, last ? ") {" : ",");
    l.comment = !k->args[i].bound                                   ? "// null"
                : arg->dir == LATHE_DIR_MAILBOX && !arg->port_count ? "// mailbox"
                : arg->dir == LATHE_DIR_MAILBOX
                    ? lathe_arena_print(plan->arena, "// mailbox, %s %s",
                                        k->args[i].publishes ? "publishes" : "receives",
                                        lathe_shape_text(plan->arena, &k->args[i].shape))
                    : lathe_arena_print(plan->arena, "// %s",
                                        lathe_shape_text(plan->arena, &k->args[i].shape));
    return l;
}

static size_t widest_code(const line *lines, size_t count) {
    size_t widest = 0;
    for (size_t i = 0; i < count; i++)
        if (strlen(lines[i].code) > widest)
            widest = strlen(lines[i].code);
    return widest;
}

static size_t widest_comment(const line *lines, size_t count) {
    size_t widest = 0;
    for (size_t i = 0; i < count; i++)
        if (strlen(lines[i].comment) > widest)
            widest = strlen(lines[i].comment);
    return widest;
}

/* Lines with their comments in one column; where one would be too long, empty comments keep the
 * breaks. */
static void write_lines(lathe_text *out, const line *lines, size_t count) {
    const size_t width = widest_code(lines, count);
    const bool fits = width + 1 + widest_comment(lines, count) <= COLUMNS;
    for (size_t i = 0; i < count; i++)
        lathe_text_print(out, "%-*s %s\n", (int)width, lines[i].code,
                         fits ? lines[i].comment : "//");
}

/* The first line, then the parameters: after the open parenthesis where they fit there, else below
 * it. */
static void write_head(const lathe_plan *plan, const lathe_kernel *k, const lathe_tactic *t,
                       const char *entry, lathe_text *out) {
    lathe_arena *arena = plan->arena;
    const size_t count = k->provider->arg_count;
    line *lines = lathe_arena_alloc(arena, count + 1, sizeof *lines);
    for (size_t i = 0; i < count; i++)
        lines[i + 1] = parameter(plan, k, i);
    const int indent = 4 + (int)strlen(entry) + 1;
    const bool below = (size_t)indent + widest_code(lines + 1, count) + 3 > COLUMNS;
    const char *cluster =
        t->cluster > 1 ? lathe_arena_print(arena, "__cluster_dims__(%" PRId64 ") ", t->cluster)
                       : "";
    lines[0].code = lathe_arena_print(
        arena, "extern \"C\" __global__ void %s__launch_bounds__(%" PRId64 ", %" PRId64 ")",
        cluster, t->block, t->min_blocks);
    lines[0].comment = lathe_arena_print(arena, "// %" PRId64 " registers", t->registers);
    for (size_t i = 1; i <= count; i++)
        lines[i].code = below    ? lathe_arena_print(arena, "        %s", lines[i].code)
                        : i == 1 ? lathe_arena_print(arena, "    %s(%s", entry, lines[i].code)
                                 : lathe_arena_print(arena, "%*s%s", indent, "", lines[i].code);
    if (!below) {
        write_lines(out, lines, count + 1);
        return;
    }
    write_lines(out, lines, 1);
    lathe_text_print(out, "    %s(\n", entry);
    write_lines(out, lines + 1, count);
}

/* Columns that all arguments take in one line. */
static size_t call_width(const lathe_kernel *k) {
    size_t width = 1; /* the semicolon */
    for (size_t i = 0; i < k->provider->arg_count; i++)
        width += strlen(k->provider->args[i].name) + 2;
    return width;
}

/* In one line where it fits; else under the open parenthesis, or below it where little room is left
 * there. */
static void write_call(const lathe_kernel *k, const char *config, lathe_text *out) {
    size_t indent = strlen(k->provider->entry) + strlen(config) + 7, column = indent;
    const bool below = indent + call_width(k) > COLUMNS + 1 && indent > COLUMNS / 2;
    /* The empty line keeps the empty comment out of the column of the parameters' comments. */
    lathe_text_print(out, "%s    %s<%s>(", below ? "\n" : "", k->provider->entry, config);
    if (below) {
        indent = column = 8;
        lathe_text_print(out, " //\n%*s", (int)indent, "");
    }
    for (size_t i = 0; i < k->provider->arg_count; i++) {
        const char *name = k->provider->args[i].name;
        const bool last = i + 1 == k->provider->arg_count;
        const size_t need = strlen(name) + (last ? 2 : 1);
        if (i && column + 1 + need > COLUMNS) {
            lathe_text_print(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (i) {
            lathe_text_print(out, " ");
            column++;
        }
        lathe_text_print(out, "%s%s", name, last ? ");\n" : ",");
        column += need;
    }
}

static void write_banner(const lathe_plan *plan, const lathe_emit_options *o, const lathe_kernel *k,
                         const lathe_tactic *t, lathe_text *out) {
    lathe_text parts = {.arena = plan->arena};
    for (size_t i = 0; i < k->part_count; i++)
        lathe_text_print(&parts, "%s%s", i ? ", " : "", k->parts[i]);
    lathe_text_print(out, "// SPDX-License-Identifier: Apache-2.0\n");
    lathe_text_print(out, "// Generated by lathe gen from %s. Do not edit.\n", o->layout);
    lathe_text_print(out, "// Parts: %.80s\n", lathe_text_string(&parts));
    lathe_text_print(out, "// Provider: %s\n", k->provider->name);
    lathe_text_print(out, "// Tactic: %.80s (%.80s)\n", t->name, k->why);
    if (k->provider->spills)
        lathe_text_print(out, "// May spill registers: %s\n", k->provider->spills);
    lathe_text_print(out, "// Again: lathe gen %s --tp %" PRId64 "%s%s --arch %s%s%s\n", o->layout,
                     plan->deployment->tp, *plan->deployment->name ? " --deployment " : "",
                     plan->deployment->name, plan->arch->name, o->tactics ? " --tactics " : "",
                     o->tactics ? o->tactics : "");
}

lathe_text lathe_emit_kernel(const lathe_plan *plan, const lathe_emit_options *options,
                             const lathe_kernel *kernel, size_t tactic) {
    lathe_text out = {.arena = plan->arena};
    const lathe_tactic *t = &kernel->tactics[tactic];
    const char *config = lathe_emit_config(plan->arena, kernel, tactic);
    write_banner(plan, options, kernel, t, &out);
    lathe_text_print(&out, "#include \"%s.cuh\"\n\n", kernel->provider->name);
    write_config(plan, kernel, t, config, &out);
    write_head(plan, kernel, t, lathe_emit_entry(plan, kernel, tactic), &out);
    write_call(kernel, config, &out);
    lathe_text_print(&out, "}\n");
    return out;
}
