/* SPDX-License-Identifier: Apache-2.0
 * Owns: the CUDA device over the driver: memory, kernels, launches on two streams. Everything goes
 * through streams of its own, copies too, so that no call waits for another library's work. */
#include "device_cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "gpu.h"

#define LARGEST_CUBIN ((size_t)256 << 20)
#define MOST_ARGUMENTS 64

static lathe_message_buffer message_of(cuda_device *d) {
    return (lathe_message_buffer){d->base.message, sizeof d->base.message};
}

lathe_status cuda_check(cuda_device *d, const char *call, cu_result result) {
    return result == CU_OK ? LATHE_OK : lathe_driver_fail(&d->driver, call, result, message_of(d));
}

lathe_status cuda_refuse(cuda_device *d, lathe_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(d->base.message, sizeof d->base.message, format, list);
    va_end(list);
    return status;
}

lathe_status cuda_enter(cuda_device *d) {
    return cuda_check(d, "cuCtxSetCurrent", d->driver.context_set(d->context));
}

static void cuda_destroy(lathe_device *base) {
    cuda_device *d = (cuda_device *)base;
    if (d->context && cuda_enter(d) == LATHE_OK) {
        cuda_close_collectives(d);
        for (int s = 0; s < LATHE_STREAMS; ++s) {
            if (d->forks[s])
                d->driver.event_destroy(d->forks[s]);
            if (d->joins[s])
                d->driver.event_destroy(d->joins[s]);
            if (d->streams[s] && !(s == 0 && d->foreign))
                d->driver.stream_destroy(d->streams[s]);
        }
    }
    if (d->context)
        d->driver.context_release(d->device);
    lathe_driver_close(&d->driver);
    free(d);
}

static lathe_status cuda_alloc(lathe_device *base, size_t bytes, void **memory) {
    cuda_device *d = (cuda_device *)base;
    cu_address address = 0;
    *memory = NULL;
    lathe_status status = cuda_enter(d);
    if (status != LATHE_OK)
        return status;
    status = cuda_check(d, "cuMemAlloc", d->driver.memory_alloc(&address, bytes ? bytes : 1));
    d->allocations++;
    if (status == LATHE_OK)
        *memory = (void *)(uintptr_t)address;
    return status;
}

static void cuda_release(lathe_device *base, void *memory) {
    cuda_device *d = (cuda_device *)base;
    if (memory && cuda_enter(d) == LATHE_OK)
        d->driver.memory_free((cu_address)(uintptr_t)memory);
}

static lathe_status wait_main(cuda_device *d) {
    d->synchronizations++;
    if (d->pending)
        return cuda_wait_collectives(d);
    return cuda_check(d, "cuStreamSynchronize", d->driver.stream_synchronize(d->streams[0]));
}

/* A copy of pageable memory, and a fill behind one, waits for the stream without a bound. */
static lathe_status enter_idle(cuda_device *d) {
    const lathe_status status = cuda_enter(d);
    return status == LATHE_OK && d->pending ? cuda_wait_collectives(d) : status;
}

static lathe_status cuda_copy_in(lathe_device *base, void *to, const void *from, size_t bytes) {
    cuda_device *d = (cuda_device *)base;
    lathe_status status = enter_idle(d);
    if (status != LATHE_OK || bytes == 0)
        return status;
    status = cuda_check(d, "cuMemcpyHtoDAsync",
                        d->driver.copy_in((cu_address)(uintptr_t)to, from, bytes, d->streams[0]));
    return status == LATHE_OK ? wait_main(d) : status;
}

static lathe_status cuda_copy_out(lathe_device *base, void *to, const void *from, size_t bytes) {
    cuda_device *d = (cuda_device *)base;
    lathe_status status = enter_idle(d);
    if (status != LATHE_OK || bytes == 0)
        return status;
    status = cuda_check(d, "cuMemcpyDtoHAsync",
                        d->driver.copy_out(to, (cu_address)(uintptr_t)from, bytes, d->streams[0]));
    return status == LATHE_OK ? wait_main(d) : status;
}

