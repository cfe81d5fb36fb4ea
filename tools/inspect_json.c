/* SPDX-License-Identifier: Apache-2.0
 * inspect's facts as JSON, format 1; tools/README.md lists the keys. */
#include "inspect_json.h"

#include <math.h>

static json_t *known(int value, int unknown) {
    return value == unknown ? json_null() : json_integer(value);
}

static json_t *microseconds(double us) {
    return isnan(us) ? json_null() : json_real(us);
}

static json_t *constant(const lathe_step_constant *c) {
    return c->is_real ? json_real(c->real) : json_integer(c->integer);
}

static json_t *constants_of(const lathe_inspect_kernel *k) {
    json_t *object = json_object();
    for (int i = 0; i < k->kernel->constant_count; ++i)
        json_object_set_new(object, k->kernel->constants[i].name,
                            constant(&k->kernel->constants[i]));
    for (int i = 0; i < k->tactic->constant_count; ++i)
        json_object_set_new(object, k->tactic->constants[i].name,
                            constant(&k->tactic->constants[i]));
    return object;
}

static void add_measured(json_t *object, const lathe_inspect_kernel *k) {
    json_object_set_new(object, "measured_us", microseconds(k->measured_us));
    json_object_set_new(object, "measured_floor_us", microseconds(k->touched_floor_us));
    json_object_set_new(object, "predicted_us", microseconds(k->predicted_us));
    json_object_set_new(object, "limit", k->limit ? json_string(k->limit) : json_null());
}

static json_t *measured_json(const lathe_inspect *in) {
    if (!*in->measured.about)
        return json_null();
    return json_pack("{ss, si, si, si}", "about", in->measured.about, "kernels",
                     in->measured.kernels, "within_15_percent", in->measured.near, "stale",
                     in->measured.stale);
}

static json_t *kernel_json(const lathe_inspect_kernel *k) {
    const lathe_step_tactic *t = k->tactic;
    json_t *parts = json_array();
    for (int p = 0; p < k->kernel->part_count; ++p)
        json_array_append_new(parts, json_string(k->kernel->parts[p]));
    json_t *object = json_pack(
        "{ss, ss, so, so, ss, ss, s[iii], si, so, so, so, si, so, sI, sI, so, ss, ss*, sb, sb}",
        "name", k->kernel->name, "provider", k->kernel->provider, "parts", parts, "constants",
        constants_of(k), "file", t->file, "entry", t->entry, "grid", (int)t->grid[0],
        (int)t->grid[1], (int)t->grid[2], "block", (int)t->block, "registers",
        known(k->registers, -1), "spill_bytes", known(k->spill_bytes, -1), "static_shared",
        known(k->static_shared, -1), "dynamic_shared", (int)t->shared_bytes,
        "blocks_per_multiprocessor", known(k->resident, 0), "bytes", (json_int_t)k->kernel->bytes,
        "operations", (json_int_t)k->kernel->operations, "floor_us", microseconds(k->floor_us),
        "tactic", t->name, "tactic_origin", k->origin, "early", (int)k->kernel->early, "built",
        k->artefact != NULL);
    if (object)
        add_measured(object, k);
    return object;
}

static json_t *part_json(const lathe_inspect_part *p) {
    return json_pack("{ss, si, si, si, si, so, so}", "name", p->name, "layers", p->layers, "nodes",
                     p->nodes, "critical", p->critical, "exchanges", p->exchanges, "floor_us",
                     microseconds(p->floor_us), "measured_us", microseconds(p->measured_us));
}

static json_t *variant_json(const lathe_inspect_variant *v) {
    json_t *parts = json_array();
    for (int p = 0; p < v->part_count; ++p)
        json_array_append_new(parts, part_json(&v->parts[p]));
    return json_pack("{ss, sI, sI, so, so}", "name", v->variant->name, "requests",
                     (json_int_t)v->variant->requests, "q", (json_int_t)v->variant->q, "parts",
                     parts, "step", part_json(&v->whole));
}

json_t *lathe_inspect_json(const lathe_inspect *in) {
    const lathe_step_table *t = in->table;
    json_t *kernels = json_array(), *variants = json_array();
    for (int k = 0; k < t->kernel_count; ++k)
        if (lathe_inspect_shows(in, &in->kernels[k]))
            json_array_append_new(kernels, kernel_json(&in->kernels[k]));
    for (int v = 0; v < t->variant_count; ++v)
        json_array_append_new(variants, variant_json(&in->variants[v]));
    return json_pack("{si, ss, ss, si, ss, ss, si, so, so, so, so}", "inspect", 1, "layout",
                     t->layout, "deployment", t->deployment, "tp", t->tp, "arch", t->arch, "hash",
                     t->hash, "layers", t->layer_count, "ceilings",
                     t->ceilings.read_gb_s
                         ? json_pack("{sI, sI}", "read_gb_s", (json_int_t)t->ceilings.read_gb_s,
                                     "bf16_tflops", (json_int_t)t->ceilings.bf16_tflops)
                         : json_null(),
                     "measured", measured_json(in), "kernels", kernels, "variants", variants);
}

bool lathe_inspect_write_json(const lathe_inspect *in, FILE *out) {
    json_t *root = lathe_inspect_json(in);
    const bool done = root && json_dumpf(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) == 0;
    json_decref(root);
    fputc('\n', out);
    return done;
}
