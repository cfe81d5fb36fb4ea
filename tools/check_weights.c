/* SPDX-License-Identifier: Apache-2.0
 * Reads stretches of a tensor from the device and from the reader, by the runs of the tensor. */
#include "check_weights.h"

#include <stdlib.h>
#include <string.h>

#include "synthetic.h"

#define WHOLE (INT64_C(1) << 20)
#define STRETCHES 64
#define STRETCH_ELEMENTS INT64_C(4096)

typedef struct {
    lathe_engine *engine;
    const lathe_weights *weights;
    const lathe_step_buffer *buffer;
    int layer;
    FILE *out;
    lathe_check_weights_result *result;
} comparison;

/* Where the first difference lies in two arrays, or `bytes`. */
static size_t find_difference(const unsigned char *a, const unsigned char *b, size_t bytes) {
    size_t at = 0;
    while (at < bytes && a[at] == b[at])
        ++at;
    return at;
}

/* `count` elements at `begin` of run n; *same is left where they are alike. */
static lathe_status compare_stretch(comparison *c, const lathe_step_source *source,
                                    const char *name, const lathe_weight_runs *runs, int64_t n,
                                    int64_t begin, int64_t count, bool *same, char *message,
                                    size_t size) {
    const lathe_weight_reader *reader = &c->weights->reader;
    const size_t item = lathe_scalar_bytes(source->dtype), bytes = (size_t)count * item;
    unsigned char *wanted = malloc(bytes), *found = malloc(bytes);
    int64_t from, to;
    lathe_weight_runs_at(runs, n, &from, &to);
    lathe_status status = LATHE_NO_MEMORY;
    if (wanted && found)
        status =
            reader->read(reader->context, source, name, from + begin, count, wanted, message, size);
    if (status == LATHE_OK) {
        status = lathe_engine_read(c->engine, c->buffer->name, c->layer,
                                   (size_t)(to + begin) * item, found, bytes);
        if (status != LATHE_OK)
            snprintf(message, size, "%s", lathe_message(c->engine));
    }
    const size_t at = status == LATHE_OK ? find_difference(wanted, found, bytes) : bytes;
    if (at < bytes && *same && c->out)
        fprintf(c->out, "    weights: element %lld of %s is not what the host generates\n",
                (long long)(from + begin) + (long long)(at / item), name);
    *same = *same && at == bytes;
    c->result->elements += count;
    free(wanted);
    free(found);
    return status;
}

static lathe_status compare_source(void *context, const lathe_step_source *source, const char *name,
                                   const lathe_weight_runs *runs, char *message, size_t size) {
    comparison *c = context;
    const bool whole = runs->count * runs->length <= WHOLE;
    const int64_t length =
        whole || runs->length < STRETCH_ELEMENTS ? runs->length : STRETCH_ELEMENTS;
    const int64_t stretches = whole ? runs->count : STRETCHES;
    const uint64_t key = lathe_synthetic_key(0, name);
    lathe_status status = LATHE_OK;
    bool same = true;
    for (int64_t i = 0; status == LATHE_OK && i < stretches; ++i) {
        const uint64_t run = lathe_synthetic_bits(key, 2 * (uint64_t)i);
        const uint64_t place = lathe_synthetic_bits(key, 2 * (uint64_t)i + 1);
        const int64_t n = whole ? i : (int64_t)(run % (uint64_t)runs->count);
        const int64_t begin = (int64_t)(place % (uint64_t)(runs->length - length + 1));
        status = compare_stretch(c, source, name, runs, n, begin, length, &same, message, size);
    }
    ++c->result->tensors;
    c->result->all += runs->count * runs->length;
    c->result->failed += !same;
    return status;
}

lathe_status lathe_check_weights(lathe_engine *engine, const lathe_weights *weights, FILE *out,
                                 lathe_check_weights_result *result, char *message, size_t size) {
    const lathe_step_table *t = weights->table;
    for (int w = 0; w < t->weight_count; ++w) {
        const lathe_step_buffer *b = &t->buffers[t->weights[w].buffer];
        if (b->lifetime == LATHE_LIFETIME_BUILD) /* gone */
            continue;
        for (int i = 0; i < (b->per_layer ? b->layer_count : 1); ++i) {
            const int layer = b->per_layer ? b->layers[i] : -1;
            comparison c = {engine, weights, b, layer, out, result};
            const lathe_status status =
                lathe_weights_visit(weights, w, layer, compare_source, &c, message, size);
            if (status != LATHE_OK)
                return status;
        }
    }
    return LATHE_OK;
}
