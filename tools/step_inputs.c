/* SPDX-License-Identifier: Apache-2.0
 * Makes a step's inputs. Knows the names that every step has (runtime/README.md, implicit inputs)
 * and nothing of a model. */
#include "step_inputs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "named.h"
#include "step_files.h"
#include "synthetic.h"

#define NONSENSE_LOW (-1)
#define NONSENSE_HIGH 0x7fffffff

/* The step being written. */
typedef struct {
    lathe_engine *engine;
    const lathe_step_table *table;
    const lathe_step_variant *variant;
    const lathe_step_inputs *inputs;
    uint64_t key;
    int64_t rows, requests, q;
    int64_t *lengths; /* per request */
    char *message;
    size_t size;
} writer;

/* Pages of the requests of one group. */
typedef struct {
    const lathe_step_group *group;
    int64_t width;
    int32_t *table; /* [requests, width] */
} pages;

__attribute__((format(printf, 3, 4))) static lathe_status
refuse(const writer *w, lathe_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(w->message, w->size, format, list);
    va_end(list);
    return status;
}

static uint64_t random_at(const writer *w, uint64_t what, uint64_t index) {
    return lathe_synthetic_bits(w->key + what * 0x2545f4914f6cdd1dull, index);
}

enum { RANDOM_TOKEN, RANDOM_LENGTH, RANDOM_PAGE };

/* Buffers that a layout does not use do not exist. */
static lathe_status put(const writer *w, const char *name, const void *data, size_t bytes) {
    if (lathe_step_table_find_buffer(w->table, name) < 0)
        return LATHE_OK;
    const lathe_status status = lathe_engine_write(w->engine, name, -1, 0, data, bytes);
    return status == LATHE_OK ? LATHE_OK : refuse(w, status, "%s", lathe_message(w->engine));
}

/* The smallest window of the groups, 0 where none has one. */
static int64_t find_window(const lathe_step_table *t) {
    int64_t window = 0;
    for (int g = 0; g < t->group_count; ++g)
        if (t->groups[g].window > 0 && (window == 0 || t->groups[g].window < window))
            window = t->groups[g].window;
    return window;
}

/* The first request is the longest, the second straddles the window, the third is new, the others
 * are anywhere. */
static void choose_lengths(const writer *w) {
    const int64_t longest = w->inputs->context ? w->inputs->context : w->table->max_context;
    const int64_t window = find_window(w->table);
    for (int64_t r = 0; r < w->requests; ++r) {
        int64_t n = w->q;
        if (r == 0 || w->inputs->timing)
            n = longest;
        else if (r == 1 && window > 0)
            n = window + (w->q + 1) / 2;
        else if (r != 2 && longest > w->q)
            n += (int64_t)(random_at(w, RANDOM_LENGTH, (uint64_t)r) %
                           (uint64_t)(longest - w->q + 1));
        w->lengths[r] = n > longest ? longest : n < w->q ? w->q : n;
    }
    if (w->inputs->padding && w->requests > 1)
        w->lengths[w->requests - 1] = 0;
}

int64_t lathe_step_inputs_vocabulary(const lathe_step_table *table, int variant) {
    const lathe_step_ops *ops = &table->variants[variant].prologue;
    const int tokens = lathe_step_table_find_buffer(table, "tokens");
    int64_t entries = 1;
    for (int i = 0; i < ops->count; ++i) {
        if (ops->ops[i].kind != LATHE_OP_LAUNCH)
            continue;
        const lathe_step_kernel *k = &table->kernels[ops->ops[i].kernel];
        bool reads = false;
        for (int a = 0; a < k->arg_count; ++a)
            reads = reads || (tokens >= 0 && ops->ops[i].bindings[a].buffer == tokens);
        for (int a = 0; reads && a < k->arg_count; ++a) {
            const int b = ops->ops[i].bindings[a].buffer;
            if (b >= 0 && table->buffers[b].lifetime == LATHE_LIFETIME_WEIGHT &&
                k->args[a].shape.count == 2)
                entries = k->args[a].shape.dim[0];
        }
    }
    return entries * table->tp;
}

/* What stands in a row of padding: any token, any position. */
static void write_padding(const writer *w, int64_t row, uint64_t entries, int32_t *token,
                          int64_t *position) {
    if (w->inputs->garbage == 0)
        return;
    const uint64_t bits = lathe_synthetic_bits(w->inputs->garbage, (uint64_t)row);
    *token = (int32_t)(bits % entries);
    *position = (int64_t)((bits >> 32) % (uint64_t)w->table->max_context);
}

