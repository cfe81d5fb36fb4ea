/* SPDX-License-Identifier: Apache-2.0
 * Owns: pinned memory of the host, out of which copies go while the host goes on. */
#include <stdlib.h>

#include "device_cuda.h"

lathe_status cuda_staging_open(lathe_device *base, int slots, size_t bytes, void **memory) {
    cuda_device *d = (cuda_device *)base;
    *memory = NULL;
    lathe_status status = cuda_enter(d);
    if (status != LATHE_OK)
        return status;
    d->staged = calloc((size_t)slots, sizeof *d->staged);
    if (!d->staged)
        return cuda_refuse(d, LATHE_NO_MEMORY, "no memory for events");
    status = cuda_check(d, "cuMemHostAlloc",
                        d->driver.host_alloc(&d->staging, (size_t)slots * bytes, 0));
    while (status == LATHE_OK && d->staged_count < slots) {
        status =
            cuda_check(d, "cuEventCreate",
                       d->driver.event_create(&d->staged[d->staged_count], CU_EVENT_WITHOUT_TIME));
        d->staged_count += status == LATHE_OK;
    }
    *memory = status == LATHE_OK ? d->staging : NULL;
    return status;
}

void cuda_staging_close(lathe_device *base) {
    cuda_device *d = (cuda_device *)base;
    if (d->staged && cuda_enter(d) == LATHE_OK) {
        d->driver.stream_synchronize(d->streams[0]); /* after a failure copies may be under way */
        for (int i = 0; i < d->staged_count; ++i)
            d->driver.event_destroy(d->staged[i]);
        if (d->staging)
            d->driver.host_free(d->staging);
    }
    free(d->staged);
    d->staged = NULL;
    d->staging = NULL;
    d->staged_count = 0;
}

lathe_status cuda_staging_copy(lathe_device *base, int slot, void *to, const void *from,
                               size_t bytes) {
    cuda_device *d = (cuda_device *)base;
    lathe_status status = cuda_enter(d);
    if (status == LATHE_OK)
        status =
            cuda_check(d, "cuMemcpyHtoDAsync",
                       d->driver.copy_in((cu_address)(uintptr_t)to, from, bytes, d->streams[0]));
    if (status == LATHE_OK)
        status =
            cuda_check(d, "cuEventRecord", d->driver.event_record(d->staged[slot], d->streams[0]));
    return status;
}

lathe_status cuda_staging_wait(lathe_device *base, int slot) {
    cuda_device *d = (cuda_device *)base;
    const lathe_status status = cuda_enter(d);
    return status == LATHE_OK
               ? cuda_check(d, "cuEventSynchronize", d->driver.event_synchronize(d->staged[slot]))
               : status;
}
