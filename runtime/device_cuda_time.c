/* SPDX-License-Identifier: Apache-2.0
 * Owns: the time of replays on a GPU, by an event after each. */
#include <stdlib.h>

#include "device_cuda.h"

static lathe_status mark(cuda_device *d, cu_event event) {
    return cuda_check(d, "cuEventRecord", d->driver.event_record(event, d->streams[0]));
}

static lathe_status read_times(cuda_device *d, const cu_event *events, int count, double *times) {
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i < count; ++i) {
        float milliseconds = 0;
        status = cuda_check(d, "cuEventElapsedTime",
                            d->driver.event_elapsed(&milliseconds, events[i], events[i + 1]));
        times[i] = 1e3 * (double)milliseconds;
    }
    return status;
}

static lathe_status time_events(cuda_device *d, lathe_graph *graph, cu_event *events, int count,
                                double *times) {
    lathe_status status = LATHE_OK;
    for (int i = 0; status == LATHE_OK && i <= count; ++i)
        status =
            cuda_check(d, "cuEventCreate", d->driver.event_create(&events[i], CU_EVENT_WITH_TIME));
    if (status == LATHE_OK)
        status = mark(d, events[0]);
    for (int i = 0; status == LATHE_OK && i < count; ++i) {
        status = cuda_replay(&d->base, graph);
        if (status == LATHE_OK)
            status = mark(d, events[i + 1]);
    }
    const lathe_status waited = d->base.ops->synchronize(&d->base);
    if (status == LATHE_OK)
        status = waited;
    return status == LATHE_OK ? read_times(d, events, count, times) : status;
}

lathe_status cuda_time(lathe_device *base, lathe_graph *graph, int count, double *microseconds) {
    cuda_device *d = (cuda_device *)base;
    lathe_status status = cuda_enter(d);
    if (status != LATHE_OK)
        return status;
    if (count < 1)
        return cuda_refuse(d, LATHE_INVALID, "found %d replays, allowed: 1 or more", count);
    cu_event *events = calloc((size_t)count + 1, sizeof *events);
    if (!events)
        return cuda_refuse(d, LATHE_NO_MEMORY, "no memory for %d events", count);
    status = time_events(d, graph, events, count, microseconds);
    for (int i = 0; i <= count; ++i)
        if (events[i])
            d->driver.event_destroy(events[i]);
    free(events);
    return status;
}