static lathe_status write_tokens(const writer *w) {
    const uint64_t all =
        (uint64_t)lathe_step_inputs_vocabulary(w->table, (int)(w->variant - w->table->variants));
    const uint64_t entries = w->inputs->own_tokens ? all / (uint64_t)w->table->tp : all;
    const uint64_t first = w->inputs->own_tokens ? entries * (uint64_t)w->inputs->rank : 0;
    int32_t *tokens = calloc((size_t)w->rows, sizeof *tokens);
    int64_t *positions = calloc((size_t)w->rows, sizeof *positions);
    lathe_status status = LATHE_NO_MEMORY;
    if (tokens && positions) {
        for (int64_t i = 0; i < w->rows; ++i) {
            const int64_t length = w->lengths[i / w->q];
            if (length == 0) {
                write_padding(w, i, entries, &tokens[i], &positions[i]);
                continue;
            }
            tokens[i] = (int32_t)(first + random_at(w, RANDOM_TOKEN, (uint64_t)i) % entries);
            positions[i] = length - w->q + i % w->q;
        }
        status = put(w, "tokens", tokens, (size_t)w->rows * sizeof *tokens);
        if (status == LATHE_OK)
            status = put(w, "positions", positions, (size_t)w->rows * sizeof *positions);
    }
    free(tokens);
    free(positions);
    return status;
}

/* The first key that any query of the request sees. */
static int64_t find_first(const writer *w, const lathe_step_group *g, int64_t r) {
    const int64_t first = w->lengths[r] - w->q - g->window + 1;
    return g->window > 0 && first > 0 ? first : 0;
}

/* Pages that all caches of the group have. */
static int64_t count_pages(const writer *w, int group) {
    int64_t least = INT64_MAX;
    for (int b = 0; b < w->table->buffer_count; ++b) {
        const lathe_step_buffer *buffer = &w->table->buffers[b];
        lathe_engine_memory m;
        if (buffer->lifetime != LATHE_LIFETIME_KV || buffer->group != group)
            continue;
        const int layer = buffer->per_layer ? buffer->layers[0] : -1;
        if (lathe_engine_find(w->engine, buffer->name, layer, &m) != LATHE_OK)
            return 0;
        least = m.shape.dim[0] < least ? m.shape.dim[0] : least;
    }
    return least;
}

/* 0 .. n - 1 in a random order. */
static int32_t *shuffle(const writer *w, int64_t n, uint64_t salt) {
    int32_t *order = malloc((size_t)(n ? n : 1) * sizeof *order);
    if (!order)
        return NULL;
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t j = random_at(w, RANDOM_PAGE, salt + (uint64_t)i) % (uint64_t)(i + 1);
        order[i] = order[j];
        order[j] = (int32_t)i;
    }
    return order;
}

/* What each request reads or writes: pages first to end - 1 of its tokens. */
static int64_t first_page(const writer *w, const pages *p, int64_t r) {
    return find_first(w, p->group, r) / w->table->page_tokens;
}
static int64_t end_page(const writer *w, int64_t r) {
    return (w->lengths[r] + w->table->page_tokens - 1) / w->table->page_tokens;
}

static lathe_status refuse_pages(const writer *w, const pages *p, int64_t available) {
    int64_t wanted = 0, longest = 0;
    for (int64_t r = 0; r < w->requests; ++r) {
        wanted += end_page(w, r) - first_page(w, p, r);
        longest = w->lengths[r] > longest ? w->lengths[r] : longest;
    }
    return refuse(
        w, LATHE_INVALID,
        "group %s: found %lld pages, allowed: at least %lld for this batch (%lld requests, "
        "the longest of %lld tokens, whose table holds at most %lld pages)",
        p->group->name, (long long)available, (long long)wanted, (long long)w->requests,
        (long long)longest, (long long)p->width);
}

/* Gives every page that is read or written a number; all other entries are nonsense. */
static lathe_status assign_pages(const writer *w, pages *p, int64_t available) {
    const int group = (int)(p->group - w->table->groups);
    int32_t *order = NULL;
    int64_t used = 0;
    if (available > 0 && available < INT32_MAX)
        order = shuffle(w, available, (uint64_t)group << 40);
    for (int64_t i = 0; i < w->requests * p->width; ++i)
        p->table[i] = i & 1 ? NONSENSE_HIGH : NONSENSE_LOW;
    for (int64_t r = 0; r < w->requests; ++r) {
        const int64_t end = end_page(w, r);
        for (int64_t i = first_page(w, p, r); i < end; ++i) {
            if (i >= p->width || (available != INT64_MAX && (!order || used == available))) {
                free(order);
                return refuse_pages(w, p, available);
            }
            p->table[r * p->width + i] = order ? order[used] : (int32_t)used;
            ++used;
        }
    }
    free(order);
    return LATHE_OK;
}

