/* SPDX-License-Identifier: Apache-2.0
 * Owns: an engine from create to destroy, its messages, and why a machine cannot serve it. */
#include "engine.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

static atomic_uint_fast64_t serials = 1;

lathe_message_buffer lathe_engine_message_buffer(lathe_engine *e) {
    return (lathe_message_buffer){e->message, sizeof e->message};
}

lathe_status lathe_engine_fail(lathe_engine *e, lathe_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(e->message, sizeof e->message, format, list);
    va_end(list);
    return status;
}

lathe_status lathe_engine_fail_null(lathe_engine *e, const char *call) {
    return e ? lathe_engine_fail(e, LATHE_INVALID, "%s: found NULL, allowed: every argument", call)
             : LATHE_INVALID;
}

lathe_status lathe_engine_fail_device(lathe_engine *e, lathe_status status, const char *what) {
    return lathe_engine_fail(e, status, "%s: %s", what,
                             e->device->message[0] ? e->device->message
                                                   : lathe_status_name(status));
}

/* Options of an older caller are shorter: what it does not know keeps its default. */
static lathe_status copy_options(lathe_engine *e, const lathe_options *options,
                                 lathe_message_buffer message) {
    if (options->size < offsetof(lathe_options, ordinal) || options->size > sizeof *options)
        return lathe_fail(message, LATHE_INVALID, "options: found size %zu, allowed: %zu",
                          options->size, sizeof *options);
    memcpy(&e->options, options, options->size);
    if (!e->options.directory || !*e->options.directory)
        return lathe_fail(message, LATHE_INVALID, "options: directory is missing");
    if (e->options.device != LATHE_DEVICE_HOST && e->options.device != LATHE_DEVICE_CUDA)
        return lathe_fail(message, LATHE_INVALID, "options: unknown device %d",
                          (int)e->options.device);
    if (!e->options.allocate != !e->options.release)
        return lathe_fail(message, LATHE_INVALID,
                          "options: found one of allocate and release, allowed: both or none");
    if (e->options.loopback && e->options.group)
        return lathe_fail(message, LATHE_INVALID,
                          "options: found a group and loop-back, allowed: one of them");
    if (e->options.ordinal < 0 || e->options.jobs < 0)
        return lathe_fail(message, LATHE_INVALID,
                          "options: found ordinal %d and jobs %d, allowed: 0 or more",
                          e->options.ordinal, e->options.jobs);
    if (e->options.kv_pages < 0 || e->options.kv_pages > INT32_MAX)
        return lathe_fail(message, LATHE_INVALID,
                          "options: found %lld kv pages, allowed: 0 to 2^31 - 1",
                          (long long)e->options.kv_pages);
    const char **texts[] = {&e->options.directory, &e->options.cache, &e->options.nvrtc};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i)
        if (*texts[i] && !(*texts[i] = lathe_pool_string(e->pool, *texts[i])))
            return lathe_fail(message, LATHE_NO_MEMORY, "no memory for an engine");
    return LATHE_OK;
}

/* Pages for every request at the longest context, in the widest group. */
static int64_t default_pages(const lathe_step_table *t) {
    int64_t widest = 1;
    for (int g = 0; g < t->group_count; ++g)
        if (t->groups[g].table_width > widest)
            widest = t->groups[g].table_width;
    return widest * t->max_requests;
}

static lathe_status open_device(lathe_engine *e, lathe_message_buffer message) {
    const lathe_options *o = &e->options;
    return o->device == LATHE_DEVICE_CUDA
               ? lathe_device_cuda_create(o->ordinal, &e->device, message.text, message.size)
               : lathe_device_host_create(o->rank, o->seed, &e->device, message.text, message.size);
}

