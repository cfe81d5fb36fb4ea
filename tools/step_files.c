/* SPDX-License-Identifier: Apache-2.0
 * Reads a step's inputs from files. A block table may be narrower, a cache may have fewer pages
 * than the step's. */
#include "step_files.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "named.h"

typedef struct {
    lathe_engine *engine;
    int rank;
    const lathe_step_table *table;
    const lathe_step_variant *variant;
    const char *folder;
    char *message;
    size_t size;
} reader;

__attribute__((format(printf, 3, 4))) static lathe_status
refuse(const reader *r, lathe_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(r->message, r->size, format, list);
    va_end(list);
    return status;
}

static bool has_prefix(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool lathe_step_files_implicit(const char *name) {
    return strcmp(name, "tokens") == 0 || strcmp(name, "positions") == 0 ||
           strcmp(name, "rank") == 0 || has_prefix(name, "block_tables.") ||
           has_prefix(name, "seq_lens.") || has_prefix(name, "slot_mapping.");
}

bool lathe_step_files_exist(const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tokens.npy", folder);
    return access(path, R_OK) == 0;
}

/* Elements of a file, or -1 where there is none. */
static lathe_status count_elements(const reader *r, const char *name, int64_t *count) {
    lathe_npy array;
    bool found;
    const lathe_status status =
        lathe_named_read_header(r->folder, name, &array, &found, r->message, r->size);
    *count = status == LATHE_OK && found ? array.count : -1;
    return status;
}

static lathe_status refuse_variant(const reader *r, int64_t rows, int64_t requests) {
    char text[400] = "";
    size_t n = 0;
    for (int i = 0; i < r->table->variant_count && n < sizeof text; ++i)
        n += (size_t)snprintf(text + n, sizeof text - n, " %s", r->table->variants[i].name);
    char of[64] = "";
    if (requests >= 0)
        snprintf(of, sizeof of, " of %lld requests", (long long)requests);
    return refuse(r, LATHE_INVALID, "%s: found %lld tokens%s, allowed: those of the variants%s",
                  r->folder, (long long)rows, of, text);
}

lathe_status lathe_step_files_variant(const lathe_step_table *table, const char *folder,
                                      int *variant, char *message, size_t size) {
    const reader r = {.table = table, .folder = folder, .message = message, .size = size};
    int64_t rows;
    int64_t requests = -1;
    *variant = -1;
    lathe_status status = count_elements(&r, "tokens", &rows);
    for (int g = 0; status == LATHE_OK && g < table->group_count && requests < 0; ++g) {
        char name[LATHE_NAMED_BYTES];
        snprintf(name, sizeof name, "seq_lens.%s", table->groups[g].name);
        status = count_elements(&r, name, &requests);
    }
    if (status != LATHE_OK)
        return status;
    for (int i = 0; i < table->variant_count; ++i) {
        const lathe_step_variant *v = &table->variants[i];
        if (v->requests * v->q == rows && (requests < 0 || v->requests == requests)) {
            *variant = i;
            return LATHE_OK;
        }
    }
    return refuse_variant(&r, rows, requests);
}

static lathe_status write_array(const reader *r, const lathe_step_buffer *b, int layer,
                                const void *data, size_t bytes) {
    const lathe_status status = lathe_engine_write(r->engine, b->name, layer, 0, data, bytes);
    return status == LATHE_OK ? status : refuse(r, status, "%s", lathe_message(r->engine));
}

/* Rows of a narrower table are spread out; what is beyond them must not be read. */
static lathe_status write_table(const reader *r, const lathe_step_buffer *b,
                                const lathe_npy *array) {
    const int64_t width = b->shape.dim[b->shape.count - 1];
    const int64_t requests = r->variant->requests;
    if (array->type != LATHE_NPY_I32 || array->rank != 2 || array->shape[0] != requests ||
        array->shape[1] > width)
        return refuse(r, LATHE_INVALID, "%s.npy: i4 [%lld, at most %lld] is wanted", b->name,
                      (long long)requests, (long long)width);
    int32_t *table = malloc((size_t)(requests * width) * sizeof *table);
    if (!table)
        return refuse(r, LATHE_NO_MEMORY, "no memory for %s", b->name);
    const int64_t found = array->shape[1];
    for (int64_t i = 0; i < requests * width; ++i)
        table[i] =
            i % width < found ? ((const int32_t *)array->data)[i / width * found + i % width] : -1;
    const lathe_status status =
        write_array(r, b, -1, table, (size_t)(requests * width) * sizeof *table);
    free(table);
    return status;
}

/* Elements of the variant: rows are the outermost dimension of what a layout declares. */
static int64_t count_input(const reader *r, const lathe_step_buffer *b) {
    const int64_t rows = r->variant->requests * r->variant->q;
    if (has_prefix(b->name, "seq_lens."))
        return r->variant->requests;
    if (lathe_step_files_implicit(b->name))
        return rows;
    const bool by_row = b->shape.count > 0 && b->shape.dim[0] == r->table->max_rows;
    return lathe_step_shape_count(&b->shape, by_row ? 1 : 0) * (by_row ? rows : 1);
}

static lathe_status write_input(const reader *r, const lathe_step_buffer *b) {
    lathe_npy array;
    lathe_status status = lathe_named_read(r->folder, b->name, &array, r->message, r->size);
    if (status != LATHE_OK)
        return status;
    if (!array.data)
        return refuse(r, LATHE_INVALID, "%s: no file %s.npy", r->folder, b->name);
    if (has_prefix(b->name, "block_tables.")) {
        status = write_table(r, b, &array);
    } else {
        status =
            lathe_named_check(b->name, &array, b->dtype, count_input(r, b), r->message, r->size);
        if (status == LATHE_OK)
            status = write_array(r, b, -1, array.data,
                                 (size_t)array.count * lathe_scalar_bytes(b->dtype));
    }
    lathe_npy_destroy(&array);
    return status;
}

/* This rank's heads of a file that holds those of all ranks, packed in place. Pages are the
 * outermost dimension, heads the next. */
static void take_heads(const reader *r, const lathe_step_buffer *b, lathe_npy *array) {
    if (r->table->tp == 1 || array->rank != 4 || b->shape.count != 4 ||
        array->shape[1] != b->shape.dim[1] * r->table->tp)
        return;
    const size_t page = (size_t)b->fixed_bytes;
    unsigned char *data = array->data;
    for (int64_t i = 0; i < array->shape[0]; ++i)
        memmove(data + (size_t)i * page,
                data + ((size_t)i * (size_t)r->table->tp + (size_t)r->rank) * page, page);
    array->count /= r->table->tp;
}

static lathe_status write_cache(const reader *r, const lathe_step_buffer *b, int layer) {
    char name[LATHE_NAMED_BYTES];
    lathe_npy array;
    lathe_engine_memory m;
    lathe_named_format(b->name, layer, name, sizeof name);
    lathe_status status = lathe_engine_find(r->engine, b->name, layer, &m);
    if (status != LATHE_OK)
        return refuse(r, status, "%s", lathe_message(r->engine));
    status = lathe_named_read(r->folder, name, &array, r->message, r->size);
    if (status != LATHE_OK)
        return status;
    const size_t page = (size_t)b->fixed_bytes;
    if (array.data)
        take_heads(r, b, &array);
    unsigned char *cache = malloc(m.bytes ? m.bytes : 1);
    const size_t bytes = (size_t)array.count * lathe_npy_item_bytes(array.type);
    if (!cache)
        status = refuse(r, LATHE_NO_MEMORY, "no memory for %s", name);
    else if (array.data &&
             (array.type != lathe_named_type(b->dtype) || bytes > m.bytes || bytes % page != 0))
        status = refuse(r, LATHE_INVALID,
                        "%s.npy: whole pages of %zu bytes are wanted, at most %zu of them", name,
                        page, m.bytes / page);
    else {
        memset(cache, 0xff, m.bytes);
        memcpy(cache, array.data ? array.data : cache, array.data ? bytes : 0);
        status = write_array(r, b, layer, cache, m.bytes);
    }
    free(cache);
    lathe_npy_destroy(&array);
    return status;
}

static lathe_status write_buffer(const reader *r, const lathe_step_buffer *b) {
    if (b->lifetime == LATHE_LIFETIME_INPUT && strcmp(b->name, "rank") != 0)
        return write_input(r, b);
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && b->lifetime == LATHE_LIFETIME_KV &&
                    i < (b->per_layer ? b->layer_count : 1);
         ++i)
        status = write_cache(r, b, b->per_layer ? b->layers[i] : -1);
    return status;
}

lathe_status lathe_step_files_write(lathe_engine *engine, int rank, int variant, const char *folder,
                                    char *message, size_t size) {
    const lathe_step_table *table = lathe_engine_table(engine);
    const reader r = {engine, rank, table, &table->variants[variant], folder, message, size};
    lathe_status status = LATHE_OK;
    for (int b = 0; status == LATHE_OK && b < table->buffer_count; ++b)
        status = write_buffer(&r, &table->buffers[b]);
    return status;
}
