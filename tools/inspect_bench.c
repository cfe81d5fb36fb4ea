/* SPDX-License-Identifier: Apache-2.0
 * What `lathe bench` measured, beside what is known without a GPU. */
#include "inspect.h"

#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_record.h"

#define NEAR 0.15 /* a prediction this close, by the measurement, needs no explanation */

/* The kernel's own facts first, then what is left. */
static const char *find_slowness(const lathe_inspect_kernel *k, int multiprocessors, char *text,
                                 size_t size) {
    const lathe_step_tactic *t = k->tactic;
    const double blocks = (double)t->grid[0] * t->grid[1] * t->grid[2];
    const double wave = (double)multiprocessors * k->resident;
    const double warps = (t->block + 31) / 32 * (double)k->resident;
    if (k->by_operations)
        return "tensor operations, not bytes";
    if (multiprocessors > 0 && blocks <= multiprocessors / 2.0)
        snprintf(text, size, "few blocks: %.0f of %d multiprocessors have one", blocks,
                 multiprocessors);
    else if (wave > 0 && blocks > wave && ceil(blocks / wave) > 1.15 * (blocks / wave))
        snprintf(text, size, "a last wave that is not full: %.2f waves of blocks", blocks / wave);
    else if (k->resident > 0 && warps <= 8)
        snprintf(text, size, "few warps: %.0f on a multiprocessor", warps);
    else
        return "latency within the kernel: no bytes, blocks, waves or warps account for it";
    return text;
}

/* Why the measurement is far from the prediction; NULL: it is not. */
static void explain(lathe_inspect_kernel *k, int multiprocessors) {
    if (isnan(k->measured_us) || isnan(k->predicted_us) ||
        fabs(k->measured_us - k->predicted_us) <= NEAR * k->measured_us)
        return;
    if (k->measured_us > k->predicted_us)
        k->limit = find_slowness(k, multiprocessors, k->limit_text, sizeof k->limit_text);
    else
        k->limit = k->kernel->early
                       ? "none: it overlaps, since it begins while its predecessor ends"
                       : "none: it overlaps with the other stream";
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void take_kernel(lathe_inspect *in, const json_t *from, int multiprocessors) {
    const char *name = json_string_value(json_object_get(from, "name"));
    const char *tactic = json_string_value(json_object_get(from, "tactic"));
    double time = number(from, "in_order_us");
    if (isnan(time) || time == 0) /* only some kernels were measured */
        time = number(from, "left_out_us");
    for (int i = 0; name && !isnan(time) && i < in->table->kernel_count; ++i) {
        lathe_inspect_kernel *k = &in->kernels[i];
        if (strcmp(k->kernel->name, name) != 0)
            continue;
        if (!tactic || strcmp(tactic, k->tactic->name) != 0) {
            ++in->measured.stale;
            continue;
        }
        k->measured_us = time;
        k->touched_floor_us = number(from, "floor_us");
        k->predicted_us = number(from, "predicted_us");
        k->limit = NULL;
        explain(k, multiprocessors);
    }
}

static void take_kinds(lathe_inspect_variant *v, const json_t *kinds) {
    size_t i;
    json_t *kind;
    json_array_foreach(kinds, i, kind) {
        const char *name = json_string_value(json_object_get(kind, "name"));
        for (int p = 0; name && p < v->part_count; ++p)
            if (strcmp(v->parts[p].name, name) == 0)
                v->parts[p].measured_us = number(kind, "median_us");
    }
}

static void take_variant(lathe_inspect *in, const json_t *from, bool whole, int multiprocessors) {
    const char *name = json_string_value(json_object_get(from, "name"));
    size_t i;
    json_t *kernel;
    for (int v = 0; name && v < in->table->variant_count; ++v) {
        if (strcmp(in->table->variants[v].name, name) != 0)
            continue;
        take_kinds(&in->variants[v], json_object_get(from, "kinds"));
        if (whole)
            in->variants[v].whole.measured_us = number(json_object_get(from, "step"), "median_us");
    }
    json_array_foreach(json_object_get(from, "kernels"), i, kernel)
        take_kernel(in, kernel, multiprocessors);
}

static bool is_of(const lathe_inspect *in, const json_t *record) {
    const lathe_step_table *t = in->table;
    const char *layout = json_string_value(json_object_get(record, "layout"));
    const char *deployment = json_string_value(json_object_get(record, "deployment"));
    const char *arch = json_string_value(json_object_get(record, "arch"));
    return layout && deployment && arch && strcmp(layout, t->layout) == 0 &&
           strcmp(deployment, t->deployment) == 0 && strcmp(arch, t->arch) == 0 &&
           json_integer_value(json_object_get(record, "tp")) == t->tp;
}

static void describe(lathe_inspect *in, const json_t *record) {
    const json_t *machine = json_object_get(record, "machine");
    const char *gpu = json_string_value(json_object_get(machine, "gpu"));
    const char *driver = json_string_value(json_object_get(machine, "driver"));
    const char *date = json_string_value(json_object_get(machine, "date"));
    const long long layers = json_integer_value(json_object_get(record, "layers"));
    const long long all = json_integer_value(json_object_get(record, "layers_of"));
    snprintf(in->measured.about, sizeof in->measured.about,
             "%.80s, driver %.40s, %.16s: the first %lld of %lld layers%s", gpu ? gpu : "?",
             driver ? driver : "?", date ? date : "?", layers, all,
             json_is_true(json_object_get(record, "rank_slice"))
                 ? ", one rank alone in loop-back (a lower bound)"
                 : "");
}

static lathe_status take_record(lathe_inspect *in, const char *path, bool asked,
                                lathe_message_buffer message) {
    json_t *record, *variant;
    size_t i;
    lathe_status status = lathe_bench_record_read(path, &record, message.text, message.size);
    if (status != LATHE_OK)
        return status;
    if (is_of(in, record)) {
        const int multiprocessors = (int)json_integer_value(
            json_object_get(json_object_get(record, "machine"), "multiprocessors"));
        const bool whole = json_integer_value(json_object_get(record, "layers")) ==
                           json_integer_value(json_object_get(record, "layers_of"));
        describe(in, record);
        json_array_foreach(json_object_get(record, "variants"), i, variant)
            take_variant(in, variant, whole, multiprocessors);
    } else if (asked) {
        status = lathe_fail(message, LATHE_INVALID,
                            "%s: found a record of another deployment, allowed: of %s%s%s, TP %d, "
                            "%s",
                            path, in->table->layout, *in->table->deployment ? " " : "",
                            in->table->deployment, in->table->tp, in->table->arch);
    }
    json_decref(record);
    return status;
}

static void count(lathe_inspect *in) {
    in->measured.kernels = in->measured.near = 0;
    for (int k = 0; k < in->table->kernel_count; ++k) {
        if (isnan(in->kernels[k].predicted_us))
            continue;
        ++in->measured.kernels;
        in->measured.near += in->kernels[k].limit == NULL;
    }
}

lathe_status lathe_inspect_read_bench(lathe_inspect *in, const char *directory, const char *record,
                                      lathe_message_buffer message) {
    char pattern[4200];
    glob_t found;
    lathe_status status = LATHE_OK;
    if (record) {
        status = take_record(in, record, true, message);
        count(in);
        return status;
    }
    snprintf(pattern, sizeof pattern, "%s/bench*.json", directory);
    if (glob(pattern, 0, NULL, &found) != 0)
        return LATHE_OK;
    for (size_t i = 0; status == LATHE_OK && i < found.gl_pathc; ++i)
        status = take_record(in, found.gl_pathv[i], false, message);
    globfree(&found);
    count(in);
    return status;
}
