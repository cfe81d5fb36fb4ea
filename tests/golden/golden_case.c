/* SPDX-License-Identifier: Apache-2.0 */
#include "golden_case.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "named.h"

static char message[1024];

const golden_trace golden_layer_traces[] = {
    {"in.s", "in.s", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"in.x", "in.x", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"attn.qkvg", "attn.qkvg", GOLDEN_BY_ROW, GOLDEN_QKVG},
    {"attn.q", "attn.q", GOLDEN_BY_ROW, GOLDEN_COLUMNS},
    {"attn.y", "attn.y", GOLDEN_BY_ROW, GOLDEN_COLUMNS},
    {"attn.parts", "attn.parts", GOLDEN_BY_ROW, GOLDEN_RANKED},
    {"mid.s", "mid.s", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"mid.x", "mid.x", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"moe.logits", "moe.logits", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"moe.ids", "moe.ids", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"moe.weights", "moe.weights", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"moe.h0", "moe.h0", GOLDEN_BY_ROW, GOLDEN_COLUMNS},
    {"moe.h1", "moe.h1", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"moe.codes", "moe.codes", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"moe.scales", "moe.scales", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"moe.codes2", "moe.codes2", GOLDEN_BY_ROUTE, GOLDEN_EXPERT},
    {"moe.scales2", "moe.scales2", GOLDEN_BY_ROUTE, GOLDEN_EXPERT},
    {"moe.act", "moe.act", GOLDEN_BY_ROUTE, GOLDEN_EXPERT},
    {"moe.rows", "moe.rows", GOLDEN_BY_ROUTE, GOLDEN_RANKED},
    {"moe.m", "moe.m", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"moe.f", "moe.f", GOLDEN_BY_ROW, GOLDEN_COLUMNS},
    {NULL, NULL, GOLDEN_BY_ROW, GOLDEN_WHOLE},
};

const golden_trace golden_final_traces[] = {
    {"final.s", "final.s", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"hidden", "hidden", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {"logits", "logits", GOLDEN_BY_ROW, GOLDEN_COLUMNS},
    {"next_tokens", "tokens", GOLDEN_BY_ROW, GOLDEN_WHOLE},
    {NULL, NULL, GOLDEN_BY_ROW, GOLDEN_WHOLE},
};

static lathe_npy read_file(const char *path) {
    lathe_npy a = {.data = NULL};
    if (access(path, F_OK) == 0)
        cr_assert_eq(lathe_npy_read(path, &a, message, sizeof message), LATHE_OK, "%s", message);
    return a;
}

static lathe_npy read_input(const golden_case *c, const char *name) {
    char path[1200];
    snprintf(path, sizeof path, "%s/step0/%s.npy", c->path, name);
    return read_file(path);
}

static void write_file(const char *folder, const char *name, const lathe_npy *a) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    cr_assert_eq(lathe_npy_write(path, a, message, sizeof message), LATHE_OK, "%s", message);
}

static int64_t get_int(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    cr_assert(json_is_integer(v), "case.json lacks %s", key);
    return json_integer_value(v);
}

static void read_noise(golden_case *c, const json_t *root) {
    const json_t *noise = json_object_get(json_object_get(root, "noise"), c->run);
    const json_t *stream = json_object_get(noise, "stream");
    for (int l = 0; l < c->layers; ++l)
        c->stream_noise[l] = json_number_value(json_array_get(stream, (size_t)l));
    c->hidden_noise = json_number_value(json_object_get(noise, "hidden"));
    c->logits_noise = json_number_value(json_object_get(noise, "logits"));
}

static void read_run(golden_case *c, const json_t *runs) {
    for (size_t i = 0; i < json_array_size(runs); ++i) {
        const json_t *run = json_array_get(runs, i);
        if (strcmp(json_string_value(json_object_get(run, "name")), c->run) != 0)
            continue;
        c->tile = get_int(run, "tile");
        c->tp = (int)get_int(run, "tp");
        c->ep = strcmp(json_string_value(json_object_get(run, "mode")), "ep") == 0;
    }
    cr_assert(c->tp > 0, "case.json lacks run %s", c->run);
}

