/* SPDX-License-Identifier: Apache-2.0
 * Host copies of an engine's buffers, one per instance, made when first asked for. */
#ifndef LATHE_IMAGE_H
#define LATHE_IMAGE_H

#include "step.h"

typedef struct lathe_image lathe_image;

/* How many instances a buffer has: one, or one for each of its layers. */
static inline int lathe_image_instances(const lathe_step_buffer *b) {
    return b->per_layer ? b->layer_count : 1;
}

/* NULL where there is no memory. */
lathe_image *lathe_image_create(lathe_engine *engine);
void lathe_image_destroy(lathe_image *image);

/* The copy of an instance, read from the device at the first call. NULL where it cannot be read or
 * there is no memory. `bytes` may be NULL. */
void *lathe_image_read(lathe_image *image, const lathe_step_buffer *buffer, int layer,
                       size_t *bytes);
/* The same without reading: filled with `byte` at the first call. */
void *lathe_image_make(lathe_image *image, const lathe_step_buffer *buffer, int layer, int byte,
                       size_t *bytes);
/* The copy if there is one, else NULL. */
void *lathe_image_find(const lathe_image *image, const lathe_step_buffer *buffer, int layer);
/* Forgets one copy. */
void lathe_image_drop(lathe_image *image, const lathe_step_buffer *buffer, int layer);

#endif
