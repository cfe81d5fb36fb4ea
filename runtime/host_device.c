/* SPDX-License-Identifier: Apache-2.0
 * The host device: memory, kernels from shared objects, and a rank's emulator. Implements device.h;
 * streams and graphs are in host_queue.c. */
#include "host_device.h"
#include "host_compile.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Beyond each allocation, where no sanitizer watches. */
#define FENCE_BYTES ((size_t)256)
#define FENCE_BYTE 0xa5

static lathe_host_device *host(lathe_device *d) {
    return (lathe_host_device *)d;
}

lathe_status lathe_host_fail(lathe_device *d, lathe_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(d->message, sizeof d->message, format, list);
    va_end(list);
    return status;
}

/* Index of the first allocation above p. */
static size_t above(const lathe_host_device *h, const void *p) {
    size_t low = 0, high = h->allocation_count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if ((const void *)h->allocations[middle].memory > p)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static lathe_host_allocation *find(lathe_host_device *h, const void *p) {
    const size_t next = above(h, p);
    if (next == 0)
        return NULL;
    lathe_host_allocation *a = &h->allocations[next - 1];
    return (uintptr_t)p - (uintptr_t)a->memory < (a->bytes ? a->bytes : 1) ? a : NULL;
}

static bool find_for_emulator(void *context, const void *p, void **base, size_t *bytes) {
    const lathe_host_allocation *a = find(context, p);
    if (!a)
        return false;
    *base = a->memory;
    *bytes = a->bytes;
    return true;
}

const lathe_host_allocation *lathe_host_find(lathe_host_device *h, const void *p) {
    return find(h, p);
}

size_t lathe_host_fence_bytes(void) {
    return lathe_host_sanitized() ? 0 : FENCE_BYTES; /* else the sanitizer's redzone lies there */
}

static bool fence_is_whole(const lathe_host_allocation *a) {
    for (size_t i = 0; i < lathe_host_fence_bytes(); i++)
        if (a->memory[a->bytes + i] != FENCE_BYTE)
            return false;
    return true;
}

static bool reserve(lathe_host_device *h) {
    if (h->allocation_count < h->allocation_room)
        return true;
    const size_t room = h->allocation_room ? 2 * h->allocation_room : 64;
    lathe_host_allocation *list = realloc(h->allocations, room * sizeof *list);
    if (!list)
        return false;
    h->allocations = list;
    h->allocation_room = room;
    return true;
}

lathe_status lathe_host_keep(lathe_host_device *h, lathe_host_allocation a) {
    if (!reserve(h))
        return lathe_host_fail(&h->base, LATHE_NO_MEMORY, "no memory for %zu bytes", a.bytes);
    memset(a.memory, 0xff, a.bytes); /* NaN in every floating type */
    memset(a.memory + a.bytes, FENCE_BYTE, lathe_host_fence_bytes());
    const size_t at = above(h, a.memory);
    memmove(&h->allocations[at + 1], &h->allocations[at],
            (h->allocation_count - at) * sizeof *h->allocations);
    h->allocations[at] = a;
    h->allocation_count++;
    h->allocations_made++;
    return LATHE_OK;
}

void lathe_host_drop(const lathe_host_allocation *a) {
    if (!a->mapped) {
        free(a->memory);
        return;
    }
    munmap(a->memory, a->mapped);
    close(a->file);
}

static lathe_status host_alloc(lathe_device *d, size_t bytes, void **memory) {
    *memory = NULL;
    void *p = NULL;
    if (bytes > SIZE_MAX / 2 ||
        posix_memalign(&p, 256, bytes + lathe_host_fence_bytes() + (bytes == 0)) != 0)
        return lathe_host_fail(d, LATHE_NO_MEMORY, "no memory for %zu bytes", bytes);
    const lathe_status status = lathe_host_keep(host(d), (lathe_host_allocation){p, bytes, 0, -1});
    if (status == LATHE_OK)
        *memory = p;
    else
        free(p);
    return status;
}

static lathe_status check_fences(lathe_host_device *h) {
    for (size_t i = 0; i < h->allocation_count; i++)
        if (!fence_is_whole(&h->allocations[i]))
            return lathe_host_fail(&h->base, LATHE_DEVICE_FAULT,
                                   "a kernel wrote beyond an allocation of %zu bytes",
                                   h->allocations[i].bytes);
    return LATHE_OK;
}

lathe_status lathe_host_settle(lathe_host_device *h) {
    if (h->queue.count == 0)
        return LATHE_OK;
    const lathe_status status = lathe_host_drain(h);
    return status == LATHE_OK ? check_fences(h) : status;
}

/* What is being taken down waits for no other rank: nobody will read what it computed. */
static void settle_or_drop(lathe_host_device *h) {
    if (lathe_host_queue_meets(&h->queue))
        lathe_host_queue_free(&h->queue);
    else
        (void)lathe_host_settle(h);
}

static void host_release(lathe_device *d, void *memory) {
    lathe_host_device *h = host(d);
    lathe_host_allocation *a = memory ? find(h, memory) : NULL;
    if (!a || a->memory != memory)
        return;
    settle_or_drop(h); /* a launch that waits may use it */
    const size_t at = (size_t)(a - h->allocations);
    lathe_host_drop(a);
    h->allocation_count--;
    memmove(a, a + 1, (h->allocation_count - at) * sizeof *a);
}

/* Device memory is the only kind these touch; an address of no allocation may be another rank's. */
static lathe_status check_range(lathe_host_device *h, const void *p, size_t bytes) {
    const lathe_host_allocation *a = find(h, p);
    if (a && (uintptr_t)p - (uintptr_t)a->memory + bytes > a->bytes)
        return lathe_host_fail(&h->base, LATHE_INVALID,
                               "%zu bytes at byte %zu of an allocation of %zu", bytes,
                               (size_t)((uintptr_t)p - (uintptr_t)a->memory), a->bytes);
    return LATHE_OK;
}

static lathe_status before_copy(lathe_device *d, const void *p, size_t bytes) {
    if (host(d)->recording)
        return lathe_host_fail(d, LATHE_INVALID, "a synchronous copy while recording");
    const lathe_status status = check_range(host(d), p, bytes);
    return status == LATHE_OK ? lathe_host_settle(host(d)) : status;
}

static lathe_status host_copy_in(lathe_device *d, void *to, const void *from, size_t bytes) {
    const lathe_status status = before_copy(d, to, bytes);
    if (status == LATHE_OK && bytes)
        memcpy(to, from, bytes);
    return status;
}
static lathe_status host_copy_out(lathe_device *d, void *to, const void *from, size_t bytes) {
    const lathe_status status = before_copy(d, from, bytes);
    if (status == LATHE_OK && bytes)
        memcpy(to, from, bytes);
    return status;
}
static lathe_status host_fill(lathe_device *d, void *to, uint8_t byte, size_t bytes) {
    const lathe_status status = before_copy(d, to, bytes);
    if (status == LATHE_OK && bytes)
        memset(to, byte, bytes);
    return status;
}

static lathe_status host_staging_open(lathe_device *d, int slots, size_t bytes, void **memory) {
    *memory = host(d)->staging = malloc((size_t)slots * bytes);
    return *memory ? LATHE_OK : lathe_host_fail(d, LATHE_NO_MEMORY, "no memory to stage copies");
}
static void host_staging_close(lathe_device *d) {
    free(host(d)->staging);
    host(d)->staging = NULL;
}
static lathe_status host_staging_copy(lathe_device *d, int slot, void *to, const void *from,
                                      size_t bytes) {
    (void)slot;
    return host_copy_in(d, to, from, bytes);
}
static lathe_status host_staging_wait(lathe_device *d, int slot) {
    (void)d, (void)slot;
    return LATHE_OK;
}

static void kernel_free(lathe_kernel *k) {
    if (k->object)
        dlclose(k->object);
    free(k->name);
    free(k);
}

/* A path without a slash would be looked for in the system's folders. */
static void *open_object(const char *path) {
    char local[4096];
    if (!strchr(path, '/')) {
        snprintf(local, sizeof local, "./%s", path);
        path = local;
    }
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static lathe_status bind_kernel(lathe_device *d, const char *path, const char *entry,
                                lathe_kernel *k) {
    k->object = open_object(path);
    if (!k->object)
        return lathe_host_fail(d, LATHE_IO, "%s", dlerror());
    unsigned int (*bind)(const lathe_emulator_table *);
    *(void **)&bind = dlsym(k->object, "lathe_emulator_bind");
    *(void **)&k->entry = dlsym(k->object, entry);
    if (!bind || !k->entry)
        return lathe_host_fail(d, LATHE_INVALID, "%s: no symbol %s", path,
                               bind ? entry : "lathe_emulator_bind");
    const unsigned int version = bind(lathe_emulator_interface());
    if (version != LATHE_EMULATOR_VERSION)
        return lathe_host_fail(d, LATHE_INVALID,
                               "%s was compiled against prims of version %u, this program has %u",
                               path, version, LATHE_EMULATOR_VERSION);
    return LATHE_OK;
}

static lathe_status host_load(lathe_device *d, const char *path, const char *entry,
                              uint32_t shared_bytes, lathe_kernel **kernel) {
    *kernel = NULL;
    lathe_kernel *k = calloc(1, sizeof *k);
    if (k)
        k->name = strdup(entry);
    if (!k || !k->name) {
        free(k);
        return lathe_host_fail(d, LATHE_NO_MEMORY, "no memory for kernel %s", entry);
    }
    k->shared_bytes = shared_bytes;
    const lathe_status status = bind_kernel(d, path, entry, k);
    if (status != LATHE_OK)
        kernel_free(k);
    else
        *kernel = k;
    return status;
}

static void host_unload(lathe_device *d, lathe_kernel *kernel) {
    if (!kernel)
        return;
    settle_or_drop(host(d)); /* a launch of it may wait */
    kernel_free(kernel);
}

static lathe_status host_synchronize(lathe_device *d) {
    if (host(d)->recording)
        return lathe_host_fail(d, LATHE_INVALID, "synchronisation while recording");
    host(d)->synchronizations_made++;
    const lathe_status status = lathe_host_settle(host(d));
    return status == LATHE_OK && host(d)->lost[0]
               ? lathe_host_fail(d, host(d)->lost_status, "%s", host(d)->lost)
               : status;
}

static uint64_t host_allocations(const lathe_device *d) {
    return ((const lathe_host_device *)d)->allocations_made;
}
static uint64_t host_synchronizations(const lathe_device *d) {
    return ((const lathe_host_device *)d)->synchronizations_made;
}

static void host_destroy(lathe_device *d) {
    lathe_host_device *h = host(d);
    if (!h)
        return;
    lathe_host_queue_free(&h->queue);
    lathe_host_queue_free(&h->recorded);
    while (h->mappings)
        lathe_host_close_shared(d, lathe_host_mapped(h->mappings));
    for (size_t i = 0; i < h->allocation_count; i++)
        lathe_host_drop(&h->allocations[i]);
    free(h->allocations);
    free(h->grids);
    lathe_emulator_destroy(h->emulator);
    free(h);
}

/* Memory of the process is everyone's. */
static lathe_status host_open_peer(lathe_device *base, const lathe_device *peer) {
    (void)base;
    (void)peer;
    return LATHE_OK;
}

static lathe_status refuse_time(lathe_device *d, lathe_graph *graph, int count,
                                double *microseconds) {
    (void)graph, (void)count, (void)microseconds;
    return lathe_host_fail(d, LATHE_UNSUPPORTED,
                           "the host device emulates a GPU: its time says nothing");
}

static const lathe_device_ops ops = {
    .destroy = host_destroy,
    .alloc = host_alloc,
    .release = host_release,
    .copy_in = host_copy_in,
    .copy_out = host_copy_out,
    .fill = host_fill,
    .staging_open = host_staging_open,
    .staging_close = host_staging_close,
    .staging_copy = host_staging_copy,
    .staging_wait = host_staging_wait,
    .open_peer = host_open_peer,
    .alloc_shared = lathe_host_alloc_shared,
    .share = lathe_host_share,
    .open_shared = lathe_host_open_shared,
    .close_shared = lathe_host_close_shared,
    .load = host_load,
    .unload = host_unload,
    .launch = lathe_host_launch_enqueue,
    .fork = lathe_host_fork,
    .join = lathe_host_join,
    .synchronize = host_synchronize,
    .open_collectives = lathe_host_open_collectives,
    .collective = lathe_host_collective_enqueue,
    .record_begin = lathe_host_record_begin,
    .record_end = lathe_host_record_end,
    .replay = lathe_host_replay,
    .graph_nodes = lathe_host_graph_nodes,
    .graph_destroy = lathe_host_graph_destroy,
    .time = refuse_time,
    .allocations = host_allocations,
    .synchronizations = host_synchronizations,
};

void lathe_device_host_delay(lathe_device *d, uint64_t ns) {
    if (d->ops == &ops)
        lathe_emulator_delay(host(d)->emulator, ns);
}

/* What the machine can give without swapping; UINT64_MAX where it does not say. */
static uint64_t available_memory(void) {
    char text[128];
    unsigned long long kib = UINT64_MAX / 1024;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(text, sizeof text, f) && sscanf(text, "MemAvailable: %llu", &kib) != 1) {
    }
    if (f)
        fclose(f);
    return kib == UINT64_MAX / 1024 ? UINT64_MAX : (uint64_t)kib * 1024;
}

lathe_status lathe_device_host_create(int rank, uint64_t seed, lathe_device **device, char *message,
                                      size_t size) {
    *device = NULL;
    lathe_host_device *h = calloc(1, sizeof *h);
    if (h) /* ranks differ in their schedules */
        h->emulator = lathe_emulator_create(seed * 1024 + (uint64_t)rank);
    if (!h || !h->emulator) {
        free(h);
        snprintf(message, size, "no memory for the host device");
        return LATHE_NO_MEMORY;
    }
    lathe_emulator_set_find(h->emulator, find_for_emulator, h);
    h->base.ops = &ops;
    h->base.info.name = "host";
    snprintf(h->base.info.arch, sizeof h->base.info.arch, "host");
    h->base.info.gpu = -1;
    h->base.info.multiprocessors = 2;
    h->base.info.memory_free = available_memory();
    snprintf(h->base.info.description, sizeof h->base.info.description,
             "emulator on the CPU, rank %d, seed %llu", rank, (unsigned long long)seed);
    *device = &h->base;
    return LATHE_OK;
}