static void read_config(golden_case *c) {
    char path[1200];
    json_error_t error;
    snprintf(path, sizeof path, "%s/case.json", c->path);
    json_t *root = json_load_file(path, 0, &error);
    cr_assert_not_null(root, "%s: %s", path, error.text);
    const json_t *config = json_object_get(root, "config");
    const json_t *full = json_object_get(config, "full_layers");
    c->layers = (int)get_int(config, "layers");
    cr_assert_leq(c->layers, GOLDEN_LAYERS);
    c->heads = get_int(config, "heads");
    c->kv_heads = get_int(config, "kv_heads");
    c->head_dim = get_int(config, "head_dim");
    c->experts = get_int(config, "experts");
    c->top_k = get_int(config, "top_k");
    for (size_t i = 0; i < json_array_size(full); ++i)
        c->full[json_integer_value(json_array_get(full, i))] = true;
    const json_t *bf16 = json_object_get(config, "bf16_layers");
    for (size_t i = 0; i < json_array_size(bf16); ++i)
        c->bf16[json_integer_value(json_array_get(bf16, i))] = true;
    read_run(c, json_object_get(root, "runs"));
    read_noise(c, root);
    json_decref(root);
}

static void read_pages(golden_case *c) {
    char path[1200];
    snprintf(path, sizeof path, "%s/cache/L00.npy", c->path);
    lathe_npy cache = read_file(path);
    cr_assert(cache.data && cache.rank == 4);
    c->pages = cache.shape[0];
    lathe_npy_destroy(&cache);
}

void golden_case_open(golden_case *c, const char *folder, const char *run) {
    memset(c, 0, sizeof *c);
    snprintf(c->path, sizeof c->path, "%s", folder);
    snprintf(c->run, sizeof c->run, "%s", run);
    read_config(c);
    lathe_npy q = read_input(c, "q_lens");
    cr_assert(q.data && q.type == LATHE_NPY_I32 && q.count <= GOLDEN_REQUESTS);
    c->requests = q.count;
    for (int64_t r = 0; r < q.count; ++r) {
        c->q_lens[r] = ((const int32_t *)q.data)[r];
        c->rows += c->q_lens[r];
    }
    lathe_npy_destroy(&q);
    read_pages(c);
}

static void add_request(const golden_case *c, golden_split *s, int64_t r) {
    int64_t first = 0;
    for (int64_t i = 0; i < r; ++i)
        first += c->q_lens[i];
    for (int64_t i = 0; i < c->q_lens[r]; ++i)
        s->row[s->rows++] = first + i;
    s->q = c->q_lens[r];
    s->request[s->requests++] = r;
}

int golden_case_split(const golden_case *c, golden_split *splits, int limit) {
    int count = 0;
    for (int64_t r = 0; r < c->requests; ++r) {
        int i = 0;
        while (i < count && splits[i].q != c->q_lens[r])
            ++i;
        if (i == count) {
            cr_assert_lt(count, limit);
            memset(&splits[count++], 0, sizeof *splits);
        }
        add_request(c, &splits[i], r);
    }
    return count;
}

/* Keeps the listed rows of an array whose elements are `whole` rows, each of equal size. */
static lathe_npy pick(lathe_npy *a, int64_t whole, const int64_t *rows, int64_t count) {
    const size_t row = (size_t)(a->count / whole) * lathe_npy_item_bytes(a->type);
    lathe_npy out = {.type = a->type, .rank = 2, .shape = {count, a->count / whole}};
    cr_assert_eq(a->count % whole, 0);
    out.count = count * (a->count / whole);
    out.data = malloc((size_t)count * row + 1);
    cr_assert_not_null(out.data);
    for (int64_t i = 0; i < count; ++i)
        memcpy((char *)out.data + (size_t)i * row, (const char *)a->data + (size_t)rows[i] * row,
               row);
    lathe_npy_destroy(a);
    return out;
}

/* Writes an input for both groups of layers under the step's name. */
static void write_groups(const golden_case *c, const golden_split *s, const char *folder,
                         const char *from, const char *to, bool per_request) {
    static const char *const groups[] = {"sliding", "full"};
    for (int g = 0; g < 2; ++g) {
        char name[64];
        snprintf(name, sizeof name, "%s_%s", from, groups[g]);
        lathe_npy a = read_input(c, name);
        if (!a.data)
            a = read_input(c, from);
        cr_assert_not_null(a.data, "the case lacks %s", from);
        a = per_request ? pick(&a, c->requests, s->request, s->requests)
                        : pick(&a, c->rows, s->row, s->rows);
        snprintf(name, sizeof name, "%s.%s", to, groups[g]);
        write_file(folder, name, &a);
        lathe_npy_destroy(&a);
    }
}

