/* SPDX-License-Identifier: Apache-2.0
 * Shards and joins tensors, a source after the other, each in its runs. */
#include "weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "numbers.h"

#define NAME_BYTES 512
#define STRETCH_BYTES 32768

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

int64_t lathe_weights_parts(const lathe_step_source *s) {
    return strstr(s->tensor, "{e}") && s->shape.count > 0 ? s->shape.dim[0] : 1;
}

bool lathe_weights_part_name(const char *name, int64_t part, char *to, size_t size) {
    const char *place = strstr(name, "{e}");
    const int n = place ? snprintf(to, size, "%.*s%lld%s", (int)(place - name), name,
                                   (long long)part, place + 3)
                        : snprintf(to, size, "%s", name);
    return n >= 0 && (size_t)n < size;
}

lathe_step_shape lathe_weights_part_shape(const lathe_step_source *s) {
    lathe_step_shape shape = s->shape;
    if (!strstr(s->tensor, "{e}") || shape.count == 0)
        return shape;
    shape.count--;
    memmove(shape.dim, shape.dim + 1, (size_t)shape.count * sizeof *shape.dim);
    return shape;
}

/* The share must equal the weight in all dimensions but the joined one, where it must fit. */
static bool fits(const int64_t *local, const lathe_step_shape *share, const lathe_step_shape *whole,
                 int axis, int64_t join) {
    if (share->count != whole->count)
        return false;
    for (int d = 0; d < whole->count; ++d)
        if (d == axis ? join + local[d] > whole->dim[d] : local[d] != whole->dim[d])
            return false;
    return true;
}

/* One weight while its sources are visited. */
typedef struct {
    const lathe_weights *weights;
    const lathe_step_weight *weight;
    const lathe_step_buffer *buffer;
    int64_t join; /* first index of the next source along the axis */
    char *message;
    size_t size;
} visit;

static lathe_status find_runs(visit *v, const lathe_step_source *s, const char *name,
                              lathe_weight_runs *runs) {
    int64_t local[LATHE_STEP_MAX_DIMS];
    const int tp = v->weights->table->tp;
    if (!lathe_weight_runs_share(s, tp, local))
        return refuse(v->message, v->size, LATHE_INVALID,
                      "weight '%s': tensor '%s' cannot be split over %d ranks", v->buffer->name,
                      name, tp);
    if (s->dtype != v->buffer->dtype ||
        !fits(local, &s->shape, &v->buffer->shape, v->weight->axis, v->join))
        return refuse(v->message, v->size, LATHE_INVALID,
                      "weight '%s': a rank's share of tensor '%s' does not fit its shape",
                      v->buffer->name, name);
    lathe_weight_runs_find(s, &v->buffer->shape, v->weight->axis, v->join, v->weights->rank, tp,
                           runs);
    if (s->shape.count > 0)
        v->join += local[v->weight->axis];
    return LATHE_OK;
}

lathe_status lathe_weights_visit(const lathe_weights *weights, int weight, int layer,
                                 lathe_weight_visitor *visitor, void *context, char *message,
                                 size_t size) {
    const lathe_step_weight *w = &weights->table->weights[weight];
    const lathe_step_buffer *buffer = &weights->table->buffers[w->buffer];
    visit v = {weights, w, buffer, 0, message, size};
    char name[NAME_BYTES];
    lathe_weight_runs runs;
    for (int i = 0; i < w->source_count; ++i) {
        const lathe_step_source *s = &w->sources[i];
        if (!lathe_weights_name(s->tensor, layer, name, sizeof name))
            return refuse(message, size, LATHE_INVALID, "weight '%s': a tensor's name is too long",
                          buffer->name);
        lathe_status status = find_runs(&v, s, name, &runs);
        if (status == LATHE_OK)
            status = visitor(context, s, name, &runs, message, size);
        if (status != LATHE_OK)
            return status;
    }
    if (buffer->shape.count > 0 && v.join != buffer->shape.dim[w->axis])
        return refuse(message, size, LATHE_INVALID,
                      "weight '%s': its sources fill %lld of %lld along axis %d", buffer->name,
                      (long long)v.join, (long long)buffer->shape.dim[w->axis], w->axis);
    return LATHE_OK;
}

/* Where a source is read to, or generated. */
typedef struct {
    const lathe_weight_reader *reader;
    lathe_generator *generator;
    void *memory;
    int64_t first, end; /* elements of the weight that are read; memory begins with the first */
} target;

