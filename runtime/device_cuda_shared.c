/* SPDX-License-Identifier: Apache-2.0
 * Owns: CUDA memory that other processes map, by CUDA IPC. The driver maps whole allocations, and
 * cuts small ones out of larger ones: shared memory is therefore as large as the driver's own
 * granularity, and a handle says where in its mapping the memory begins. */
#include <string.h>

#include "device_cuda.h"

#define GRANULARITY ((size_t)2 << 20)

/* What a handle holds. */
typedef struct {
    cu_shared_handle handle;
    uint64_t offset;
} name;

_Static_assert(sizeof(name) <= sizeof(lathe_shared_handle), "a handle has no room");

lathe_status cuda_alloc_shared(lathe_device *base, size_t bytes, void **memory) {
    *memory = NULL;
    if (bytes > SIZE_MAX - GRANULARITY)
        return cuda_refuse((cuda_device *)base, LATHE_NO_MEMORY, "no memory for %zu bytes", bytes);
    const size_t whole = (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    return base->ops->alloc(base, whole ? whole : GRANULARITY, memory);
}

lathe_status cuda_share(lathe_device *base, void *memory, lathe_shared_handle *handle) {
    cuda_device *d = (cuda_device *)base;
    const cu_address address = (cu_address)(uintptr_t)memory;
    cu_address start = 0;
    size_t bytes = 0;
    name n = {0};
    lathe_status status = cuda_enter(d);
    if (status == LATHE_OK)
        status =
            cuda_check(d, "cuMemGetAddressRange", d->driver.memory_range(&start, &bytes, address));
    if (status == LATHE_OK)
        status = cuda_check(d, "cuIpcGetMemHandle", d->driver.share(&n.handle, address));
    n.offset = address - start;
    memset(handle, 0, sizeof *handle);
    memcpy(handle->bytes, &n, sizeof n);
    return status;
}

lathe_status cuda_open_shared(lathe_device *base, const lathe_shared_handle *handle,
                              void **memory) {
    cuda_device *d = (cuda_device *)base;
    cu_address start = 0;
    name n;
    *memory = NULL;
    memcpy(&n, handle->bytes, sizeof n);
    lathe_status status = cuda_enter(d);
    if (status == LATHE_OK)
        status = cuda_check(d, "cuIpcOpenMemHandle",
                            d->driver.shared_open(&start, n.handle, CU_SHARED_OPENS_PEER));
    if (status == LATHE_OK)
        *memory = (void *)(uintptr_t)(start + n.offset);
    return status;
}

/* The driver wants the address that it gave. */
void cuda_close_shared(lathe_device *base, void *memory) {
    cuda_device *d = (cuda_device *)base;
    cu_address start = 0;
    size_t bytes = 0;
    if (!memory || cuda_enter(d) != LATHE_OK)
        return;
    if (d->driver.memory_range(&start, &bytes, (cu_address)(uintptr_t)memory) != CU_OK)
        start = (cu_address)(uintptr_t)memory;
    (void)d->driver.shared_close(start);
}
