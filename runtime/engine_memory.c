/* SPDX-License-Identifier: Apache-2.0
 * Owns: an engine's buffers: one allocation per instance, made once, so that a device that watches
 * allocations sees every step outside one. */
#include <inttypes.h>
#include <string.h>

#include "engine.h"

int lathe_engine_instances(const lathe_step_buffer *b) {
    return b->per_layer ? b->layer_count : 1;
}

uint64_t lathe_engine_buffer_bytes(const lathe_engine *e, const lathe_step_buffer *b) {
    uint64_t bytes = (uint64_t)b->fixed_bytes;
    if (b->lifetime == LATHE_LIFETIME_KV &&
        __builtin_mul_overflow(bytes, (uint64_t)e->kv_pages, &bytes))
        return UINT64_MAX;
    return bytes;
}

uint64_t lathe_engine_total_bytes(const lathe_engine *e) {
    uint64_t total = 0;
    for (int i = 0; i < e->table->buffer_count; ++i) {
        const lathe_step_buffer *b = &e->table->buffers[i];
        uint64_t bytes;
        if (b->lifetime == LATHE_LIFETIME_BUILD)
            continue;
        if (__builtin_mul_overflow(lathe_engine_buffer_bytes(e, b),
                                   (uint64_t)lathe_engine_instances(b), &bytes) ||
            __builtin_add_overflow(total, bytes, &total))
            return UINT64_MAX;
    }
    /* The probe's buffers come and go beside all others. */
    return total > UINT64_MAX - lathe_engine_probe_bytes(e) ? UINT64_MAX
                                                            : total + lathe_engine_probe_bytes(e);
}

lathe_status lathe_engine_allocate_one(lathe_engine *e, const lathe_step_buffer *b, void **memory) {
    const lathe_device_ops *ops = e->device->ops;
    const uint64_t bytes = lathe_engine_buffer_bytes(e, b);
    if (bytes > SIZE_MAX / 2)
        return lathe_engine_fail(e, LATHE_NO_MEMORY, "buffer %s: more bytes than there can be",
                                 b->name);
    if (e->options.allocate) {
        *memory = e->options.allocate(e->options.allocator_context, (size_t)bytes);
        if (!*memory)
            return lathe_engine_fail(e, LATHE_NO_MEMORY,
                                     "buffer %s: the caller's allocator gave no %llu bytes",
                                     b->name, (unsigned long long)bytes);
    }
    lathe_status status = *memory ? LATHE_OK : ops->alloc(e->device, (size_t)bytes, memory);
    if (status == LATHE_OK && b->zeroed)
        status = ops->fill(e->device, *memory, 0, (size_t)bytes);
    return status == LATHE_OK ? LATHE_OK : lathe_engine_fail_device(e, status, b->name);
}

lathe_status lathe_engine_allocate(lathe_engine *e) {
    const lathe_step_table *t = e->table;
    e->memory = lathe_pool_alloc(e->pool, (size_t)t->buffer_count, sizeof *e->memory);
    if (!e->memory)
        return lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory for buffers");
    for (int i = 0; i < t->buffer_count; ++i) {
        const int count = lathe_engine_instances(&t->buffers[i]);
        e->memory[i] = lathe_pool_alloc(e->pool, (size_t)count, sizeof **e->memory);
        if (!e->memory[i])
            return lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory for buffers");
        for (int n = 0; n < count && t->buffers[i].lifetime != LATHE_LIFETIME_BUILD; ++n) {
            const lathe_status status =
                lathe_engine_given(e, i, n)
                    ? LATHE_OK
                    : lathe_engine_allocate_one(e, &t->buffers[i], &e->memory[i][n]);
            if (status != LATHE_OK)
                return status;
            if (lathe_engine_given(e, i, n))
                e->memory[i][n] = lathe_engine_given(e, i, n);
        }
    }
    return LATHE_OK;
}

void lathe_engine_free(lathe_engine *e, void *memory) {
    if (e->options.release)
        e->options.release(e->options.allocator_context, memory);
    else
        e->device->ops->release(e->device, memory);
}

void lathe_engine_release(lathe_engine *e) {
    for (int i = 0; e->memory && i < e->table->buffer_count; ++i)
        for (int n = 0; e->memory[i] && n < lathe_engine_instances(&e->table->buffers[i]); ++n)
            if (e->memory[i][n] && !lathe_engine_given(e, i, n))
                lathe_engine_free(e, e->memory[i][n]);
}

static lathe_status fill_buffer(lathe_engine *e, int buffer, uint8_t byte) {
    const lathe_step_buffer *b = &e->table->buffers[buffer];
    for (int n = 0; n < lathe_engine_instances(b); ++n) {
        const lathe_status status = e->device->ops->fill(e->device, e->memory[buffer][n], byte,
                                                         (size_t)lathe_engine_buffer_bytes(e, b));
        if (status != LATHE_OK)
            return lathe_engine_fail_device(e, status, b->name);
    }
    return LATHE_OK;
}

