/* SPDX-License-Identifier: Apache-2.0
 * The host device's memory that other processes map: a file without a name, found through the
 * process that made it. */
#include "host_device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct lathe_host_mapping {
    lathe_host_mapping *next;
    void *memory;
    size_t bytes;
};

/* What a handle holds. */
typedef struct {
    int64_t process;
    int64_t file;
    uint64_t bytes;
} name;

static lathe_host_device *host(lathe_device *d) {
    return (lathe_host_device *)d;
}

static void *map(int file, size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return p == MAP_FAILED ? NULL : p;
}

lathe_status lathe_host_alloc_shared(lathe_device *d, size_t bytes, void **memory) {
    *memory = NULL;
    if (bytes > SIZE_MAX / 2)
        return lathe_host_fail(d, LATHE_NO_MEMORY, "no memory for %zu bytes", bytes);
    lathe_host_allocation a = {NULL, bytes, bytes + lathe_host_fence_bytes() + 1, -1};
    a.file = memfd_create("lathe", MFD_CLOEXEC);
    if (a.file >= 0 && ftruncate(a.file, (off_t)a.mapped) == 0)
        a.memory = map(a.file, a.mapped);
    if (!a.memory) {
        const int error = errno;
        if (a.file >= 0)
            close(a.file);
        return lathe_host_fail(d, LATHE_NO_MEMORY, "no shared memory of %zu bytes: %s", bytes,
                               strerror(error));
    }
    const lathe_status status = lathe_host_keep(host(d), a);
    if (status == LATHE_OK)
        *memory = a.memory;
    else
        lathe_host_drop(&a);
    return status;
}

lathe_status lathe_host_share(lathe_device *d, void *memory, lathe_shared_handle *handle) {
    const lathe_host_allocation *a = lathe_host_find(host(d), memory);
    if (!a || a->memory != memory || !a->mapped)
        return lathe_host_fail(d, LATHE_INVALID, "memory that alloc_shared did not give");
    const name n = {getpid(), a->file, a->mapped};
    memset(handle, 0, sizeof *handle);
    memcpy(handle->bytes, &n, sizeof n);
    return LATHE_OK;
}

lathe_status lathe_host_open_shared(lathe_device *d, const lathe_shared_handle *handle,
                                    void **memory) {
    name n;
    char path[64];
    *memory = NULL;
    memcpy(&n, handle->bytes, sizeof n);
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)n.process, (long long)n.file);
    lathe_host_mapping *m = calloc(1, sizeof *m);
    if (!m)
        return lathe_host_fail(d, LATHE_NO_MEMORY, "no memory for a mapping");
    const int file = open(path, O_RDWR | O_CLOEXEC);
    m->memory = file >= 0 ? map(file, n.bytes) : NULL;
    const int error = errno;
    if (file >= 0)
        close(file);
    if (!m->memory) {
        free(m);
        return lathe_host_fail(d, LATHE_UNSUPPORTED, "memory of process %lld cannot be mapped: %s",
                               (long long)n.process, strerror(error));
    }
    m->bytes = n.bytes;
    m->next = host(d)->mappings;
    host(d)->mappings = m;
    *memory = m->memory;
    return LATHE_OK;
}

void *lathe_host_mapped(const lathe_host_mapping *mapping) {
    return mapping->memory;
}

void lathe_host_close_shared(lathe_device *d, void *memory) {
    for (lathe_host_mapping **at = &host(d)->mappings; *at; at = &(*at)->next) {
        lathe_host_mapping *m = *at;
        if (m->memory != memory)
            continue;
        *at = m->next;
        munmap(m->memory, m->bytes);
        free(m);
        return;
    }
}
