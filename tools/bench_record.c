/* SPDX-License-Identifier: Apache-2.0
 * Between results and JSON. */
#include "bench_record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

#define LARGEST ((size_t)16 << 20)

/* Nanoseconds are as fine as it gets. */
static json_t *make_time(double microseconds) {
    return json_real(round(microseconds * 1e3) / 1e3);
}

static json_t *make_stats(const lathe_bench_stats *s) {
    return json_pack("{s:o,s:o,s:o,s:o,s:i}", "median_us", make_time(s->median), "p10_us",
                     make_time(s->p10), "p90_us", make_time(s->p90), "p99_us", make_time(s->p99),
                     "replays", s->count);
}

static json_t *make_kernel(const lathe_bench_result *r, const lathe_bench_variant *v,
                           const lathe_bench_kernel *k) {
    json_t *j =
        json_pack("{s:s,s:s,s:s,s:i,s:I,s:o,s:b,s:b}", "name", k->name, "provider", k->provider,
                  "tactic", k->tactic, "launches", k->launches, "bytes", (json_int_t)k->bytes,
                  "floor_us", make_time(lathe_bench_floor(r, k->bytes)), "exchange", k->exchange,
                  "with_publisher", k->with_publisher);
    if (j && k->measured) {
        json_object_set_new(j, "left_out_us", make_time(k->left_out));
        json_object_set_new(j, "spread_us", make_time(k->spread));
        json_object_set_new(j, "in_order_us", make_time(k->in_order));
        if (v->costs.node > 0)
            json_object_set_new(j, "predicted_us",
                                make_time(lathe_bench_predict(
                                    &v->costs, lathe_bench_floor(r, k->bytes), k->exchange)));
    }
    return j;
}

static json_t *make_kind(const lathe_bench_result *r, const lathe_bench_kind *k) {
    json_t *j = json_pack("{s:s,s:i,s:i,s:I,s:o}", "name", k->name, "layers", k->layers, "nodes",
                          k->nodes, "bytes", (json_int_t)k->bytes, "floor_us",
                          make_time(lathe_bench_floor(r, k->bytes)));
    if (j && k->by_chance > 0) {
        json_object_set_new(j, "experts", make_time(k->experts));
        json_object_set_new(j, "experts_by_chance", make_time(k->by_chance));
    }
    if (j && k->measured) {
        json_object_set_new(j, "median_us", make_time(k->time));
        json_object_set_new(j, "kernels_us", make_time(k->in_kernels));
    }
    return j;
}

static json_t *make_variant(const lathe_bench_result *r, const lathe_bench_variant *v) {
    json_t *kinds = json_array(), *kernels = json_array();
    for (int i = 0; i < v->kind_count; ++i)
        json_array_append_new(kinds, make_kind(r, &v->kinds[i]));
    for (int i = 0; i < v->kernel_count; ++i)
        json_array_append_new(kernels, make_kernel(r, v, &v->kernels[i]));
    return json_pack("{s:s,s:I,s:I,s:I,s:o,s:I,s:o,s:i,s:f,s:f,s:f,s:i,s:o,s:o,s:o,s:o,s:o,s:o}",
                     "name", v->name, "requests", (json_int_t)v->requests, "q", (json_int_t)v->q,
                     "context", (json_int_t)v->context, "step", make_stats(&v->step), "bytes",
                     (json_int_t)v->bytes, "floor_us", make_time(lathe_bench_floor(r, v->bytes)),
                     "sets", v->sets, "experts", v->experts, "experts_least", v->experts_least,
                     "experts_most", v->experts_most, "expert_layers", v->expert_layers,
                     "left_out_us", make_time(v->left_out), "in_order_us", make_time(v->in_order),
                     "node_us", make_time(v->costs.node), "exchange_us",
                     make_time(v->costs.exchange), "kinds", kinds, "kernels", kernels);
}

