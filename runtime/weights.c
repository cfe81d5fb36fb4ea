/* SPDX-License-Identifier: Apache-2.0
 * Shards and joins tensors. A source is copied in runs: the longest stretches that are contiguous
 * both in the whole tensor and in the rank's weight. */
#include "weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 512

__attribute__((format(printf, 4, 5))) static lathe_status
refuse(char *message, size_t size, lathe_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(message, size, format, list);
    va_end(list);
    return status;
}

bool lathe_weights_name(const char *pattern, int layer, char *name, size_t size) {
    size_t length = 0;
    for (const char *p = pattern; *p;) {
        int n;
        if (strncmp(p, "{l}", 3) == 0 && layer >= 0) {
            n = snprintf(name + length, size - length, "%d", layer);
            p += 3;
        } else {
            n = snprintf(name + length, size - length, "%c", *p++);
        }
        length += (size_t)n;
        if (length + 1 >= size)
            return false;
    }
    name[length] = 0;
    return true;
}

/* One source on its way into the weight. */
typedef struct {
    const lathe_step_source *source;
    const lathe_weight_reader *reader;
    const char *name;
    int rank, tp;
    int axis;     /* of the join */
    int64_t join; /* first index along the axis */
    int inner;    /* dimensions from here on are contiguous in both */
    size_t item;  /* bytes of an element */
    int64_t local[LATHE_STEP_MAX_DIMS];
    int64_t from[LATHE_STEP_MAX_DIMS]; /* elements per index, whole tensor */
    int64_t to[LATHE_STEP_MAX_DIMS];   /* elements per index, weight */
    unsigned char *host;
    char *message;
    size_t size;
} copy;

/* Where local index i of the sharded axis stands in the whole tensor. */
static int64_t find_global(const copy *c, int d, int64_t i) {
    if (d != c->source->shard_axis)
        return i;
    const int64_t group = c->source->shape.dim[d] / c->source->shard_groups;
    const int64_t share = group / c->tp;
    return i / share * group + c->rank * share + i % share;
}

static lathe_status copy_run(const copy *c, int64_t from, int64_t to, int64_t count) {
    return c->reader->read(c->reader->context, c->source, c->name, from, count,
                           c->host + (size_t)to * c->item, c->message, c->size);
}

/* Copies the runs below dimension d, whose outer indices stand in `from` and `to` already. */
static lathe_status copy_below(const copy *c, int d, int64_t from, int64_t to) {
    if (d == c->source->shape.count)
        return copy_run(c, from, to, 1);
    const int64_t joined = d == c->axis ? c->join : 0;
    int64_t step = 1;
    if (d == c->inner) {
        step = c->local[d];
        if (d == c->source->shard_axis)
            step /= c->source->shard_groups;
    }
    for (int64_t i = 0; i < c->local[d]; i += step) {
        const int64_t f = from + find_global(c, d, i) * c->from[d];
        const int64_t t = to + (i + joined) * c->to[d];
        const lathe_status status =
            d == c->inner ? copy_run(c, f, t, step * c->from[d]) : copy_below(c, d + 1, f, t);
        if (status != LATHE_OK)
            return status;
    }
    return LATHE_OK;
}

/* Sizes along every dimension of the rank's share; false where the rule does not divide them. */
static bool shard_shape(const lathe_step_source *s, int tp, int64_t *local) {
    for (int d = 0; d < s->shape.count; ++d) {
        local[d] = s->shape.dim[d];
        if (d != s->shard_axis)
            continue;
        if (s->shard_groups < 1 || local[d] % (s->shard_groups * tp) != 0)
            return false;
        local[d] /= tp;
    }
    return true;
}

/* The share must equal the weight in all dimensions but the joined one, where it must fit. */
static bool fits(const copy *c, const lathe_step_shape *whole) {
    if (c->source->shape.count != whole->count)
        return false;
    for (int d = 0; d < whole->count; ++d)
        if (d == c->axis ? c->join + c->local[d] > whole->dim[d] : c->local[d] != whole->dim[d])
            return false;
    return true;
}