void golden_case_write_inputs(const golden_case *c, const golden_split *s, const char *folder) {
    static const char *const rows[] = {"tokens", "positions"};
    for (int i = 0; i < 2; ++i) {
        lathe_npy a = read_input(c, rows[i]);
        cr_assert_not_null(a.data);
        a = pick(&a, c->rows, s->row, s->rows);
        write_file(folder, rows[i], &a);
        lathe_npy_destroy(&a);
    }
    write_groups(c, s, folder, "seq_lens", "seq_lens", true);
    write_groups(c, s, folder, "block_table", "block_tables", true);
    write_groups(c, s, folder, "slot_mapping", "slot_mapping", false);
    for (int l = 0; l < c->layers; ++l) {
        char path[1200];
        char name[64];
        snprintf(path, sizeof path, "%s/cache/L%02d.npy", c->path, l);
        lathe_npy a = read_file(path);
        cr_assert_not_null(a.data);
        lathe_named_format(c->full[l] ? "kv.full" : "kv.sliding", l, name, sizeof name);
        write_file(folder, name, &a);
        lathe_npy_destroy(&a);
    }
}

void golden_case_folder(const golden_case *c, const char *folder, int rank, char *path,
                        size_t size) {
    if (c->tp == 1)
        snprintf(path, size, "%s", folder);
    else
        snprintf(path, size, "%s/r%d", folder, rank);
}

bool golden_case_is_ep(const golden_case *c, int layer) {
    return c->ep || (layer >= 0 && c->bf16[layer]);
}

/* Keeps the elements [first, first + count) of every row of `width`. */
static void take_columns(lathe_npy *a, int64_t width, int64_t first, int64_t count, char *to,
                         int64_t stride) {
    const size_t item = lathe_npy_item_bytes(a->type);
    for (int64_t r = 0; r < a->count / width; ++r)
        memcpy(to + (size_t)(r * stride) * item,
               (const char *)a->data + (size_t)(r * width + first) * item, (size_t)count * item);
}

/* This rank's part of each of the equal or unequal parts of a row. */
static lathe_npy take_share(const golden_case *c, lathe_npy *a, int rank, const int64_t *parts,
                            int count) {
    int64_t width = 0;
    for (int i = 0; i < count; ++i)
        width += parts[i];
    const int64_t stride = width / c->tp;
    lathe_npy out = {.type = a->type, .rank = 2, .shape = {a->count / width, stride}};
    out.count = a->count / c->tp;
    out.data = malloc((size_t)out.count * lathe_npy_item_bytes(a->type) + 1);
    cr_assert(out.data && width % c->tp == 0);
    int64_t from = 0, to = 0;
    for (int i = 0; i < count; ++i) {
        const int64_t share = parts[i] / c->tp;
        take_columns(a, width, from + rank * share, share,
                     (char *)out.data + (size_t)to * lathe_npy_item_bytes(a->type), stride);
        from += parts[i];
        to += share;
    }
    lathe_npy_destroy(a);
    return out;
}

/* The slab of a rank, in place. */
static void take_rank(const golden_case *c, lathe_npy *a, int rank) {
    cr_assert_eq(a->shape[0], c->tp);
    const size_t bytes = (size_t)(a->count / c->tp) * lathe_npy_item_bytes(a->type);
    memmove(a->data, (const char *)a->data + (size_t)rank * bytes, bytes);
    a->count /= c->tp;
}

static lathe_npy share_out(const golden_case *c, lathe_npy *a, int rank, int layer, int64_t rows,
                           golden_share share) {
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const int64_t width = a->count / rows;
    if (share == GOLDEN_QKVG)
        return take_share(c, a, rank, (const int64_t[]){q, kv, kv, q}, 4);
    if (share == GOLDEN_COLUMNS || (share == GOLDEN_EXPERT && !golden_case_is_ep(c, layer)))
        return take_share(c, a, rank, &width, 1);
    return *a;
}

lathe_npy golden_case_read(const golden_case *c, const golden_split *s, int rank, int layer,
                           const golden_trace *trace) {
    char path[1200];
    char name[64];
    lathe_named_format(trace->trace, layer, name, sizeof name);
    snprintf(path, sizeof path, "%s/expected/%s/step0/%s.npy", c->path, c->run, name);
    lathe_npy a = read_file(path);
    if (!a.data)
        return a;
    if (trace->share == GOLDEN_RANKED)
        take_rank(c, &a, rank);
    if (trace->index == GOLDEN_BY_ROW) {
        a = pick(&a, c->rows, s->row, s->rows);
        return share_out(c, &a, rank, layer, s->rows, trace->share);
    }
    int64_t routes[GOLDEN_REQUESTS * 8 * 16];
    cr_assert_leq(c->top_k, 16);
    for (int64_t i = 0; i < s->rows * c->top_k; ++i)
        routes[i] = s->row[i / c->top_k] * c->top_k + i % c->top_k;
    a = pick(&a, c->rows * c->top_k, routes, s->rows * c->top_k);
    return share_out(c, &a, rank, layer, s->rows * c->top_k, trace->share);
}