static lathe_status open_parts(lathe_engine *e, lathe_message_buffer message) {
    lathe_status status =
        lathe_step_table_read(e->options.directory, &e->table, message.text, message.size);
    if (status != LATHE_OK)
        return status;
    if (e->options.rank < 0 || e->options.rank >= e->table->tp)
        return lathe_fail(message, LATHE_INVALID, "options: found rank %d, allowed: 0 to %d",
                          e->options.rank, e->table->tp - 1);
    e->kv_pages = e->options.external_caches ? 1 /* to warm up with */
                  : e->options.kv_pages      ? e->options.kv_pages
                                             : default_pages(e->table);
    if (e->options.serving)
        lathe_serving_compare(e->table, e->options.serving, e->wanted, sizeof e->wanted);
    e->options.serving = NULL; /* the caller's, only now */
    status = open_device(e, message);
    if (status == LATHE_OK && e->options.stream && e->options.device == LATHE_DEVICE_CUDA)
        lathe_device_cuda_use(e->device, e->options.stream);
    return status;
}

lathe_status lathe_create(const lathe_options *options, lathe_engine **engine, char *message,
                          size_t size) {
    const lathe_message_buffer out = {message, size};
    if (!engine)
        return lathe_fail(out, LATHE_INVALID, "engine is NULL");
    *engine = NULL;
    if (!options)
        return lathe_fail(out, LATHE_INVALID, "options are NULL");
    lathe_pool *pool = lathe_pool_create();
    lathe_engine *e = pool ? lathe_pool_alloc(pool, 1, sizeof *e) : NULL;
    if (!e) {
        lathe_pool_destroy(pool);
        return lathe_fail(out, LATHE_NO_MEMORY, "no memory for an engine");
    }
    e->pool = pool;
    e->serial = atomic_fetch_add(&serials, 1);
    lathe_status status = copy_options(e, options, out);
    lathe_logger_create(&e->log, e->options.log, e->options.log_context);
    if (status == LATHE_OK)
        status = open_parts(e, out);
    if (status == LATHE_OK)
        *engine = e;
    else
        lathe_destroy(e);
    return status;
}

static void close_device(lathe_engine *e) {
    const lathe_device_ops *ops = e->device->ops;
    for (int v = 0; e->graphs && v < e->table->variant_count; ++v)
        if (e->graphs[v])
            ops->graph_destroy(e->device, e->graphs[v]);
    for (int k = 0; e->kernels && k < e->table->kernel_count; ++k)
        if (e->kernels[k])
            ops->unload(e->device, e->kernels[k]);
    lathe_engine_close_mailboxes(e);
    lathe_engine_release(e);
    ops->destroy(e->device);
}

void lathe_destroy(lathe_engine *e) {
    if (!e)
        return;
    if (e->device)
        close_device(e);
    lathe_compiler_destroy(e->compiler);
    lathe_step_table_destroy(e->table);
    lathe_logger_destroy(&e->log);
    lathe_pool_destroy(e->pool); /* the engine itself is in it */
}

const char *lathe_message(const lathe_engine *e) {
    return e ? e->message : "";
}

const lathe_step_table *lathe_engine_table(const lathe_engine *e) {
    return e->table;
}

lathe_device *lathe_engine_device(lathe_engine *e) {
    return e->device;
}

int lathe_engine_world(const lathe_engine *e) {
    if (e->options.group)
        return e->options.group->world;
    return e->options.loopback ? e->table->tp : 1;
}

lathe_status lathe_engine_open_compiler(lathe_engine *e) {
    if (e->compiler)
        return LATHE_OK;
    const lathe_compiler_options options = {
        .directory = e->options.directory,
        .arch = e->table->arch,
        .host = e->options.device == LATHE_DEVICE_HOST,
        .cache = e->options.cache,
        .nvrtc = e->options.nvrtc,
        .allow_spills = e->options.allow_spills,
        .jobs = e->options.jobs,
        .log = &e->log,
    };
    return lathe_compiler_create(&options, &e->compiler, lathe_engine_message_buffer(e));
}

