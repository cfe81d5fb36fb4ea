/* SPDX-License-Identifier: Apache-2.0
 * The comparison of a checkpoint with a step, from tensor to record. */
#include "checkpoint_check.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint_record.h"
#include "weights.h"

#define NAME_BYTES 512

static const char *find_dtype(lathe_scalar type) {
    switch (type) {
    case LATHE_SCALAR_BF16:
        return "BF16";
    case LATHE_SCALAR_F32:
        return "F32";
    case LATHE_SCALAR_F64:
        return "F64";
    case LATHE_SCALAR_I32:
        return "I32";
    case LATHE_SCALAR_I64:
        return "I64";
    case LATHE_SCALAR_U8:
        return "U8";
    case LATHE_SCALAR_U32:
        return "U32";
    case LATHE_SCALAR_E4M3:
        return "F8_E4M3";
    case LATHE_SCALAR_MAILBOX:
        break;
    }
    return "?";
}

static void format_shape(int rank, const int64_t *shape, char *text, size_t size) {
    size_t n = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < rank && n < size; ++d)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? ", " : "", (long long)shape[d]);
    if (n < size)
        snprintf(text + n, size - n, "]");
}

/* What is wrong, a line each, below one that names the checkpoint. */
typedef struct {
    const lathe_safetensors *checkpoint;
    const lathe_safetensor **read; /* sorted by address: what some weight reads */
    size_t read_count;
    char *message;
    size_t size;
    size_t length;
    int64_t wrong;
} verdict;

/* One line more. Where they no longer fit the rest is counted only. */
__attribute__((format(printf, 2, 3))) static void add_line(verdict *v, const char *format, ...) {
    char line[1500];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (v->wrong++ == 0 && v->size > 0) {
        snprintf(v->message, v->size, "%s is not the checkpoint that step.json describes:",
                 lathe_safetensors_folder(v->checkpoint));
        v->length = strlen(v->message);
    }
    if (v->length + strlen(line) + 2 < v->size)
        v->length += (size_t)snprintf(v->message + v->length, v->size - v->length, "%s%s",
                                      v->length ? "\n" : "", line);
}

static void add_text(void *context, const char *text) {
    add_line(context, "%s", text);
}

/* Of a scale or an fp32 number: the first that is NaN or infinite, or the count; e4m3 has no
 * infinity. */
static int64_t find_not_finite(lathe_scalar dtype, const unsigned char *data, int64_t count) {
    int64_t i = 0;
    if (dtype == LATHE_SCALAR_E4M3) {
        for (uint64_t word; i + 8 <= count; i += 8) { /* gigabytes of them: eight at once */
            memcpy(&word, data + i, sizeof word);
            if (((word & 0x7f7f7f7f7f7f7f7full) + 0x0101010101010101ull) & 0x8080808080808080ull)
                break;
        }
        while (i < count && (data[i] & 0x7f) != 0x7f)
            ++i;
    } else if (dtype == LATHE_SCALAR_F32)
        for (; i < count; ++i) {
            uint32_t word;
            memcpy(&word, data + 4 * i, sizeof word);
            if ((word & 0x7fffffffu) >= 0x7f800000u)
                break;
        }
    else
        i = count;
    return i;
}

static void check_numbers(verdict *v, const lathe_step_source *s, const lathe_safetensor *t) {
    const int64_t count = lathe_step_shape_count(&s->shape, 0) / lathe_weights_parts(s);
    const int64_t i = find_not_finite(s->dtype, t->data, count);
    if (i < count)
        add_line(v, "%s: tensor '%s' is not finite at element %lld", t->file, t->name,
                 (long long)i);
}

/* A number may be written as a list of one. */
static bool same_shape(const lathe_safetensor *t, const lathe_step_shape *shape) {
    bool same = t->rank == shape->count;
    for (int d = 0; same && d < t->rank; ++d)
        same = t->shape[d] == shape->dim[d];
    return same ||
           (t->rank + shape->count == 1 && (t->rank == 0 ? shape->dim[0] : t->shape[0]) == 1);
}

static void check_tensor(verdict *v, const lathe_step_source *s, const char *name) {
    char found[128], wanted[128];
    const lathe_step_shape shape = lathe_weights_part_shape(s);
    const lathe_safetensor *t = lathe_safetensors_find(v->checkpoint, name);
    if (!t) {
        add_line(v, "missing: %s", name);
        return;
    }
    v->read[v->read_count++] = t;
    format_shape(t->rank, t->shape, found, sizeof found);
    format_shape(shape.count, shape.dim, wanted, sizeof wanted);
    if (strcmp(t->dtype, find_dtype(s->dtype)) == 0 && same_shape(t, &shape))
        check_numbers(v, s, t);
    else
        add_line(v, "%s: tensor '%s' is %s %s, step.json says %s %s", t->file, name, t->dtype,
                 found, find_dtype(s->dtype), wanted);
}

