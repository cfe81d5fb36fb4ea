/* SPDX-License-Identifier: Apache-2.0
 * Results as tables for people. */
#include "bench_report.h"

#include <math.h>

#include "bench_record.h"

typedef struct {
    const lathe_bench_result *r;
    const lathe_bench_variant *v;
    const json_t *against;
    FILE *out;
} report;

static void show_machine(const report *p) {
    const lathe_bench_result *r = p->r;
    fprintf(p->out, "%s, driver %s, %s%s%s\n", r->gpu, r->before.driver[0] ? r->before.driver : "?",
            r->toolkit[0] ? "toolkit " : "", r->toolkit, r->toolkit[0] ? "" : r->date);
    fprintf(p->out, "%s, clock %u MHz before, %u after, of %u; memory %u MHz; %u W after\n",
            r->date, r->before.clock_mhz, r->after.clock_mhz, r->before.clock_most_mhz,
            r->after.memory_mhz, r->after.watts);
    fprintf(p->out, "%s%s%s tp %d, %s: the first %d of %d layers, %.2f GB of weights a rank\n",
            r->layout, r->deployment[0] ? " " : "", r->deployment, r->tp, r->arch, r->layers,
            r->layers_of_all, r->weight_bytes * 1e-9);
    if (r->rank_slice)
        fprintf(p->out,
                "one rank of %d on one GPU, its mailboxes led back to itself: a LOWER BOUND\n",
                r->tp);
    if (r->ceiling > 0)
        fprintf(p->out, "ceiling %.3f TB/s, %s\n", r->ceiling * 1e-12, r->ceiling_note);
    else
        fprintf(p->out, "no ceiling, so no fractions: %s\n", r->ceiling_note);
}

static void show_ratio(const report *p, double now, double then) {
    if (p->against && isfinite(then) && then != 0)
        fprintf(p->out, "  x %.3f", now / then);
    fputc('\n', p->out);
}

/* "  62.5   0.69" or nothing. */
static void show_floor(const report *p, double bytes, double time) {
    const double floor = lathe_bench_floor(p->r, bytes);
    if (floor > 0 && time > 0)
        fprintf(p->out, " %9.2f %6.2f", floor, floor / time);
    else
        fprintf(p->out, " %9.2f %6s", floor, "");
}

static void show_step(const report *p) {
    const lathe_bench_variant *v = p->v;
    fprintf(
        p->out,
        "\nvariant %s: %lld requests of %lld tokens, context %lld, %d replays, %d sets of inputs\n",
        v->name, (long long)v->requests, (long long)v->q, (long long)v->context, v->replays,
        v->sets);
    if (v->expert_layers > 0)
        fprintf(
            p->out,
            "distinct experts a layer on this rank: %.1f (%.1f to %.1f), %d layers with routes\n",
            v->experts, v->experts_least, v->experts_most, v->expert_layers);
    fprintf(p->out, "%-40s %6s %9s %9s %9s %9s %6s\n", "", "", "median us", "p10", "p99", "floor",
            "of it");
    fprintf(p->out, "%-40s %6s %9.2f %9.2f %9.2f", "whole step", "", v->step.median, v->step.p10,
            v->step.p99);
    show_floor(p, v->bytes, v->step.median);
    show_ratio(p, v->step.median,
               lathe_bench_record_find(p->against, v->name, NULL, "step", "median_us"));
}

static void show_experts(const report *p, const lathe_bench_kind *k) {
    if (k->by_chance > 0)
        fprintf(p->out, " %7.1f %7.1f", k->experts, k->by_chance);
}

static void show_kinds(const report *p) {
    const lathe_bench_variant *v = p->v;
    fprintf(p->out, "\n%-40s %6s %9s %9s %9s %9s %6s %15s\n", "a layer, by two numbers of layers",
            "layers", "median us", "kernels", "nodes", "floor", "of it", "experts, chance");
    for (int i = 0; i < v->kind_count; ++i) {
        const lathe_bench_kind *k = &v->kinds[i];
        fprintf(p->out, "%-40s %6d ", k->name, k->layers);
        if (!k->measured) {
            fprintf(p->out, "%9s %9.2f %9d  (the first layer alone)", "", k->in_kernels, k->nodes);
            show_experts(p, k);
            fputc('\n', p->out);
            continue;
        }
        fprintf(p->out, "%9.2f %9.2f %9d", k->time, k->in_kernels, k->nodes);
        show_floor(p, k->bytes, k->time);
        show_experts(p, k);
        show_ratio(p, k->time,
                   lathe_bench_record_find(p->against, v->name, "kinds", k->name, "median_us"));
    }
}

static void show_kernel(const report *p, const lathe_bench_kernel *k) {
    if (!k->measured && !k->with_publisher)
        return;
    fprintf(p->out, "%-40s %6d ", k->name, k->launches);
    if (k->with_publisher)
        fprintf(p->out, "%9s %9s %9.2f", "with pub.", "", k->in_order);
    else
        fprintf(p->out, "%9.2f %9.2f %9.2f", k->left_out, k->spread, k->in_order);
    show_floor(p, k->bytes, k->left_out);
    show_ratio(p, k->left_out,
               lathe_bench_record_find(p->against, p->v->name, "kernels", k->name, "left_out_us"));
}

static void show_kernels(const report *p) {
    const lathe_bench_variant *v = p->v;
    int measured = 0;
    for (int i = 0; i < v->kernel_count; ++i)
        measured += v->kernels[i].measured;
    if (measured == 0)
        return;
    fprintf(p->out, "\n%-40s %6s %9s %9s %9s %9s %6s\n", "what a launch adds to the step", "number",
            "left out", "spread", "in order", "floor", "of it");
    for (int i = 0; i < v->kernel_count; ++i)
        show_kernel(p, &v->kernels[i]);
    if (v->in_order == 0)
        return; /* only some: there is no sum */
    fprintf(p->out, "%-40s %6s %9.2f %9s %9.2f   %.1f %% and %.1f %% of the step\n", "all launches",
            "", v->left_out, "", v->in_order, 100 * v->left_out / v->step.median,
            100 * v->in_order / v->step.median);
    fprintf(p->out, "a node costs %.2f us beyond its floor, an exchange %.2f more (medians)\n",
            v->costs.node, v->costs.exchange);
}

void lathe_bench_report(const lathe_bench_result *r, const json_t *against, FILE *out) {
    report p = {.r = r, .against = against, .out = out};
    show_machine(&p);
    for (int i = 0; i < r->variant_count; ++i) {
        p.v = &r->variants[i];
        show_step(&p);
        show_kinds(&p);
        show_kernels(&p);
    }
    fputs(
        "\nleft out: the step minus the step without the kernel. in order: steps that grow kernel "
        "by kernel, so that they sum to the step.\n",
        out);
}