static lathe_status write_rank(lathe_engine *e, int buffer) {
    const int32_t rank[2] = {e->options.rank, e->table->tp};
    const lathe_step_buffer *b = &e->table->buffers[buffer];
    if (b->dtype != LATHE_SCALAR_I32 || b->fixed_bytes != (int64_t)sizeof rank || b->per_layer)
        return lathe_engine_fail(e, LATHE_INVALID, "buffer rank is not i32 [2]");
    const lathe_status status =
        e->device->ops->copy_in(e->device, e->memory[buffer][0], rank, sizeof rank);
    return status == LATHE_OK ? LATHE_OK : lathe_engine_fail_device(e, status, b->name);
}

lathe_status lathe_engine_reset_inputs(lathe_engine *e) {
    for (int i = 0; i < e->table->buffer_count; ++i) {
        const lathe_step_buffer *b = &e->table->buffers[i];
        const bool slots = strncmp(b->name, "slot_mapping.", 13) == 0;
        lathe_status status = LATHE_OK;
        if (strcmp(b->name, "rank") == 0)
            status = write_rank(e, i);
        else if (b->lifetime == LATHE_LIFETIME_INPUT)
            status = fill_buffer(e, i, slots ? 0xff : 0);
        if (status != LATHE_OK)
            return status;
    }
    return LATHE_OK;
}

lathe_status lathe_engine_clear_faults(lathe_engine *e) {
    const int faults = lathe_step_table_find_buffer(e->table, "faults");
    return faults < 0 ? LATHE_OK : fill_buffer(e, faults, 0);
}

lathe_status lathe_engine_find(lathe_engine *e, const char *name, int layer,
                               lathe_engine_memory *memory) {
    *memory = (lathe_engine_memory){0};
    const int i = lathe_step_table_find_buffer(e->table, name);
    if (i < 0)
        return lathe_engine_fail(e, LATHE_INVALID, "no buffer has the name \"%.100s\"", name);
    const lathe_step_buffer *b = &e->table->buffers[i];
    const int instance = lathe_step_buffer_instance(b, layer);
    if (instance < 0)
        return lathe_engine_fail(e, LATHE_INVALID, "buffer %s: layer %d has none", name, layer);
    if (e->state != LATHE_ENGINE_BUILT && e->state != LATHE_ENGINE_LOST)
        return lathe_engine_fail(e, LATHE_INVALID, "buffer %s: there is no memory before build",
                                 name);
    if (b->lifetime == LATHE_LIFETIME_BUILD)
        return lathe_engine_fail(e, LATHE_INVALID, "buffer %s: there is no memory after build",
                                 name);
    memory->buffer = b;
    memory->layer = b->per_layer ? layer : -1;
    memory->address = e->memory[i][instance];
    memory->bytes = (size_t)lathe_engine_buffer_bytes(e, b);
    memory->shape = b->shape;
    if (b->lifetime == LATHE_LIFETIME_KV) {
        memory->shape.dim[0] = lathe_engine_pages(e, i, instance);
        memory->bytes = (size_t)(b->fixed_bytes * memory->shape.dim[0]);
    }
    return LATHE_OK;
}

static lathe_status find_range(lathe_engine *e, const char *name, int layer, size_t offset,
                               size_t bytes, lathe_engine_memory *memory) {
    const lathe_status status = lathe_engine_find(e, name, layer, memory);
    if (status == LATHE_OK && (offset > memory->bytes || bytes > memory->bytes - offset))
        return lathe_engine_fail(e, LATHE_INVALID,
                                 "buffer %s: found bytes %zu to %zu, allowed: up to %zu", name,
                                 offset, offset + bytes, memory->bytes);
    return status;
}

lathe_status lathe_engine_read(lathe_engine *e, const char *name, int layer, size_t offset,
                               void *host, size_t bytes) {
    lathe_engine_memory m;
    lathe_status status = find_range(e, name, layer, offset, bytes, &m);
    if (status != LATHE_OK)
        return status;
    status = e->device->ops->copy_out(e->device, host, (char *)m.address + offset, bytes);
    return status == LATHE_OK ? LATHE_OK : lathe_engine_fail_device(e, status, name);
}

lathe_status lathe_engine_write(lathe_engine *e, const char *name, int layer, size_t offset,
                                const void *host, size_t bytes) {
    lathe_engine_memory m;
    lathe_status status = find_range(e, name, layer, offset, bytes, &m);
    if (status != LATHE_OK)
        return status;
    status = e->device->ops->copy_in(e->device, (char *)m.address + offset, host, bytes);
    return status == LATHE_OK ? LATHE_OK : lathe_engine_fail_device(e, status, name);
}