static int64_t find_slot(const writer *w, const pages *p, int64_t r, int64_t position) {
    const int64_t unit = w->table->page_tokens;
    return (int64_t)p->table[r * p->width + position / unit] * unit + position % unit;
}

static lathe_status write_group(const writer *w, const pages *p) {
    char name[LATHE_NAMED_BYTES];
    int32_t *lengths = calloc((size_t)w->requests, sizeof *lengths);
    int64_t *slots = calloc((size_t)w->rows, sizeof *slots);
    lathe_status status = LATHE_NO_MEMORY;
    if (lengths && slots) {
        for (int64_t r = 0; r < w->requests; ++r)
            lengths[r] = (int32_t)w->lengths[r];
        for (int64_t i = 0; i < w->rows; ++i) {
            const int64_t r = i / w->q;
            slots[i] = w->lengths[r] ? find_slot(w, p, r, w->lengths[r] - w->q + i % w->q) : -1;
        }
        snprintf(name, sizeof name, "seq_lens.%s", p->group->name);
        status = put(w, name, lengths, (size_t)w->requests * sizeof *lengths);
        snprintf(name, sizeof name, "slot_mapping.%s", p->group->name);
        if (status == LATHE_OK)
            status = put(w, name, slots, (size_t)w->rows * sizeof *slots);
        snprintf(name, sizeof name, "block_tables.%s", p->group->name);
        if (status == LATHE_OK)
            status = put(w, name, p->table, (size_t)(w->requests * p->width) * sizeof *p->table);
    }
    free(lengths);
    free(slots);
    return status;
}

/* Keys and values of every earlier token that a query sees; NaN everywhere else. `cache` is bf16
 * [pages, heads, page tokens, width]: this rank's heads of all. */
static void fill_cache(const writer *w, const pages *p, const lathe_step_shape *shape, uint64_t key,
                       uint16_t *cache) {
    const int64_t unit = w->table->page_tokens;
    const int64_t heads = shape->dim[1];
    const int64_t all = heads * w->table->tp;
    const int64_t width = shape->dim[3];
    memset(cache, 0xff, (size_t)lathe_step_shape_count(shape, 0) * sizeof *cache);
    for (int64_t r = 0; r < w->requests; ++r)
        for (int64_t at = find_first(w, p->group, r); at < w->lengths[r] - w->q; ++at) {
            const int64_t slot = find_slot(w, p, r, at);
            for (int64_t h = 0; h < heads; ++h) {
                const int64_t page = slot / unit;
                const int64_t row = ((page * heads + h) * unit + slot % unit) * width;
                const int64_t of_all =
                    ((page * all + w->inputs->rank * heads + h) * unit + slot % unit) * width;
                for (int64_t i = 0; i < width; ++i)
                    cache[row + i] = lathe_synthetic_bf16(
                        lathe_synthetic_normal(lathe_synthetic_bits(key, (uint64_t)(of_all + i))));
            }
        }
}

static lathe_status write_cache(const writer *w, const pages *p, const lathe_step_buffer *b,
                                int layer) {
    lathe_engine_memory m;
    char name[LATHE_NAMED_BYTES];
    lathe_status status = lathe_engine_find(w->engine, b->name, layer, &m);
    if (status != LATHE_OK)
        return refuse(w, status, "%s", lathe_message(w->engine));
    if (b->dtype != LATHE_SCALAR_BF16 || m.shape.count != 4 ||
        m.shape.dim[2] != w->table->page_tokens)
        return refuse(w, LATHE_UNSUPPORTED,
                      "cache %s: only bf16 [pages, heads, %lld, width] can be filled", b->name,
                      (long long)w->table->page_tokens);
    uint16_t *cache = malloc(m.bytes ? m.bytes : 1);
    if (!cache)
        return refuse(w, LATHE_NO_MEMORY, "no memory for cache %s", b->name);
    lathe_named_format(b->name, layer, name, sizeof name);
    fill_cache(w, p, &m.shape, lathe_synthetic_key(w->inputs->seed, name), cache);
    status = lathe_engine_write(w->engine, b->name, layer, 0, cache, m.bytes);
    free(cache);
    return status == LATHE_OK ? LATHE_OK : refuse(w, status, "%s", lathe_message(w->engine));
}

