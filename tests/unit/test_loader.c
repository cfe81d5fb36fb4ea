/* SPDX-License-Identifier: Apache-2.0
 * Weights loaded in pieces, by threads where they are many megabytes: the bytes of one fill, the
 * order of progress, and what a reader that fails leaves. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader.h"

#define ROWS 3000
#define COLUMNS 4096 /* of a rank; twice as many in the tensor: every row is a run */
#define ITEMS 3
#define BYTES ((size_t)ROWS * COLUMNS * 4) /* 49 MB each: six pieces, several workers */

typedef struct {
    lathe_step_buffer buffer;
    lathe_step_source source;
    lathe_step_weight weight;
    lathe_step_table table;
    lathe_weights weights;
    lathe_device *device;
    lathe_loader_item items[ITEMS];
    lathe_loader loader;
    int done;
} fixture;

static char message[1024];
static atomic_int reads, fails_at;

/* An element is its number in the whole tensor, and its layer. */
static lathe_status read_numbers(void *context, const lathe_step_source *source, const char *name,
                                 int64_t offset, int64_t count, void *to, char *text, size_t size) {
    (void)context;
    (void)source;
    if (atomic_fetch_add(&reads, 1) == atomic_load(&fails_at)) {
        snprintf(text, size, "%s cannot be read", name);
        return LATHE_IO;
    }
    for (int64_t i = 0; i < count; ++i)
        ((int32_t *)to)[i] = (int32_t)(offset + i) * 4 + (name[2] - '0');
    return LATHE_OK;
}

static void count_done(void *context, int index) {
    fixture *f = context;
    cr_assert_eq(index, f->done++);
}

static void set_up(fixture *f) {
    memset(f, 0, sizeof *f);
    atomic_store(&reads, 0);
    atomic_store(&fails_at, -1);
    f->buffer = (lathe_step_buffer){.name = "w",
                                    .dtype = LATHE_SCALAR_I32,
                                    .shape = {2, {ROWS, COLUMNS}},
                                    .fixed_bytes = (int64_t)BYTES};
    f->source = (lathe_step_source){.tensor = "a.{l}",
                                    .dtype = LATHE_SCALAR_I32,
                                    .shape = {2, {ROWS, 2 * COLUMNS}},
                                    .shard_axis = 1,
                                    .shard_groups = 1};
    f->weight = (lathe_step_weight){.source_count = 1, .sources = &f->source};
    f->table = (lathe_step_table){.tp = 2,
                                  .buffer_count = 1,
                                  .buffers = &f->buffer,
                                  .weight_count = 1,
                                  .weights = &f->weight};
    f->weights = (lathe_weights){&f->table, 1, {read_numbers, NULL, NULL}};
    cr_assert_eq(lathe_device_host_create(0, 1, &f->device, message, sizeof message), LATHE_OK);
    for (int i = 0; i < ITEMS; ++i) {
        f->items[i] = (lathe_loader_item){.weight = 0, .layer = i, .bytes = BYTES};
        cr_assert_eq(f->device->ops->alloc(f->device, BYTES, &f->items[i].memory), LATHE_OK);
    }
    f->loader = (lathe_loader){&f->weights, f->device, f->items, ITEMS,
                               count_done,  f,         message,  sizeof message};
}

static void tear_down(fixture *f) {
    for (int i = 0; i < ITEMS; ++i)
        f->device->ops->release(f->device, f->items[i].memory);
    f->device->ops->destroy(f->device);
}

/* The first element that is not the rank's own; -1: none. */
static int64_t find_wrong(const int32_t *w, int layer) {
    for (int64_t n = 0; n < ROWS * COLUMNS; ++n)
        if (w[n] != (int32_t)((n / COLUMNS * 2 + 1) * COLUMNS + n % COLUMNS) * 4 + layer)
            return n;
    return -1;
}

Test(loader, pieces_are_the_whole) {
    static fixture f;
    set_up(&f);
    cr_assert_eq(lathe_loader_run(&f.loader), LATHE_OK, "%s", message);
    cr_assert_eq(f.done, ITEMS);
    for (int i = 0; i < ITEMS; ++i)
        cr_assert_eq(find_wrong(f.items[i].memory, i), -1, "item %d", i);
    tear_down(&f);
}

/* Whichever read it is, of the first pieces or of the last. */
Test(loader, a_read_that_fails_ends_it) {
    static fixture f;
    const int at[] = {0, 700, ITEMS * ROWS - 1};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; ++i) {
        set_up(&f);
        atomic_store(&fails_at, at[i]);
        cr_assert_eq(lathe_loader_run(&f.loader), LATHE_IO);
        cr_assert(strncmp(message, "a.", 2) == 0 && strstr(message, " cannot be read"), "%s",
                  message);
        tear_down(&f);
    }
}

Test(loader, nothing_is_loaded_at_once) {
    static fixture f;
    set_up(&f);
    f.loader.count = 0;
    cr_assert_eq(lathe_loader_run(&f.loader), LATHE_OK);
    tear_down(&f);
}
