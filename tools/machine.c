/* SPDX-License-Identifier: Apache-2.0
 * NVML by dlopen; the only file that names it. */
#include "machine.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"
enum { CLOCK_MULTIPROCESSORS = 1, CLOCK_MEMORY = 2 };

typedef struct nvml_device_handle *nvml_device;

/* X(member, symbol, parameters) */
#define NVML_CALLS(X)                                                                              \
    X(init, nvmlInit_v2, (void))                                                                   \
    X(stop, nvmlShutdown, (void))                                                                  \
    X(driver, nvmlSystemGetDriverVersion, (char *text, unsigned int size))                         \
    X(device, nvmlDeviceGetHandleByIndex_v2, (unsigned int index, nvml_device *device))            \
    X(clock, nvmlDeviceGetClockInfo, (nvml_device device, int clock, unsigned int *mhz))           \
    X(most, nvmlDeviceGetMaxClockInfo, (nvml_device device, int clock, unsigned int *mhz))         \
    X(power, nvmlDeviceGetPowerUsage, (nvml_device device, unsigned int *milliwatts))

typedef struct {
#define MEMBER(member, symbol, parameters) int(*member) parameters;
    NVML_CALLS(MEMBER)
#undef MEMBER
} nvml;

static int find(void *library, const char *symbol, void *call, size_t bytes) {
    void *address = dlsym(library, symbol);
    memcpy(call, &address, bytes);
    return address != NULL;
}

static int find_all(void *library, nvml *n) {
    int ok = 1;
#define FIND(member, symbol, parameters)                                                           \
    ok = ok && find(library, #symbol, &n->member, sizeof n->member);
    NVML_CALLS(FIND)
#undef FIND
    return ok;
}

static void read_all(const nvml *n, int ordinal, lathe_machine *m) {
    nvml_device d;
    unsigned int milliwatts = 0;
    if (n->driver(m->driver, sizeof m->driver) != 0)
        m->driver[0] = 0;
    if (n->device((unsigned int)ordinal, &d) != 0)
        return;
    if (n->clock(d, CLOCK_MULTIPROCESSORS, &m->clock_mhz) != 0)
        m->clock_mhz = 0;
    if (n->most(d, CLOCK_MULTIPROCESSORS, &m->clock_most_mhz) != 0)
        m->clock_most_mhz = 0;
    if (n->clock(d, CLOCK_MEMORY, &m->memory_mhz) != 0)
        m->memory_mhz = 0;
    if (n->power(d, &milliwatts) == 0)
        m->watts = milliwatts / 1000;
}

void lathe_machine_read(int ordinal, lathe_machine *m) {
    nvml n;
    *m = (lathe_machine){.driver = ""};
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    if (find_all(library, &n) && n.init() == 0) {
        read_all(&n, ordinal, m);
        n.stop();
    }
    dlclose(library);
}