static lathe_status cuda_fill(lathe_device *base, void *to, uint8_t byte, size_t bytes) {
    cuda_device *d = (cuda_device *)base;
    lathe_status status = enter_idle(d);
    if (status != LATHE_OK || bytes == 0)
        return status;
    status = cuda_check(d, "cuMemsetD8Async",
                        d->driver.fill((cu_address)(uintptr_t)to, byte, bytes, d->streams[0]));
    return status == LATHE_OK ? wait_main(d) : status;
}

static lathe_status cuda_open_peer(lathe_device *base, const lathe_device *peer) {
    cuda_device *d = (cuda_device *)base;
    const cuda_device *p = (const cuda_device *)peer;
    int possible = 0;
    if (d->device == p->device)
        return LATHE_OK;
    lathe_status status = cuda_enter(d);
    if (status == LATHE_OK)
        status = cuda_check(d, "cuDeviceCanAccessPeer",
                            d->driver.peer_possible(&possible, d->device, p->device));
    if (status != LATHE_OK)
        return status;
    if (!possible)
        return cuda_refuse(d, LATHE_UNSUPPORTED,
                           "GPU %d cannot address the memory of GPU %d (no peer access)", d->device,
                           p->device);
    const cu_result result = d->driver.peer_enable(p->context, 0);
    return result == CU_PEER_ALREADY_ENABLED ? LATHE_OK
                                             : cuda_check(d, "cuCtxEnablePeerAccess", result);
}

static lathe_status load_function(cuda_device *d, lathe_kernel *k, const void *image,
                                  const char *entry, uint32_t shared_bytes) {
    lathe_status status =
        cuda_check(d, "cuModuleLoadData", d->driver.module_load(&k->module, image));
    if (status == LATHE_OK)
        status = cuda_check(d, "cuModuleGetFunction",
                            d->driver.module_function(&k->function, k->module, entry));
    if (status == LATHE_OK && shared_bytes > 0)
        status = cuda_check(
            d, "cuFuncSetAttribute",
            d->driver.function_set(k->function, CU_FUNCTION_DYNAMIC_SHARED, (int)shared_bytes));
    /* Code that is loaded at its first launch waits for the device, where a rank may be polling for
     * this very launch. */
    if (status == LATHE_OK)
        status = cuda_check(d, "cuFuncLoad", d->driver.function_load(k->function));
    return status;
}

static void cuda_unload(lathe_device *base, lathe_kernel *kernel) {
    cuda_device *d = (cuda_device *)base;
    if (!kernel)
        return;
    if (kernel->module && cuda_enter(d) == LATHE_OK)
        d->driver.module_unload(kernel->module);
    free(kernel);
}

static lathe_status cuda_load(lathe_device *base, const char *path, const char *entry,
                              uint32_t shared_bytes, lathe_kernel **kernel) {
    cuda_device *d = (cuda_device *)base;
    char *image;
    size_t bytes;
    *kernel = NULL;
    lathe_status status = cuda_enter(d);
    if (status != LATHE_OK)
        return status;
    const int error = lathe_file_read(path, LARGEST_CUBIN, &image, &bytes);
    if (error)
        return cuda_refuse(d, LATHE_IO, "%s: %s", path, strerror(error));
    lathe_kernel *k = calloc(1, sizeof *k);
    status = k ? load_function(d, k, image, entry, shared_bytes)
               : cuda_refuse(d, LATHE_NO_MEMORY, "no memory for a kernel");
    free(image);
    if (status == LATHE_OK)
        *kernel = k;
    else
        cuda_unload(base, k);
    return status;
}

/* Programmatic dependent launch is not combined with cooperative launch; step.json is checked for
 * that. */
static unsigned int set_attributes(const lathe_geometry *g, cu_launch_attribute list[2]) {
    unsigned int count = 0;
    if (g->cooperative)
        list[count++] = (cu_launch_attribute){.id = CU_LAUNCH_COOPERATIVE, .value.number = 1};
    if (g->early)
        list[count++] = (cu_launch_attribute){.id = CU_LAUNCH_PROGRAMMATIC, .value.number = 1};
    return count;
}