static const char *refuse(lathe_engine *e, lathe_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static const char *refuse(lathe_engine *e, lathe_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    e->unsupported_status = status;
    vsnprintf(e->unsupported, sizeof e->unsupported, format, list);
    va_end(list);
    return e->unsupported;
}

static const char *refuse_library(lathe_engine *e) {
    lathe_nccl nccl;
    if (!lathe_engine_has_collectives(e))
        return NULL;
    const lathe_status status = lathe_nccl_open(NULL, &nccl, lathe_engine_message_buffer(e));
    if (status != LATHE_OK)
        return refuse(e, status, "collectives: %.1000s", e->message);
    lathe_nccl_close(&nccl);
    return NULL;
}

/* Architecture, NVRTC and driver. A generated directory of any architecture runs on the host
 * device. */
static const char *refuse_cuda(lathe_engine *e) {
    const lathe_device_info *info = &e->device->info;
    if (strcmp(info->arch, e->table->arch) != 0)
        return refuse(e, LATHE_UNSUPPORTED,
                      "architecture: the directory is for %s, the device (%s) is %s",
                      e->table->arch, info->description, info->arch);
    lathe_status status = lathe_engine_open_compiler(e);
    if (status == LATHE_OK)
        status = lathe_compiler_check(e->compiler, e->table, lathe_engine_message_buffer(e));
    if (status != LATHE_OK)
        return refuse(e, status, "%.1000s", e->message);
    const int needed = lathe_compiler_cuda_major(e->compiler);
    if (info->cuda_major < needed)
        return refuse(
            e, LATHE_NO_DEVICE,
            "driver: cubins of CUDA %d want a driver of CUDA %d or newer (580 for CUDA 13), "
            "found CUDA %d (%s)",
            needed, needed, info->cuda_major, info->description);
    return refuse_library(e);
}

/* Ranks on the host device share the machine's memory. */
static const char *refuse_memory(lathe_engine *e, int world) {
    const bool host = e->options.device == LATHE_DEVICE_HOST;
    const uint64_t have = e->device->info.memory_free;
    uint64_t bytes = lathe_engine_total_bytes(e);
    if (host && __builtin_mul_overflow(bytes, (uint64_t)world, &bytes))
        bytes = UINT64_MAX;
    if (bytes <= have)
        return NULL;
    char note[128] = "";
    if (host && strcmp(e->table->arch, "host") != 0)
        snprintf(note, sizeof note, "the directory is for %s, here it would be emulated; ",
                 e->table->arch);
    return refuse(
        e, LATHE_UNSUPPORTED,
        "%smemory: the step wants %.2f GB (%llu bytes, %lld kv pages), the %s has %.2f GB "
        "(%llu bytes)",
        note, (double)bytes * 1e-9, (unsigned long long)bytes, (long long)e->kv_pages,
        host ? "machine" : "device", (double)have * 1e-9, (unsigned long long)have);
}

const char *lathe_unsupported(lathe_engine *e) {
    if (!e)
        return "lathe_unsupported: found NULL, allowed: an engine";
    if (e->wanted[0])
        return refuse(e, LATHE_UNSUPPORTED, "%s", e->wanted);
    const int world = lathe_engine_world(e);
    if (e->options.loopback && lathe_engine_has_collectives(e))
        return refuse(e, LATHE_UNSUPPORTED,
                      "loop-back: the deployment exchanges by a library, allowed: mailboxes only");
    if (e->table->tp != world)
        return refuse(
            e, LATHE_UNSUPPORTED,
            "tensor parallelism: the directory is for %d ranks, this engine's group has %d",
            e->table->tp, world);
    if (e->options.device == LATHE_DEVICE_CUDA) {
        const char *reason = refuse_cuda(e);
        if (reason)
            return reason;
    }
    return e->state == LATHE_ENGINE_CREATED ? refuse_memory(e, e->options.loopback ? 1 : world)
                                            : NULL;
}
