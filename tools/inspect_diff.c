/* SPDX-License-Identifier: Apache-2.0
 * What changed between two generations: kernels, constants, tactics, resources. */
#include "inspect.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct {
    FILE *out;
    const char *kernel; /* whose name has not been printed yet; NULL: it has */
    int count;
} difference;

static void say(difference *d, const char *what, const char *from, const char *to) {
    if (d->kernel)
        fprintf(d->out, "%s\n", d->kernel);
    d->kernel = NULL;
    d->count++;
    fprintf(d->out, "  %-28s %s -> %s\n", what, from, to);
}

static void compare_text(difference *d, const char *what, const char *from, const char *to) {
    if (strcmp(from ? from : "", to ? to : "") != 0)
        say(d, what, from ? from : "nothing", to ? to : "nothing");
}

static void compare_number(difference *d, const char *what, int64_t from, int64_t to) {
    char a[32], b[32];
    snprintf(a, sizeof a, "%" PRId64, from);
    snprintf(b, sizeof b, "%" PRId64, to);
    compare_text(d, what, a, b);
}

/* Not where either is unknown. */
static void compare_known(difference *d, const char *what, int from, int to) {
    if (from >= 0 && to >= 0)
        compare_number(d, what, from, to);
}

static void format_constant(const lathe_step_constant *c, char text[40]) {
    if (!c)
        snprintf(text, 40, "nothing");
    else if (c->is_real)
        snprintf(text, 40, "%.9g", c->real);
    else
        snprintf(text, 40, "%" PRId64, c->integer);
}

static void compare_constants(difference *d, const lathe_inspect_kernel *from,
                              const lathe_inspect_kernel *to) {
    char a[40], b[40];
    for (int i = 0; i < from->kernel->constant_count; ++i) {
        const char *name = from->kernel->constants[i].name;
        format_constant(&from->kernel->constants[i], a);
        format_constant(lathe_step_constant_find(to->kernel, to->tactic, name), b);
        compare_text(d, name, a, b);
    }
    for (int i = 0; i < to->kernel->constant_count; ++i) {
        const char *name = to->kernel->constants[i].name;
        format_constant(&to->kernel->constants[i], b);
        if (!lathe_step_constant_find(from->kernel, from->tactic, name))
            say(d, name, "nothing", b);
    }
}

static void compare_times(difference *d, double from, double to) {
    char a[32], b[32];
    snprintf(a, sizeof a, "%.2f us", from);
    snprintf(b, sizeof b, "%.2f us", to);
    if (!isnan(from) && !isnan(to))
        compare_text(d, "measured", a, b);
}

static void compare_kernels(difference *d, const lathe_inspect_kernel *from,
                            const lathe_inspect_kernel *to) {
    static const char *const axes[] = {"grid x", "grid y", "grid z"};
    compare_text(d, "provider", from->kernel->provider, to->kernel->provider);
    compare_constants(d, from, to);
    compare_text(d, "tactic", from->tactic->name, to->tactic->name);
    compare_text(d, "tactic from", from->origin, to->origin);
    for (int i = 0; i < 3; ++i)
        compare_number(d, axes[i], from->tactic->grid[i], to->tactic->grid[i]);
    compare_number(d, "block", from->tactic->block, to->tactic->block);
    compare_number(d, "dynamic shared bytes", from->tactic->shared_bytes, to->tactic->shared_bytes);
    compare_known(d, "registers", from->registers, to->registers);
    compare_known(d, "spill bytes", from->spill_bytes, to->spill_bytes);
    compare_known(d, "static shared bytes", from->static_shared, to->static_shared);
    compare_number(d, "bytes", from->kernel->bytes, to->kernel->bytes);
    compare_number(d, "operations", from->kernel->operations, to->kernel->operations);
    compare_times(d, from->measured_us, to->measured_us);
}

static const lathe_inspect_kernel *find(const lathe_inspect *in, const char *name) {
    for (int k = 0; k < in->table->kernel_count; ++k)
        if (strcmp(in->table->kernels[k].name, name) == 0)
            return &in->kernels[k];
    return NULL;
}

static const lathe_inspect_variant *find_variant(const lathe_inspect *in, const char *name) {
    for (int v = 0; v < in->table->variant_count; ++v)
        if (strcmp(in->table->variants[v].name, name) == 0)
            return &in->variants[v];
    return NULL;
}

static void compare_variants(difference *d, const lathe_inspect *from, const lathe_inspect *to) {
    for (int v = 0; v < from->table->variant_count; ++v) {
        char title[128];
        const char *name = from->table->variants[v].name;
        const lathe_inspect_variant *other = find_variant(to, name);
        snprintf(title, sizeof title, "variant %.100s", name);
        d->kernel = title;
        if (!other) {
            say(d, "variant", "there", "nothing");
            continue;
        }
        compare_number(d, "nodes", from->variants[v].whole.nodes, other->whole.nodes);
        compare_number(d, "nodes on the critical path", from->variants[v].whole.critical,
                       other->whole.critical);
        compare_number(d, "exchanges", from->variants[v].whole.exchanges, other->whole.exchanges);
    }
    for (int v = 0; v < to->table->variant_count; ++v) {
        d->kernel = to->table->variants[v].name;
        if (!find_variant(from, d->kernel))
            say(d, "variant", "nothing", "there");
    }
}

int lathe_inspect_diff(const lathe_inspect *from, const lathe_inspect *to, FILE *out) {
    difference d = {.out = out};
    for (int k = 0; k < from->table->kernel_count; ++k) {
        if (!lathe_inspect_shows(from, &from->kernels[k]))
            continue;
        d.kernel = from->table->kernels[k].name;
        const lathe_inspect_kernel *other = find(to, d.kernel);
        if (other)
            compare_kernels(&d, &from->kernels[k], other);
        else
            say(&d, "kernel", "there", "nothing");
    }
    for (int k = 0; k < to->table->kernel_count; ++k) {
        d.kernel = to->table->kernels[k].name;
        if (lathe_inspect_shows(to, &to->kernels[k]) && !find(from, d.kernel))
            say(&d, "kernel", "nothing", "there");
    }
    if (!from->pattern)
        compare_variants(&d, from, to);
    fprintf(out, "%d difference%s\n", d.count, d.count == 1 ? "" : "s");
    return d.count;
}