static lathe_status write_caches(const writer *w, const pages *p) {
    const int group = (int)(p->group - w->table->groups);
    for (int i = 0; i < w->table->buffer_count; ++i) {
        const lathe_step_buffer *b = &w->table->buffers[i];
        if (b->lifetime != LATHE_LIFETIME_KV || b->group != group)
            continue;
        for (int n = 0; n < (b->per_layer ? b->layer_count : 1); ++n) {
            const lathe_status status = write_cache(w, p, b, b->per_layer ? b->layers[n] : -1);
            if (status != LATHE_OK)
                return status;
        }
    }
    return LATHE_OK;
}

static lathe_status make_group(const writer *w, int group) {
    pages p = {.group = &w->table->groups[group]};
    p.width = p.group->table_width;
    p.table = calloc((size_t)(w->requests * p.width) + 1, sizeof *p.table);
    if (!p.table)
        return refuse(w, LATHE_NO_MEMORY, "no memory for block tables");
    lathe_status status = assign_pages(w, &p, count_pages(w, group));
    if (status == LATHE_OK)
        status = write_group(w, &p);
    if (status == LATHE_OK && !w->inputs->timing)
        status = write_caches(w, &p);
    free(p.table);
    return status;
}

/* What changes the numbers of a row: of padding only. */
static uint64_t garbage_at(const writer *w, int64_t row) {
    return row < w->rows && w->lengths[row / w->q] == 0 ? w->inputs->garbage : 0;
}

/* An input that this layout declares itself: normal numbers. */
static lathe_status write_own_input(const writer *w, const lathe_step_buffer *b) {
    const int64_t count = lathe_step_shape_count(&b->shape, 0);
    const bool by_row = b->shape.count > 0 && b->shape.dim[0] == w->table->max_rows;
    const int64_t item = by_row ? count / b->shape.dim[0] : count;
    const uint64_t key = lathe_synthetic_key(w->inputs->seed, b->name);
    void *values = calloc((size_t)count + 1, sizeof(double));
    if (!values)
        return refuse(w, LATHE_NO_MEMORY, "no memory for %s", b->name);
    for (int64_t i = 0; i < count; ++i)
        lathe_compare_store(b->dtype, values, i,
                            lathe_synthetic_normal(lathe_synthetic_bits(
                                key + (by_row ? garbage_at(w, i / item) : 0), (uint64_t)i)));
    const lathe_status status = put(w, b->name, values, (size_t)b->fixed_bytes);
    free(values);
    return status;
}

static lathe_status write_own_inputs(const writer *w) {
    lathe_status status = LATHE_OK;
    for (int b = 0; status == LATHE_OK && b < w->table->buffer_count; ++b)
        if (w->table->buffers[b].lifetime == LATHE_LIFETIME_INPUT &&
            !lathe_step_files_implicit(w->table->buffers[b].name))
            status = write_own_input(w, &w->table->buffers[b]);
    return status;
}

static lathe_status make_inputs(writer *w) {
    const int64_t longest = w->inputs->context;
    if (longest && (longest < w->q || longest > w->table->max_context))
        return refuse(w, LATHE_INVALID,
                      "context %lld; allowed are %lld (the tokens of a step) to %lld",
                      (long long)longest, (long long)w->q, (long long)w->table->max_context);
    choose_lengths(w);
    lathe_status status = write_tokens(w);
    if (status == LATHE_OK)
        status = write_own_inputs(w);
    for (int g = 0; status == LATHE_OK && g < w->table->group_count; ++g)
        status = make_group(w, g);
    return status;
}

lathe_status lathe_step_inputs_write(lathe_engine *engine, int variant,
                                     const lathe_step_inputs *inputs, char *message, size_t size) {
    const lathe_step_table *table = lathe_engine_table(engine);
    const lathe_step_variant *v = &table->variants[variant];
    writer w = {.engine = engine,
                .table = table,
                .variant = v,
                .inputs = inputs,
                .key = lathe_synthetic_key(inputs->seed, "inputs"),
                .rows = v->requests * v->q,
                .requests = v->requests,
                .q = v->q,
                .message = message,
                .size = size};
    if (inputs->from)
        return lathe_step_files_write(engine, inputs->rank, variant, inputs->from, message, size);
    w.lengths = calloc((size_t)w.requests, sizeof *w.lengths);
    if (!w.lengths)
        return refuse(&w, LATHE_NO_MEMORY, "no memory for lengths");
    const lathe_status status = make_inputs(&w);
    free(w.lengths);
    return status;
}
