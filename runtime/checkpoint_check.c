/* SPDX-License-Identifier: Apache-2.0
 * The comparison of a checkpoint with a step, from record to tensor. */
#include "checkpoint_check.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint_record.h"
#include "findings.h"
#include "numbers.h"
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

typedef struct {
    const lathe_safetensors *checkpoint;
    const lathe_safetensor **read; /* sorted by address: what some weight reads */
    size_t read_count;
    lathe_findings wrong;
} verdict;

__attribute__((format(printf, 2, 3))) static void add_line(verdict *v, const char *format, ...) {
    char line[1500];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (v->wrong.count == 0)
        lathe_findings_head(&v->wrong, "%s is not the checkpoint that step.json describes:",
                            lathe_safetensors_folder(v->checkpoint));
    lathe_findings_add(&v->wrong, "%s", line);
}

static void add_text(void *context, const char *text) {
    add_line(context, "%s", text);
}

/* In the folder that the first line names. */
static const char *file_name(const lathe_safetensor *t) {
    const char *slash = strrchr(t->file, '/');
    return slash ? slash + 1 : t->file;
}

static void check_numbers(verdict *v, const lathe_step_source *s, const lathe_safetensor *t) {
    const int64_t count = lathe_step_shape_count(&s->shape, 0) / lathe_weights_parts(s);
    const lathe_numbers wanted = lathe_numbers_of(s);
    if (!lathe_numbers_are_checked_first(s->dtype, count))
        return; /* by who reads them: each rank looks at its own bytes */
    const int64_t i = lathe_numbers_find_bad(s->dtype, wanted, t->data, count);
    if (i < count)
        add_line(v, "%s: tensor '%s' is not %s at element %lld", file_name(t), t->name,
                 lathe_numbers_name(wanted), (long long)i);
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
        add_line(v, "%s: tensor '%s' is %s %s, step.json says %s %s", file_name(t), name, t->dtype,
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

lathe_status lathe_checkpoint_check(const lathe_step_table *table,
                                    const lathe_safetensors *checkpoint, char *message,
                                    size_t size) {
    const lathe_step_checkpoint *c = &table->checkpoint;
    verdict v = {.checkpoint = checkpoint};
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
    lathe_findings_open(&v.wrong, message, size);
    /* Records first: few lines, that explain many. */
    for (int i = 0; i < c->record_count; ++i)
        lathe_checkpoint_record_check(lathe_safetensors_folder(checkpoint), &c->records[i],
                                      add_text, &v);
    check_weights(&v, table);
    if (c->known)
        check_unexpected(&v, c);
    free(v.read);
    lathe_findings_close(&v.wrong);
    return v.wrong.count ? LATHE_INVALID : LATHE_OK;
}
