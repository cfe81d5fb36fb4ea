/* SPDX-License-Identifier: Apache-2.0
 * The libraries that are loaded when they are needed, and the compiler of the host device. */
#include "doctor.h"

#include <string.h>

#include "driver.h"
#include "host_compile.h"
#include "library.h"
#include "nccl.h"
#include "nvrtc.h"

/* The oldest NVRTC that knows all architectures Lathe generates for. */
enum { ALL_MAJOR = 12, ALL_MINOR = 9 };

/* A library that is there but too old, or another one, is broken; one that is not is absent. */
static lathe_verdict verdict_of(const char *reason) {
    return strstr(reason, "too old") || strstr(reason, " is no ") ? LATHE_DOCTOR_BROKEN
                                                                  : LATHE_DOCTOR_ABSENT;
}

void lathe_doctor_nvrtc(lathe_doctor *d, const char *where) {
    char text[1024] = "", path[4096];
    lathe_nvrtc *nvrtc;
    if (lathe_nvrtc_create(where, &nvrtc, (lathe_message_buffer){text, sizeof text}) != LATHE_OK) {
        lathe_doctor_say(d, verdict_of(text), "NVRTC",
                         "install the CUDA toolkit, or `pip install nvidia-cuda-nvrtc` and set "
                         "LATHE_NVRTC to its folder; without it only cubins already in the cache "
                         "serve",
                         "%s", text);
        return;
    }
    const int major = lathe_nvrtc_major(nvrtc), minor = lathe_nvrtc_minor(nvrtc);
    const bool all = major > ALL_MAJOR || (major == ALL_MAJOR && minor >= ALL_MINOR);
    d->compiles = true;
    d->nvrtc_major = major;
    lathe_doctor_say(d, LATHE_DOCTOR_OK, "NVRTC",
                     all ? NULL : "12.9 is the first that compiles for every architecture",
                     "%d.%d, %s", major, minor, lathe_nvrtc_path(nvrtc, path, sizeof path));
    lathe_nvrtc_destroy(nvrtc);
}

/* Cubins of one major version need a driver that knows it. */
static void compare_versions(lathe_doctor *d, int driver_version) {
    if (!d->nvrtc_major)
        return;
    if (driver_version / 1000 >= d->nvrtc_major)
        lathe_doctor_say(d, LATHE_DOCTOR_OK, "cubins", NULL,
                         "those of NVRTC %d run on a driver that knows CUDA %d.%d", d->nvrtc_major,
                         driver_version / 1000, driver_version % 1000 / 10);
    else
        lathe_doctor_say(d, LATHE_DOCTOR_BROKEN, "cubins",
                         "install a newer driver (580 for CUDA 13), or name an NVRTC of the "
                         "driver's CUDA by LATHE_NVRTC",
                         "those of NVRTC %d do not run on a driver that knows CUDA %d.%d",
                         d->nvrtc_major, driver_version / 1000, driver_version % 1000 / 10);
}

void lathe_doctor_driver(lathe_doctor *d) {
    char text[1024] = "", path[4096];
    lathe_driver driver;
    if (lathe_driver_open(&driver, (lathe_message_buffer){text, sizeof text}) != LATHE_OK) {
        lathe_doctor_say(d, verdict_of(text), "driver",
                         "install NVIDIA's driver, 580 or newer; without it steps run on the host "
                         "device only",
                         "%s", text);
        return;
    }
    lathe_doctor_say(d, LATHE_DOCTOR_OK, "driver", NULL, "knows CUDA %d.%d, %s",
                     driver.version / 1000, driver.version % 1000 / 10,
                     lathe_library_path((lathe_symbol)driver.init, path, sizeof path));
    compare_versions(d, driver.version);
    lathe_driver_close(&driver);
}

void lathe_doctor_nccl(lathe_doctor *d) {
    char text[1024] = "", path[4096];
    lathe_nccl nccl;
    if (lathe_nccl_open(NULL, &nccl, (lathe_message_buffer){text, sizeof text}) != LATHE_OK) {
        lathe_doctor_say(d, verdict_of(text), "NCCL",
                         "install libnccl2, or set LATHE_NCCL to its folder; needed by ranks in "
                         "several processes and by deployments that exchange through NCCL",
                         "%s", text);
        return;
    }
    lathe_doctor_say(d, LATHE_DOCTOR_OK, "NCCL", NULL, "%d.%d.%d, %s", nccl.version / 10000,
                     nccl.version % 10000 / 100, nccl.version % 100,
                     lathe_library_path((lathe_symbol)nccl.get_version, path, sizeof path));
    lathe_nccl_close(&nccl);
}

void lathe_doctor_host(lathe_doctor *d) {
    char text[1024] = "";
    if (lathe_host_compiler_version(text, sizeof text) != LATHE_OK) {
        lathe_doctor_say(d, LATHE_DOCTOR_ABSENT, "host compiler",
                         "install g++, or set CXX; the host device compiles its kernels with it",
                         "%s", text);
        return;
    }
    d->host = true;
    lathe_doctor_say(d, LATHE_DOCTOR_OK, "host compiler", NULL, "%s", text);
}