static lathe_status cuda_launch(lathe_device *base, int stream, const lathe_kernel *kernel,
                                const lathe_geometry *g, void *const *arguments, int count) {
    cuda_device *d = (cuda_device *)base;
    cu_address values[MOST_ARGUMENTS];
    void *parameters[MOST_ARGUMENTS];
    cu_launch_attribute attributes[2];
    if (count < 0 || count > MOST_ARGUMENTS)
        return cuda_refuse(d, LATHE_INVALID, "found %d arguments, allowed: %d", count,
                           MOST_ARGUMENTS);
    lathe_status status = cuda_enter(d);
    if (status != LATHE_OK)
        return status;
    for (int i = 0; i < count; ++i) {
        values[i] = (cu_address)(uintptr_t)arguments[i];
        parameters[i] = &values[i];
    }
    const cu_launch_config config = {
        .grid = {g->grid[0], g->grid[1], g->grid[2]},
        .block = {g->block, 1, 1},
        .shared_bytes = g->shared_bytes,
        .stream = d->streams[stream],
        .attributes = attributes,
        .attribute_count = set_attributes(g, attributes),
    };
    status = cuda_check(d, "cuLaunchKernelEx",
                        d->driver.launch(&config, kernel->function, parameters, NULL));
    return status == LATHE_OK && d->recording ? cuda_record_launch(d, config.stream, kernel)
                                              : status;
}

/* `later` waits for what `first` holds so far. */
static lathe_status order(cuda_device *d, cu_event event, cu_stream first, cu_stream later) {
    lathe_status status = cuda_enter(d);
    if (status == LATHE_OK)
        status = cuda_check(d, "cuEventRecord", d->driver.event_record(event, first));
    if (status == LATHE_OK)
        status = cuda_check(d, "cuStreamWaitEvent", d->driver.stream_wait(later, event, 0));
    return status;
}

static lathe_status cuda_fork(lathe_device *base, int stream) {
    cuda_device *d = (cuda_device *)base;
    return order(d, d->forks[stream], d->streams[0], d->streams[stream]);
}

static lathe_status cuda_join(lathe_device *base, int stream) {
    cuda_device *d = (cuda_device *)base;
    return order(d, d->joins[stream], d->streams[stream], d->streams[0]);
}

static lathe_status cuda_synchronize(lathe_device *base) {
    cuda_device *d = (cuda_device *)base;
    lathe_status status = cuda_enter(d);
    if (status == LATHE_OK)
        status = wait_main(d); /* every fork is joined to the main stream */
    return status == LATHE_OK ? cuda_check_collectives(d) : status;
}

static uint64_t cuda_allocations(const lathe_device *base) {
    return ((const cuda_device *)base)->allocations;
}

static uint64_t cuda_synchronizations(const lathe_device *base) {
    return ((const cuda_device *)base)->synchronizations;
}

static const lathe_device_ops cuda_ops = {
    .destroy = cuda_destroy,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .fill = cuda_fill,
    .staging_open = cuda_staging_open,
    .staging_close = cuda_staging_close,
    .staging_copy = cuda_staging_copy,
    .staging_wait = cuda_staging_wait,
    .open_peer = cuda_open_peer,
    .alloc_shared = cuda_alloc_shared,
    .share = cuda_share,
    .open_shared = cuda_open_shared,
    .close_shared = cuda_close_shared,
    .load = cuda_load,
    .unload = cuda_unload,
    .launch = cuda_launch,
    .fork = cuda_fork,
    .join = cuda_join,
    .synchronize = cuda_synchronize,
    .open_collectives = cuda_open_collectives,
    .collective = cuda_collective,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .replay = cuda_replay,
    .graph_nodes = cuda_graph_nodes,
    .graph_destroy = cuda_graph_destroy,
    .time = cuda_time,
    .allocations = cuda_allocations,
    .synchronizations = cuda_synchronizations,
};

static void name_arch(lathe_device_info *info, int major, int minor) {
    const lathe_gpu *gpu = lathe_gpu_find_capability(major, minor);
    if (gpu)
        snprintf(info->arch, sizeof info->arch, "%s", gpu->name);
    else
        snprintf(info->arch, sizeof info->arch, "sm_%d%d", major % 1000, minor % 100);
}

