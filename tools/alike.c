/* SPDX-License-Identifier: Apache-2.0
 * A hash per instance of an output and rank; equal hashes stand for equal bits. */
#include "alike.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "named.h"

typedef struct {
    const lathe_alike *what;
    const lathe_step_table *table;
    int instances;
    uint64_t *hashes; /* [rank][instance] */
    char *message;
    size_t size;
} comparison;

static int count_of(const lathe_step_buffer *b) {
    if (b->lifetime != LATHE_LIFETIME_OUTPUT)
        return 0;
    return b->per_layer ? b->layer_count : 1;
}

static int layer_of(const lathe_step_buffer *b, int instance) {
    return b->per_layer ? b->layers[instance] : -1;
}

static lathe_status hash_rank(const comparison *c, int engine, uint64_t *to) {
    int n = 0;
    for (int b = 0; b < c->table->buffer_count; ++b) {
        const lathe_step_buffer *buffer = &c->table->buffers[b];
        for (int i = 0; i < count_of(buffer); ++i) {
            size_t bytes = 0;
            const void *data =
                lathe_image_read(c->what->images[engine], buffer, layer_of(buffer, i), &bytes);
            if (!data) {
                snprintf(c->message, c->size, "output %s cannot be read back", buffer->name);
                return LATHE_NO_MEMORY;
            }
            to[n++] = XXH3_64bits(data, bytes);
        }
    }
    return LATHE_OK;
}

static void compare(const comparison *c, int ranks, lathe_alike_result *result) {
    int n = 0;
    for (int b = 0; b < c->table->buffer_count; ++b) {
        const lathe_step_buffer *buffer = &c->table->buffers[b];
        for (int i = 0; i < count_of(buffer); ++i, ++n) {
            bool same = true;
            for (int r = 1; r < ranks; ++r)
                same = same && c->hashes[r * c->instances + n] == c->hashes[n];
            result->alike += same;
            if (!same && result->own++ == 0)
                lathe_named_format(buffer->name, layer_of(buffer, i), result->name,
                                   sizeof result->name);
        }
    }
}

static lathe_status gather(const comparison *c) {
    const size_t bytes = (size_t)c->instances * sizeof *c->hashes;
    lathe_group *group = c->what->group;
    lathe_status status = LATHE_OK;
    if (!group) {
        for (int e = 0; e < c->what->count && status == LATHE_OK; ++e)
            status = hash_rank(c, e, c->hashes + e * c->instances);
        return status;
    }
    uint64_t *mine = malloc(bytes + 1);
    if (!mine) {
        snprintf(c->message, c->size, "no memory");
        return LATHE_NO_MEMORY;
    }
    status = hash_rank(c, 0, mine);
    if (status == LATHE_OK) {
        status = lathe_group_all_gather(group, mine, bytes, c->hashes);
        if (status != LATHE_OK)
            snprintf(c->message, c->size, "outputs: %s", group->message);
    }
    free(mine);
    return status;
}

lathe_status lathe_alike_outputs(const lathe_alike *what, lathe_alike_result *result, char *message,
                                 size_t size) {
    comparison c = {.what = what, .message = message, .size = size};
    const int ranks = what->group ? what->group->world : what->count;
    *result = (lathe_alike_result){0};
    c.table = lathe_engine_table(what->engines[0]);
    for (int b = 0; b < c.table->buffer_count; ++b)
        c.instances += count_of(&c.table->buffers[b]);
    c.hashes = calloc((size_t)(ranks * c.instances) + 1, sizeof *c.hashes);
    if (!c.hashes) {
        snprintf(message, size, "no memory");
        return LATHE_NO_MEMORY;
    }
    const lathe_status status = gather(&c);
    if (status == LATHE_OK)
        compare(&c, ranks, result);
    free(c.hashes);
    return status;
}