static void check_source(verdict *v, const lathe_step_source *s, int layer) {
    char name[NAME_BYTES], part[NAME_BYTES];
    bool named = lathe_weights_name(s->tensor, layer, name, sizeof name);
    for (int64_t i = 0; named && i < lathe_weights_parts(s); ++i) {
        named = lathe_weights_part_name(name, i, part, sizeof part);
        if (named)
            check_tensor(v, s, part);
    }
    if (!named)
        add_line(v, "tensor '%s': the name is too long", s->tensor);
}

static int count_instances(const lathe_step_buffer *b) {
    return b->per_layer ? b->layer_count : 1;
}

static void check_weights(verdict *v, const lathe_step_table *table) {
    for (int w = 0; w < table->weight_count; ++w) {
        const lathe_step_weight *weight = &table->weights[w];
        const lathe_step_buffer *b = &table->buffers[weight->buffer];
        if (b->lifetime == LATHE_LIFETIME_BUILD)
            continue; /* a part of another weight's tensor */
        for (int i = 0; i < count_instances(b); ++i)
            for (int s = 0; s < weight->source_count; ++s)
                check_source(v, &weight->sources[s], b->per_layer ? b->layers[i] : -1);
    }
}

static int compare_addresses(const void *a, const void *b) {
    const lathe_safetensor *const *x = a, *const *y = b;
    return (*x > *y) - (*x < *y);
}

static bool matches(const char *const *patterns, int count, const char *name) {
    for (int i = 0; i < count; ++i)
        if (fnmatch(patterns[i], name, 0) == 0)
            return true;
    return false;
}

static void check_unexpected(verdict *v, const lathe_step_checkpoint *c) {
    qsort(v->read, v->read_count, sizeof *v->read, compare_addresses);
    for (size_t i = 0; i < lathe_safetensors_count(v->checkpoint); ++i) {
        const lathe_safetensor *t = lathe_safetensors_at(v->checkpoint, i);
        if (matches(c->names, c->name_count, t->name) &&
            !matches(c->unread, c->unread_count, t->name) &&
            !bsearch(&t, v->read, v->read_count, sizeof *v->read, compare_addresses))
            add_line(v, "unexpected: %s", t->name);
    }
}

/* The end of the list where not all of it fits. */
static void close_list(verdict *v, int64_t shown) {
    if (v->wrong > shown && v->length + 40 < v->size)
        snprintf(v->message + v->length, v->size - v->length, "\n(and %lld more)",
                 (long long)(v->wrong - shown));
}

static int64_t count_lines(const verdict *v) {
    int64_t lines = 0; /* the first is no finding */
    for (size_t i = 0; i < v->length; ++i)
        lines += v->message[i] == '\n';
    return lines;
}

lathe_status lathe_checkpoint_check(const lathe_step_table *table,
                                    const lathe_safetensors *checkpoint, char *message,
                                    size_t size) {
    const lathe_step_checkpoint *c = &table->checkpoint;
    verdict v = {.checkpoint = checkpoint, .message = message, .size = size > 40 ? size - 40 : 0};
    size_t most = 1;
    for (int w = 0; w < table->weight_count; ++w)
        for (int s = 0; s < table->weights[w].source_count; ++s)
            most += (size_t)lathe_weights_parts(&table->weights[w].sources[s]) *
                    (size_t)count_instances(&table->buffers[table->weights[w].buffer]);
    v.read = calloc(most, sizeof *v.read);
    if (!v.read) {
        snprintf(message, size, "no memory to compare the checkpoint");
        return LATHE_NO_MEMORY;
    }
    if (size > 0)
        message[0] = 0;
    check_weights(&v, table);
    if (c->known)
        check_unexpected(&v, c);
    for (int i = 0; i < c->record_count; ++i)
        lathe_checkpoint_record_check(lathe_safetensors_folder(checkpoint), &c->records[i],
                                      add_text, &v);
    free(v.read);
    v.size = size;
    close_list(&v, count_lines(&v));
    return v.wrong ? LATHE_INVALID : LATHE_OK;
}
