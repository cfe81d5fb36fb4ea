/* SPDX-License-Identifier: Apache-2.0
 * Host copies of buffers, kept by buffer number and instance. Buffers are known by name, since
 * every rank has a table of its own. */
#include "image.h"

#include <stdlib.h>
#include <string.h>

struct lathe_image {
    lathe_engine *engine;
    const lathe_step_table *table;
    void ***copies; /* [buffer][instance] */
};

lathe_image *lathe_image_create(lathe_engine *engine) {
    lathe_image *image = calloc(1, sizeof *image);
    if (!image)
        return NULL;
    image->engine = engine;
    image->table = lathe_engine_table(engine);
    image->copies = calloc((size_t)image->table->buffer_count + 1, sizeof *image->copies);
    if (!image->copies) {
        free(image);
        return NULL;
    }
    return image;
}

void lathe_image_destroy(lathe_image *image) {
    if (!image)
        return;
    for (int b = 0; b < image->table->buffer_count; ++b) {
        for (int i = 0; image->copies[b] && i < lathe_image_instances(&image->table->buffers[b]);
             ++i)
            free(image->copies[b][i]);
        free(image->copies[b]);
    }
    free(image->copies);
    free(image);
}

/* Where the copy of an instance is kept, or NULL. */
static void **find_place(lathe_image *image, const lathe_step_buffer *buffer, int layer) {
    const int b = lathe_step_table_find_buffer(image->table, buffer->name);
    const int i = lathe_step_buffer_instance(buffer, layer);
    if (i < 0)
        return NULL;
    if (!image->copies[b])
        image->copies[b] = calloc((size_t)lathe_image_instances(buffer), sizeof **image->copies);
    return image->copies[b] ? &image->copies[b][i] : NULL;
}

/* A new copy of unknown contents. */
static void *add_copy(lathe_image *image, const lathe_step_buffer *buffer, int layer,
                      size_t *bytes) {
    lathe_engine_memory memory;
    void **place = find_place(image, buffer, layer);
    if (!place || lathe_engine_find(image->engine, buffer->name, layer, &memory) != LATHE_OK)
        return NULL;
    *bytes = memory.bytes;
    if (!*place)
        *place = malloc(memory.bytes ? memory.bytes : 1);
    return *place;
}

void *lathe_image_read(lathe_image *image, const lathe_step_buffer *buffer, int layer,
                       size_t *bytes) {
    size_t size = 0;
    const bool old = lathe_image_find(image, buffer, layer) != NULL;
    void *copy = add_copy(image, buffer, layer, &size);
    if (bytes)
        *bytes = size;
    if (copy && !old &&
        lathe_engine_read(image->engine, buffer->name, layer, 0, copy, size) != LATHE_OK) {
        lathe_image_drop(image, buffer, layer);
        return NULL;
    }
    return copy;
}

void *lathe_image_make(lathe_image *image, const lathe_step_buffer *buffer, int layer, int byte,
                       size_t *bytes) {
    size_t size = 0;
    const bool old = lathe_image_find(image, buffer, layer) != NULL;
    void *copy = add_copy(image, buffer, layer, &size);
    if (bytes)
        *bytes = size;
    if (copy && !old)
        memset(copy, byte, size);
    return copy;
}

void *lathe_image_find(const lathe_image *image, const lathe_step_buffer *buffer, int layer) {
    const int b = lathe_step_table_find_buffer(image->table, buffer->name);
    const int i = lathe_step_buffer_instance(buffer, layer);
    return image->copies[b] && i >= 0 ? image->copies[b][i] : NULL;
}

void lathe_image_drop(lathe_image *image, const lathe_step_buffer *buffer, int layer) {
    void **place = find_place(image, buffer, layer);
    if (!place)
        return;
    free(*place);
    *place = NULL;
}