void golden_case_permute(const golden_case *c, const golden_split *s, int rank, int layer,
                         int32_t *row) {
    static const golden_trace ids_trace = {"moe.ids", "moe.ids", GOLDEN_BY_ROW, GOLDEN_WHOLE};
    lathe_npy ids = golden_case_read(c, s, rank, layer, &ids_trace);
    cr_assert(ids.data && ids.type == LATHE_NPY_I32);
    const bool ep = golden_case_is_ep(c, layer);
    const int64_t held = ep ? c->experts / c->tp : c->experts;
    const int64_t first = ep ? rank * held : 0;
    int64_t next = 0;
    for (int64_t x = 0; x < ids.count; ++x)
        row[x] = -1;
    for (int64_t e = first; e < first + held; ++e) {
        int64_t in_expert = 0;
        for (int64_t x = 0; x < ids.count; ++x)
            if (((const int32_t *)ids.data)[x] == e)
                row[x] = (int32_t)(next + in_expert++);
        next += (in_expert + c->tile - 1) / c->tile * c->tile;
    }
    lathe_npy_destroy(&ids);
}

/* As many permuted rows as the step's buffers hold for this batch. */
static int64_t count_permuted(const golden_case *c, const golden_split *s) {
    const int64_t routes = s->rows * c->top_k;
    const int64_t filled = c->experts < routes ? c->experts : routes;
    return (filled + (routes - filled) / c->tile) * c->tile;
}

/* From route order to permuted rows; rows of no route hold NaN bits. */
static lathe_npy permute(const golden_case *c, const golden_split *s, int rank, int layer,
                         lathe_npy *a) {
    int32_t place[GOLDEN_REQUESTS * 8 * 16];
    const int64_t routes = s->rows * c->top_k;
    int64_t rows = count_permuted(c, s);
    const size_t row = (size_t)(a->count / routes) * lathe_npy_item_bytes(a->type);
    if (a->type == LATHE_NPY_U16 && rows < 16)
        rows = 16;
    lathe_npy out = {.type = a->type, .rank = 2, .shape = {rows, a->count / routes}};
    out.count = rows * (a->count / routes);
    out.data = malloc((size_t)rows * row);
    cr_assert_not_null(out.data);
    memset(out.data, 0xff, (size_t)rows * row);
    golden_case_permute(c, s, rank, layer, place);
    for (int64_t x = 0; x < routes; ++x)
        if (place[x] >= 0)
            memcpy((char *)out.data + (size_t)place[x] * row,
                   (const char *)a->data + (size_t)x * row, row);
    lathe_npy_destroy(a);
    return out;
}

/* The gate is the last part of a row of qkvg. */
static void write_gate(const golden_case *c, const char *folder, const char *name,
                       const lathe_npy *qkvg, int64_t rows) {
    const int64_t width = qkvg->count / rows;
    const int64_t gate = c->heads * c->head_dim / c->tp;
    lathe_npy out = {.type = LATHE_NPY_U16, .rank = 2, .shape = {rows, gate}};
    out.count = rows * gate;
    out.data = malloc((size_t)out.count * 2);
    cr_assert_not_null(out.data);
    for (int64_t r = 0; r < rows; ++r)
        memcpy((uint16_t *)out.data + r * gate,
               (const uint16_t *)qkvg->data + (r + 1) * width - gate, (size_t)gate * 2);
    write_file(folder, name, &out);
    lathe_npy_destroy(&out);
}

static void write_value(const golden_case *c, const golden_split *s, const char *folder, int rank,
                        int layer, const golden_trace *t) {
    char name[64];
    lathe_npy a = golden_case_read(c, s, rank, layer, t);
    if (!a.data)
        return;
    if (t->index == GOLDEN_BY_ROUTE)
        a = permute(c, s, rank, layer, &a);
    lathe_named_format(t->value, layer, name, sizeof name);
    write_file(folder, name, &a);
    if (strcmp(t->value, "attn.qkvg") == 0) {
        lathe_named_format("attn.gate", layer, name, sizeof name);
        write_gate(c, folder, name, &a, s->rows);
    }
    lathe_npy_destroy(&a);
}

void golden_case_write_values(const golden_case *c, const golden_split *s, const char *folder) {
    for (int rank = 0; rank < c->tp; ++rank) {
        char path[1200];
        golden_case_folder(c, folder, rank, path, sizeof path);
        (void)mkdir(path, 0777);
        for (int l = 0; l < c->layers; ++l)
            for (const golden_trace *t = golden_layer_traces; t->value; ++t)
                write_value(c, s, path, rank, l, t);
        for (const golden_trace *t = golden_final_traces; t->value; ++t)
            write_value(c, s, path, rank, -1, t);
    }
}