static void set_strides(copy *c, const lathe_step_shape *whole) {
    int64_t from = 1;
    int64_t to = 1;
    for (int d = whole->count - 1; d >= 0; --d) {
        c->from[d] = from;
        c->to[d] = to;
        from *= c->source->shape.dim[d];
        to *= whole->dim[d];
    }
    c->inner = c->source->shard_axis > c->axis ? c->source->shard_axis : c->axis;
}

static lathe_status fill_source(copy *c, const lathe_step_buffer *buffer) {
    if (!shard_shape(c->source, c->tp, c->local))
        return refuse(c->message, c->size, LATHE_INVALID,
                      "weight '%s': tensor '%s' cannot be split over %d ranks", buffer->name,
                      c->name, c->tp);
    if (c->source->dtype != buffer->dtype || !fits(c, &buffer->shape))
        return refuse(c->message, c->size, LATHE_INVALID,
                      "weight '%s': a rank's share of tensor '%s' does not fit its shape",
                      buffer->name, c->name);
    set_strides(c, &buffer->shape);
    const lathe_status status = copy_below(c, 0, 0, 0);
    if (c->source->shape.count > 0)
        c->join += c->local[c->axis];
    return status;
}

lathe_status lathe_weights_fill(const lathe_weights *weights, int weight, int layer, void *host,
                                size_t bytes, char *message, size_t size) {
    const lathe_step_weight *w = &weights->table->weights[weight];
    const lathe_step_buffer *buffer = &weights->table->buffers[w->buffer];
    char name[NAME_BYTES];
    copy c = {.reader = &weights->reader,
              .rank = weights->rank,
              .tp = weights->table->tp,
              .axis = w->axis,
              .name = name,
              .host = host,
              .message = message,
              .size = size,
              .item = 0};
    c.item = lathe_scalar_bytes(buffer->dtype);
    if (bytes != (size_t)buffer->fixed_bytes)
        return refuse(message, size, LATHE_INVALID, "weight '%s': %zu bytes, %lld expected",
                      buffer->name, bytes, (long long)buffer->fixed_bytes);
    for (int i = 0; i < w->source_count; ++i) {
        c.source = &w->sources[i];
        if (!lathe_weights_name(c.source->tensor, layer, name, sizeof name))
            return refuse(message, size, LATHE_INVALID, "weight '%s': a tensor's name is too long",
                          buffer->name);
        const lathe_status status = fill_source(&c, buffer);
        if (status != LATHE_OK)
            return status;
    }
    if (buffer->shape.count > 0 && c.join != buffer->shape.dim[c.axis])
        return refuse(message, size, LATHE_INVALID,
                      "weight '%s': its sources fill %lld of %lld along axis %d", buffer->name,
                      (long long)c.join, (long long)buffer->shape.dim[c.axis], c.axis);
    return LATHE_OK;
}

static lathe_status fill(void *context, int weight, int layer, void *host, size_t bytes,
                         char *message, size_t size) {
    return lathe_weights_fill(context, weight, layer, host, bytes, message, size);
}

lathe_weight_source lathe_weights_source(lathe_weights *weights) {
    return (lathe_weight_source){sizeof(lathe_weight_source), fill, weights, NULL};
}

static lathe_status read_checkpoint(void *context, const lathe_step_source *source,
                                    const char *name, int64_t offset, int64_t count, void *to,
                                    char *message, size_t size) {
    const lathe_safetensor *t = lathe_safetensors_find(context, name);
    if (!t)
        return refuse(message, size, LATHE_INVALID, "tensor '%s' is not in the checkpoint", name);
    const size_t item = lathe_scalar_bytes(source->dtype);
    const size_t begin = (size_t)offset * item;
    const size_t bytes = (size_t)count * item;
    if (begin > t->bytes || bytes > t->bytes - begin)
        return refuse(message, size, LATHE_INVALID,
                      "%s: tensor '%s' is smaller than step.json says", t->file, name);
    memcpy(to, t->data + begin, bytes);
    return LATHE_OK;
}

lathe_weight_reader lathe_weights_checkpoint(lathe_safetensors *checkpoint) {
    return (lathe_weight_reader){read_checkpoint, checkpoint};
}
