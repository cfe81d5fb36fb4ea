/* SPDX-License-Identifier: Apache-2.0
 * Stretches, one for each source of step.json. */
#include "bench_weights.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct stretch {
    struct stretch *next;
    const lathe_step_source *source;
    unsigned char values[];
} stretch;

struct lathe_bench_weights {
    lathe_synthetic synthetic;
    pthread_mutex_t lock; /* ranks load at once */
    stretch *first;
};

lathe_bench_weights *lathe_bench_weights_create(uint64_t seed) {
    lathe_bench_weights *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->synthetic = (lathe_synthetic){false, seed};
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

void lathe_bench_weights_destroy(lathe_bench_weights *w) {
    while (w && w->first) {
        stretch *gone = w->first;
        w->first = gone->next;
        free(gone);
    }
    if (w)
        pthread_mutex_destroy(&w->lock);
    free(w);
}

static lathe_status make_stretch(lathe_bench_weights *w, const lathe_step_source *source,
                                 char *message, size_t size) {
    const lathe_weight_reader reader = lathe_synthetic_reader(&w->synthetic);
    stretch *s =
        malloc(sizeof *s + (size_t)LATHE_BENCH_STRETCH * lathe_scalar_bytes(source->dtype));
    if (!s) {
        snprintf(message, size, "no memory");
        return LATHE_NO_MEMORY;
    }
    *s = (stretch){.next = w->first, .source = source};
    const lathe_status status = reader.read(reader.context, source, source->tensor, 0,
                                            LATHE_BENCH_STRETCH, s->values, message, size);
    if (status == LATHE_OK)
        w->first = s;
    else
        free(s);
    return status;
}

static lathe_status find_stretch(lathe_bench_weights *w, const lathe_step_source *source,
                                 const stretch **found, char *message, size_t size) {
    lathe_status status = LATHE_OK;
    pthread_mutex_lock(&w->lock);
    for (int tries = 0; tries < 2 && status == LATHE_OK; ++tries) {
        for (*found = w->first; *found && (*found)->source != source;)
            *found = (*found)->next;
        if (*found)
            break;
        status = make_stretch(w, source, message, size);
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* Every tensor begins somewhere else in the stretch, at a whole word. */
static lathe_status read_stretch(void *context, const lathe_step_source *source, const char *name,
                                 int64_t offset, int64_t count, void *to, char *message,
                                 size_t size) {
    lathe_bench_weights *w = context;
    if (lathe_step_shape_count(&source->shape, 0) <= LATHE_BENCH_STRETCH) {
        const lathe_weight_reader reader = lathe_synthetic_reader(&w->synthetic);
        return reader.read(reader.context, source, name, offset, count, to, message, size);
    }
    const stretch *s = NULL;
    const lathe_status status = find_stretch(w, source, &s, message, size);
    if (status != LATHE_OK)
        return status;
    const size_t item = lathe_scalar_bytes(source->dtype);
    const int64_t shift = (int64_t)(lathe_synthetic_key(0, name) % LATHE_BENCH_STRETCH) & ~15;
    /* One element is dropped at every turn, so that rows of a power of two differ. */
    const int64_t length = LATHE_BENCH_STRETCH - 1;
    for (int64_t done = 0; done < count;) {
        const int64_t at = (offset + done + shift) % length;
        const int64_t run = count - done < length - at ? count - done : length - at;
        memcpy((unsigned char *)to + (size_t)done * item, s->values + (size_t)at * item,
               (size_t)run * item);
        done += run;
    }
    return LATHE_OK;
}

lathe_weight_reader lathe_bench_weights_reader(lathe_bench_weights *w) {
    return (lathe_weight_reader){read_stretch, w, NULL};
}