static lathe_status read_info(cuda_device *d) {
    lathe_device_info *info = &d->base.info;
    char name[96] = "";
    int major = 0, minor = 0, processors = 0;
    size_t bytes_free = 0, total = 0;
    const lathe_driver *c = &d->driver;
    lathe_status status =
        cuda_check(d, "cuDeviceGetName", c->device_name(name, sizeof name, d->device));
    if (status == LATHE_OK)
        status = cuda_check(d, "cuDeviceGetAttribute",
                            c->device_attribute(&major, CU_ATTRIBUTE_MAJOR, d->device));
    if (status == LATHE_OK)
        status = cuda_check(d, "cuDeviceGetAttribute",
                            c->device_attribute(&minor, CU_ATTRIBUTE_MINOR, d->device));
    if (status == LATHE_OK)
        status =
            cuda_check(d, "cuDeviceGetAttribute",
                       c->device_attribute(&processors, CU_ATTRIBUTE_MULTIPROCESSORS, d->device));
    if (status == LATHE_OK)
        status = cuda_check(d, "cuMemGetInfo", c->memory_info(&bytes_free, &total));
    name_arch(info, major, minor);
    info->name = "cuda";
    info->multiprocessors = (uint32_t)processors;
    info->memory_free = bytes_free;
    info->cuda_major = c->version / 1000;
    snprintf(info->description, sizeof info->description, "%s, driver of CUDA %d.%d", name,
             c->version / 1000, c->version % 1000 / 10);
    return status;
}

static lathe_status create_streams(cuda_device *d) {
    const lathe_driver *c = &d->driver;
    lathe_status status = LATHE_OK;
    for (int s = 0; s < LATHE_STREAMS && status == LATHE_OK; ++s) {
        status =
            cuda_check(d, "cuStreamCreate", c->stream_create(&d->streams[s], CU_STREAM_OWN_ORDER));
        if (status == LATHE_OK)
            status = cuda_check(d, "cuEventCreate",
                                c->event_create(&d->forks[s], CU_EVENT_WITHOUT_TIME));
        if (status == LATHE_OK)
            status = cuda_check(d, "cuEventCreate",
                                c->event_create(&d->joins[s], CU_EVENT_WITHOUT_TIME));
    }
    return status;
}

static lathe_status open_context(cuda_device *d, int ordinal) {
    const lathe_driver *c = &d->driver;
    int count = 0;
    lathe_status status = cuda_check(d, "cuDeviceGetCount", c->device_count(&count));
    if (status != LATHE_OK)
        return status;
    if (ordinal < 0 || ordinal >= count)
        return cuda_refuse(d, LATHE_NO_DEVICE, "CUDA device: found number %d, allowed: 0 to %d",
                           ordinal, count - 1);
    d->base.info.gpu = ordinal;
    status = cuda_check(d, "cuDeviceGet", c->device_get(&d->device, ordinal));
    if (status == LATHE_OK)
        status =
            cuda_check(d, "cuDevicePrimaryCtxRetain", c->context_retain(&d->context, d->device));
    if (status == LATHE_OK)
        status = cuda_enter(d);
    if (status == LATHE_OK)
        status = create_streams(d);
    return status == LATHE_OK ? read_info(d) : status;
}

lathe_status lathe_device_cuda_create(int ordinal, lathe_device **device, char *message,
                                      size_t size) {
    const lathe_message_buffer out = {message, size};
    *device = NULL;
    cuda_device *d = calloc(1, sizeof *d);
    if (!d)
        return lathe_fail(out, LATHE_NO_MEMORY, "no memory for a device");
    d->base.ops = &cuda_ops;
    lathe_status status = lathe_driver_open(&d->driver, out);
    if (status != LATHE_OK) {
        free(d);
        return status;
    }
    status = open_context(d, ordinal);
    if (status == LATHE_OK) {
        *device = &d->base;
        return LATHE_OK;
    }
    lathe_fail(out, status, "%s", d->base.message);
    cuda_destroy(&d->base);
    return status;
}

void lathe_device_cuda_use(lathe_device *base, void *stream) {
    cuda_device *d = (cuda_device *)base;
    d->driver.stream_destroy(d->streams[0]);
    d->streams[0] = stream;
    d->foreign = true;
}

int lathe_device_cuda_count(void) {
    lathe_driver driver;
    char text[256];
    int count = 0;
    if (lathe_driver_open(&driver, (lathe_message_buffer){text, sizeof text}) != LATHE_OK)
        return 0;
    if (driver.device_count(&count) != CU_OK)
        count = 0;
    lathe_driver_close(&driver);
    return count;
}
