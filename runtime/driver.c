/* SPDX-License-Identifier: Apache-2.0
 * Owns: finding the driver's library and its entry points. */
#include "driver.h"

#include <dlfcn.h>
#include <string.h>

#include "library.h"

#define LIBRARY "libcuda.so.1"
#define OLDEST 12030 /* the first that tells the edges of a capture */

static const lathe_library_call calls[] = {
#define LATHE_DRIVER_ENTRY(member, symbol, parameters) {#symbol, offsetof(lathe_driver, member)},
    LATHE_DRIVER_CALLS(LATHE_DRIVER_ENTRY)
#undef LATHE_DRIVER_ENTRY
};

static lathe_status too_old(const lathe_driver *d, const char *why, lathe_message_buffer message) {
    return lathe_fail(
        message, LATHE_NO_DEVICE,
        "the CUDA driver is too old: it knows CUDA %d.%d%s%s, allowed: 580 (CUDA 13.0) "
        "or newer for cubins of CUDA 13, 545 (CUDA 12.3) at least",
        d->version / 1000, d->version % 1000 / 10, why ? " and lacks " : "", why ? why : "");
}

/* The version first: what an old driver lacks is better said by its number. */
static lathe_status check_version(lathe_driver *d, lathe_message_buffer message) {
    cu_result (*version)(int *) = NULL;
    void *address = dlsym(d->library, "cuDriverGetVersion");
    memcpy(&version, &address, sizeof version);
    if (!version || version(&d->version) != CU_OK)
        return lathe_fail(message, LATHE_NO_DEVICE, LIBRARY " does not tell its version");
    if (d->version < OLDEST)
        return too_old(d, NULL, message);
    const char *missing =
        lathe_library_resolve(d->library, calls, sizeof calls / sizeof calls[0], d);
    return missing ? too_old(d, missing, message) : LATHE_OK;
}

lathe_status lathe_driver_open(lathe_driver *d, lathe_message_buffer message) {
    *d = (lathe_driver){0};
    d->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!d->library)
        return lathe_fail(message, LATHE_NO_DEVICE, "there is no CUDA driver: %s", dlerror());
    lathe_status status = check_version(d, message);
    if (status == LATHE_OK) {
        const cu_result result = d->init(0);
        if (result != CU_OK)
            status = lathe_driver_fail(d, "cuInit", result, message);
        if (status == LATHE_DEVICE_FAULT)
            status = LATHE_NO_DEVICE;
    }
    if (status != LATHE_OK)
        lathe_driver_close(d);
    return status;
}

void lathe_driver_close(lathe_driver *d) {
    if (d->library)
        dlclose(d->library);
    *d = (lathe_driver){0};
}

lathe_status lathe_driver_fail(const lathe_driver *d, const char *call, cu_result result,
                               lathe_message_buffer message) {
    const char *name = NULL, *text = NULL;
    if (d->error_name(result, &name) != CU_OK || !name)
        name = "an unknown error";
    if (d->error_string(result, &text) != CU_OK || !text)
        text = "no description";
    return lathe_fail(message, result == CU_OUT_OF_MEMORY ? LATHE_NO_MEMORY : LATHE_DEVICE_FAULT,
                      "%s: %s (%d, %s)", call, name, result, text);
}