/* The first run that ends behind element `first`: runs follow each other in the weight. */
static int64_t find_run(const lathe_weight_runs *runs, int64_t first) {
    int64_t low = 0, high = runs->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        int64_t from, to;
        lathe_weight_runs_at(runs, middle, &from, &to);
        if (to + runs->length > first)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static lathe_status read_runs(void *context, const lathe_step_source *source, const char *name,
                              const lathe_weight_runs *runs, char *message, size_t size) {
    const target *t = context;
    const size_t item = lathe_scalar_bytes(source->dtype);
    lathe_status status = LATHE_OK;
    for (int64_t n = find_run(runs, t->first); status == LATHE_OK && n < runs->count; ++n) {
        int64_t from, to;
        lathe_weight_runs_at(runs, n, &from, &to);
        if (to >= t->end)
            break;
        const int64_t skipped = to < t->first ? t->first - to : 0;
        const int64_t left = t->end - to < runs->length ? t->end - to : runs->length;
        status = t->reader->read(
            t->reader->context, source, name, from + skipped, left - skipped,
            (unsigned char *)t->memory + (size_t)(to + skipped - t->first) * item, message, size);
    }
    return status;
}

lathe_status lathe_weights_fill(const lathe_weights *weights, int weight, int layer, void *host,
                                size_t bytes, char *message, size_t size) {
    const lathe_step_buffer *b = &weights->table->buffers[weights->table->weights[weight].buffer];
    if (bytes != (size_t)b->fixed_bytes)
        return refuse(message, size, LATHE_INVALID, "weight '%s': %zu bytes, %lld expected",
                      b->name, bytes, (long long)b->fixed_bytes);
    return lathe_weights_fill_range(weights, weight, layer, 0, bytes, host, message, size);
}

lathe_status lathe_weights_fill_range(const lathe_weights *weights, int weight, int layer,
                                      size_t first, size_t bytes, void *host, char *message,
                                      size_t size) {
    const lathe_step_buffer *b = &weights->table->buffers[weights->table->weights[weight].buffer];
    const size_t item = lathe_scalar_bytes(b->dtype);
    target t = {.reader = &weights->reader,
                .memory = host,
                .first = (int64_t)(first / item),
                .end = (int64_t)((first + bytes) / item)};
    return lathe_weights_visit(weights, weight, layer, read_runs, &t, message, size);
}

static lathe_status fill(void *context, int weight, int layer, void *host, size_t bytes,
                         char *message, size_t size) {
    return lathe_weights_fill(context, weight, layer, host, bytes, message, size);
}

static lathe_status generate_runs(void *context, const lathe_step_source *source, const char *name,
                                  const lathe_weight_runs *runs, char *message, size_t size) {
    const target *t = context;
    return t->reader->generate(t->reader->context, t->generator, source, name, runs, t->memory,
                               message, size);
}

lathe_status lathe_weights_generate(const lathe_weights *weights, lathe_generator *generator,
                                    int weight, int layer, void *memory, char *message,
                                    size_t size) {
    target t = {.reader = &weights->reader, .generator = generator, .memory = memory};
    return lathe_weights_visit(weights, weight, layer, generate_runs, &t, message, size);
}

lathe_weight_source lathe_weights_source(lathe_weights *weights) {
    return (lathe_weight_source){sizeof(lathe_weight_source), fill, weights, NULL};
}

const lathe_weights *lathe_weights_of(const lathe_weight_source *source) {
    return source->fill == fill ? source->context : NULL;
}

/* Copies elements from `first` of the tensor on. Those of a wide matrix nobody has looked at yet
 * (checkpoint_check.c): a stretch at a time, as it comes into the processor's cache. */
static lathe_status copy_numbers(const lathe_step_source *source, const lathe_safetensor *t,
                                 int64_t first, int64_t count, unsigned char *to, char *message,
                                 size_t size) {
    const size_t item = lathe_scalar_bytes(source->dtype);
    const int64_t step = STRETCH_BYTES / (int64_t)item;
    const lathe_numbers wanted = lathe_numbers_of(source);
    for (int64_t done = 0; done < count; done += step) {
        const int64_t n = count - done < step ? count - done : step;
        const unsigned char *from = t->data + (size_t)(first + done) * item;
        const int64_t i = lathe_numbers_find_bad(source->dtype, wanted, from, n);
        if (i < n)
            return refuse(message, size, LATHE_INVALID, "%s: tensor '%s' is not %s at element %lld",
                          t->file, t->name, lathe_numbers_name(wanted),
                          (long long)(first + done + i));
        memcpy(to + (size_t)done * item, from, (size_t)n * item);
    }
    return LATHE_OK;
}

static lathe_status read_tensor(void *context, const lathe_step_source *source, const char *name,
                                int64_t offset, int64_t count, void *to, char *message,
                                size_t size) {
    const lathe_safetensor *t = lathe_safetensors_find(context, name);
    if (!t)
        return refuse(message, size, LATHE_INVALID, "tensor '%s' is not in the checkpoint", name);
    const size_t item = lathe_scalar_bytes(source->dtype);
    const size_t begin = (size_t)offset * item;
    const size_t bytes = (size_t)count * item;
    if (begin > t->bytes || bytes > t->bytes - begin)
        return refuse(message, size, LATHE_INVALID,
                      "%s: tensor '%s' is smaller than step.json says", t->file, name);
    if (lathe_numbers_are_checked_first(source->dtype, (int64_t)(t->bytes / item)))
        memcpy(to, t->data + begin, bytes);
    else
        return copy_numbers(source, t, offset, count, to, message, size);
    return LATHE_OK;
}

/* Of a stacked source tensor by tensor. */
static lathe_status read_checkpoint(void *context, const lathe_step_source *source,
                                    const char *name, int64_t offset, int64_t count, void *to,
                                    char *message, size_t size) {
    const int64_t each = lathe_step_shape_count(&source->shape, 0) / lathe_weights_parts(source);
    const size_t item = lathe_scalar_bytes(source->dtype);
    lathe_status status = LATHE_OK;
    for (int64_t done = 0; status == LATHE_OK && done < count;) {
        char part[NAME_BYTES];
        const int64_t at = offset + done, left = each - at % each;
        const int64_t n = count - done < left ? count - done : left;
        if (!lathe_weights_part_name(name, at / each, part, sizeof part))
            return refuse(message, size, LATHE_INVALID, "tensor '%s': the name is too long", name);
        status = read_tensor(context, source, part, at % each, n,
                             (unsigned char *)to + (size_t)done * item, message, size);
        done += n;
    }
    return status;
}

lathe_weight_reader lathe_weights_checkpoint(lathe_safetensors *checkpoint) {
    return (lathe_weight_reader){read_checkpoint, checkpoint, NULL};
}
