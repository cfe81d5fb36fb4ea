/* SPDX-License-Identifier: Apache-2.0
 * Fills weights that a reader can give in parts: threads copy pieces of a few megabytes from the
 * reader to staging memory while pieces before them are on their way to the device. */
#ifndef LATHE_LOADER_H
#define LATHE_LOADER_H

#include "device.h"
#include "weights.h"

/* One weight on its way. */
typedef struct {
    int weight, layer;
    void *memory; /* of the device */
    size_t bytes;
} lathe_loader_item;

typedef struct {
    const lathe_weights *weights;
    lathe_device *device;
    const lathe_loader_item *items;
    int count;
    /* Called by the calling thread after the last piece of item `index` was enqueued. */
    void (*done)(void *context, int index);
    void *context;
    char *message; /* of a failure */
    size_t size;
} lathe_loader;

/* All items are on the device afterwards. Takes at most 128 MiB of the host's memory. */
LATHE_CHECKED lathe_status lathe_loader_run(const lathe_loader *loader);

#endif
