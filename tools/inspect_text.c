/* SPDX-License-Identifier: Apache-2.0
 * inspect's tables for people. */
#include "inspect.h"

#include <inttypes.h>
#include <math.h>

static void print_number(FILE *out, int width, int value, int unknown) {
    if (value == unknown)
        fprintf(out, " %*s", width, "-");
    else
        fprintf(out, " %*d", width, value);
}

static void print_us(FILE *out, int width, double us) {
    if (isnan(us))
        fprintf(out, " %*s", width, "-");
    else
        fprintf(out, " %*.2f", width, us);
}

static void print_parts(const lathe_step_kernel *k, FILE *out) {
    for (int p = 0; p < k->part_count; ++p)
        fprintf(out, "%s%s", p ? " " : "", k->parts[p]);
}

/* "12.58 us, 0.67 of its floor; predicted 10.96, limited by ..." */
static void print_measured(const lathe_inspect_kernel *k, FILE *out) {
    if (isnan(k->measured_us))
        return;
    fprintf(out, "%42s%.2f us", "", k->measured_us);
    if (k->measured_us > 0 && k->touched_floor_us > 0)
        fprintf(out, ", %.2f of its floor", k->touched_floor_us / k->measured_us);
    if (!isnan(k->predicted_us))
        fprintf(out, "; predicted %.2f", k->predicted_us);
    fprintf(out, "%s%s\n", k->limit ? "; limit: " : "", k->limit ? k->limit : "");
}

static void print_kernel(const lathe_inspect_kernel *k, FILE *out) {
    const lathe_step_tactic *t = k->tactic;
    char grid[64];
    snprintf(grid, sizeof grid,
             t->grid[2] > 1   ? "%ux%ux%u"
             : t->grid[1] > 1 ? "%ux%u"
                              : "%u",
             t->grid[0], t->grid[1], t->grid[2]);
    fprintf(out, "%-40s %9s %5u", k->kernel->name, grid, t->block);
    print_number(out, 4, k->registers, -1);
    print_number(out, 6, k->spill_bytes, -1);
    print_number(out, 6, k->static_shared, -1);
    fprintf(out, " %7u", t->shared_bytes);
    print_number(out, 4, k->resident, 0);
    fprintf(out, " %9.3f %10.3f", (double)k->kernel->bytes * 1e-6,
            (double)k->kernel->operations * 1e-6);
    print_us(out, 8, k->floor_us);
    fprintf(out, "%c  ", isnan(k->floor_us) ? ' ' : k->by_operations ? 'c' : 'm');
    print_parts(k->kernel, out);
    fprintf(out, "\n%42s%s: %s\n", "", t->name, k->origin ? k->origin : "origin unknown");
    print_measured(k, out);
}

static void print_part(const lathe_inspect_part *p, FILE *out) {
    fprintf(out, "  %-24s %6d %6d %9d %10d", p->name, p->layers, p->nodes, p->critical,
            p->exchanges);
    print_us(out, 10, p->floor_us);
    print_us(out, 12, p->floor_us * p->layers);
    print_us(out, 12, p->measured_us);
    fputc('\n', out);
}

static void print_variant(const lathe_inspect_variant *v, FILE *out) {
    fprintf(out, "\nvariant %s (%" PRId64 " requests of %" PRId64 " tokens)\n", v->variant->name,
            v->variant->requests, v->variant->q);
    fprintf(out, "  %-24s %6s %6s %9s %10s %10s %12s %12s\n", "part", "layers", "nodes", "critical",
            "exchanges", "floor us", "x layers us", "measured us");
    for (int p = 0; p < v->part_count; ++p)
        print_part(&v->parts[p], out);
    print_part(&v->whole, out);
}

static void print_head(const lathe_inspect *in, FILE *out) {
    const lathe_step_table *t = in->table;
    fprintf(out, "%s%s%s, TP %d, %s, %d layers, hash %s\n", t->layout, *t->deployment ? " " : "",
            t->deployment, t->tp, t->arch, t->layer_count, t->hash);
    if (t->ceilings.read_gb_s)
        fprintf(out,
                "floor: bytes over %" PRId64 " GB/s (m) or operations over %" PRId64
                " bf16 TFLOP/s (c), whichever is longer\n",
                t->ceilings.read_gb_s, t->ceilings.bf16_tflops);
    else
        fputs(
            "floor: unknown, no table of tactics named the GPU's ceilings (lathe gen --tactics)\n",
            out);
    if (*in->measured.about)
        fprintf(out, "measured: %s; predictions within 15 %%: %d of %d kernels\n",
                in->measured.about, in->measured.near, in->measured.kernels);
    if (in->measured.stale > 0)
        fprintf(out, "%d kernels of the record have another tactic now: measure again\n",
                in->measured.stale);
}

void lathe_inspect_print(const lathe_inspect *in, FILE *out) {
    int built = 0;
    print_head(in, out);
    fprintf(out, "\n%-40s %9s %5s %4s %6s %6s %7s %4s %9s %10s %8s   %s\n", "kernel", "grid",
            "block", "regs", "spills", "static", "dynamic", "/SM", "MB", "MFLOP", "floor us",
            "parts");
    for (int k = 0; k < in->table->kernel_count; ++k) {
        built += in->kernels[k].artefact != NULL;
        if (lathe_inspect_shows(in, &in->kernels[k]))
            print_kernel(&in->kernels[k], out);
    }
    for (int v = 0; !in->pattern && v < in->table->variant_count; ++v)
        print_variant(&in->variants[v], out);
    if (built < in->table->kernel_count)
        fprintf(out,
                "\n%d of %d kernels are in the cache; `lathe build` compiles the others, and "
                "then their registers are known\n",
                built, in->table->kernel_count);
}