static json_t *make_machine(const lathe_bench_result *r) {
    return json_pack("{s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "gpu", r->gpu, "driver",
                     r->before.driver, "toolkit", r->toolkit, "date", r->date, "clock_before_mhz",
                     (int)r->before.clock_mhz, "clock_after_mhz", (int)r->after.clock_mhz,
                     "clock_most_mhz", (int)r->before.clock_most_mhz, "memory_mhz",
                     (int)r->after.memory_mhz, "watts_before", (int)r->before.watts, "watts_after",
                     (int)r->after.watts, "multiprocessors", r->multiprocessors);
}

json_t *lathe_bench_record_make(const lathe_bench_result *r) {
    json_t *variants = json_array();
    for (int i = 0; i < r->variant_count; ++i)
        json_array_append_new(variants, make_variant(r, &r->variants[i]));
    return json_pack("{s:s,s:i,s:o,s:s,s:s,s:s,s:s,s:i,s:i,s:b,s:i,s:i,s:I,s:s,s:I,s:o}", "kind",
                     "lathe bench", "format", LATHE_BENCH_RECORD_FORMAT, "machine", make_machine(r),
                     "layout", r->layout, "deployment", r->deployment, "arch", r->arch, "hash",
                     r->hash, "tp", r->tp, "ranks", r->rank_count, "rank_slice", r->rank_slice,
                     "layers", r->layers, "layers_of", r->layers_of_all, "ceiling_bytes_per_second",
                     (json_int_t)r->ceiling, "ceiling_note", r->ceiling_note, "weight_bytes",
                     (json_int_t)r->weight_bytes, "variants", variants);
}

static lathe_status refuse(const char *path, const char *what, char *message, size_t size) {
    snprintf(message, size, "%s: %s", path, what);
    return LATHE_INVALID;
}

lathe_status lathe_bench_record_read(const char *path, json_t **record, char *message,
                                     size_t size) {
    char *text;
    size_t bytes;
    json_error_t error;
    *record = NULL;
    const int failed = lathe_file_read(path, LARGEST, &text, &bytes);
    if (failed) {
        snprintf(message, size, "%s: %s", path, strerror(failed));
        return LATHE_IO;
    }
    json_t *j = json_loadb(text, bytes, 0, &error);
    free(text);
    if (!j) {
        snprintf(message, size, "%s:%d: %s", path, error.line, error.text);
        return LATHE_INVALID;
    }
    const char *kind = json_string_value(json_object_get(j, "kind"));
    const json_t *format = json_object_get(j, "format");
    if (kind && strcmp(kind, "lathe bench") == 0 &&
        json_integer_value(format) == LATHE_BENCH_RECORD_FORMAT &&
        json_is_array(json_object_get(j, "variants"))) {
        *record = j;
        return LATHE_OK;
    }
    json_decref(j);
    return refuse(path, "found something else, allowed: a record that lathe bench wrote, format 1",
                  message, size);
}

lathe_status lathe_bench_record_write(const char *path, const json_t *record, char *message,
                                      size_t size) {
    char *text = json_dumps(record, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (!text)
        return refuse(path, "no memory", message, size);
    const int error = lathe_file_replace(path, text, strlen(text));
    free(text);
    if (!error)
        return LATHE_OK;
    refuse(path, strerror(error), message, size);
    return LATHE_IO;
}

static const json_t *find_name(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); ++i) {
        const json_t *item = json_array_get(list, i);
        const char *found = json_string_value(json_object_get(item, "name"));
        if (found && strcmp(found, name) == 0)
            return item;
    }
    return NULL;
}

double lathe_bench_record_find(const json_t *record, const char *variant, const char *list,
                               const char *name, const char *key) {
    const json_t *at = find_name(json_object_get(record, "variants"), variant);
    if (list)
        at = find_name(json_object_get(at, list), name);
    else
        at = name ? json_object_get(at, name) : at;
    const json_t *value = json_object_get(at, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}
