/* SPDX-License-Identifier: Apache-2.0
 * The GPUs: memory, whether a cubin of this NVRTC loads, and peer access proved by data. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "files.h"
#include "nvrtc.h"

#define MOST 16
#define PROBE "doctor.cu"
#define ENTRY "lathe_doctor"

/* Nothing but what a compiler and a driver have to agree on. */
static const char probe_text[] = "extern \"C\" __global__ void " ENTRY "() {}\n";

static lathe_status compile_probe(const char *where, const char *arch, lathe_nvrtc_result *result,
                                  lathe_message_buffer message) {
    const lathe_source source = {PROBE, probe_text, sizeof probe_text - 1, 0, NULL};
    lathe_nvrtc_options options;
    lathe_nvrtc *nvrtc;
    lathe_status status = lathe_nvrtc_create(where, &nvrtc, message);
    if (status == LATHE_OK)
        status = lathe_nvrtc_check_arch(nvrtc, arch, message);
    if (status == LATHE_OK) {
        lathe_nvrtc_options_get(lathe_nvrtc_major(nvrtc), lathe_nvrtc_minor(nvrtc), arch, &options);
        status = lathe_nvrtc_compile(nvrtc, &source, &options, result, message);
    }
    lathe_nvrtc_destroy(nvrtc);
    return status;
}

static lathe_status run_probe(lathe_device *g, const char *path, lathe_message_buffer message) {
    const lathe_geometry one = {.grid = {1, 1, 1}, .block = 32};
    lathe_kernel *kernel = NULL;
    lathe_status status = g->ops->load(g, path, ENTRY, 0, &kernel);
    if (status == LATHE_OK)
        status = g->ops->launch(g, 0, kernel, &one, NULL, 0);
    if (status == LATHE_OK)
        status = g->ops->synchronize(g);
    if (kernel)
        g->ops->unload(g, kernel);
    return status == LATHE_OK ? status : lathe_fail(message, status, "%s", g->message);
}

/* Compiles, writes, loads and runs one empty kernel. */
static lathe_status prove_cubin(lathe_device *g, const char *where, lathe_message_buffer message) {
    char folder[256], path[512] = "";
    lathe_nvrtc_result result = {0};
    lathe_status status = compile_probe(where, g->info.arch, &result, message);
    if (status != LATHE_OK)
        return status;
    const char *base = getenv("TMPDIR");
    if (lathe_folder_make_private(base && base[0] ? base : "/tmp", folder, sizeof folder) != 0) {
        free(result.cubin);
        free(result.log);
        return lathe_fail(message, LATHE_IO, "no temporary folder can be made");
    }
    if (!lathe_path_join(path, sizeof path, folder, "doctor.cubin") ||
        lathe_file_write(path, result.cubin, result.bytes) != 0)
        status = lathe_fail(message, LATHE_IO, "%s cannot be written", path);
    if (status == LATHE_OK)
        status = run_probe(g, path, message);
    lathe_folder_remove(folder);
    free(result.cubin);
    free(result.log);
    return status;
}

static void say_gpu(lathe_doctor *d, lathe_device *g, int number, const char *nvrtc) {
    char subject[32], text[2048] = "";
    snprintf(subject, sizeof subject, "GPU %d", number);
    lathe_doctor_say(d, LATHE_DOCTOR_OK, subject, NULL, "%s, %s, %u multiprocessors, %.1f GiB free",
                     g->info.description, g->info.arch, g->info.multiprocessors,
                     (double)g->info.memory_free / (1 << 30));
    if (!d->compiles)
        return;
    if (prove_cubin(g, nvrtc, (lathe_message_buffer){text, sizeof text}) == LATHE_OK) {
        d->gpus++;
        lathe_doctor_say(d, LATHE_DOCTOR_OK, subject, NULL, "a cubin of this NVRTC runs on it");
    } else {
        lathe_doctor_say(d, LATHE_DOCTOR_BROKEN, subject,
                         "name an NVRTC that fits the driver by LATHE_NVRTC, or free the GPU",
                         "a cubin of this NVRTC does not run on it: %s", text);
    }
}

/* `from` writes a word into `memory` of `to`, which reads it. */
static lathe_status cross(lathe_device *from, lathe_device *to, void *memory, uint32_t word,
                          lathe_message_buffer message) {
    uint32_t found = 0;
    lathe_status status = to->ops->fill(to, memory, 0, sizeof word);
    if (status != LATHE_OK)
        return lathe_fail(message, status, "%s", to->message);
    status = from->ops->open_peer(from, to);
    if (status == LATHE_OK)
        status = from->ops->copy_in(from, memory, &word, sizeof word);
    if (status != LATHE_OK)
        return lathe_fail(message, status, "%s", from->message);
    status = to->ops->copy_out(to, &found, memory, sizeof found);
    if (status != LATHE_OK)
        return lathe_fail(message, status, "%s", to->message);
    return found == word ? LATHE_OK
                         : lathe_fail(message, LATHE_UNSUPPORTED, "what it wrote did not arrive");
}

static lathe_status prove_pair(lathe_device *from, lathe_device *to, uint32_t word,
                               lathe_message_buffer message) {
    void *memory = NULL;
    lathe_status status = to->ops->alloc(to, sizeof word, &memory);
    if (status != LATHE_OK)
        return lathe_fail(message, status, "%s", to->message);
    status = cross(from, to, memory, word, message);
    to->ops->release(to, memory);
    return status;
}

static void say_pairs(lathe_doctor *d, lathe_device **gpus, int count) {
    int proved = 0;
    for (int from = 0; from < count; ++from)
        for (int to = 0; to < count; ++to) {
            char text[1024] = "";
            if (from == to || !gpus[from] || !gpus[to])
                continue;
            if (prove_pair(gpus[from], gpus[to], 0x4c610000u + (uint32_t)(from * MOST + to),
                           (lathe_message_buffer){text, sizeof text}) == LATHE_OK)
                proved++;
            else
                lathe_doctor_say(d, LATHE_DOCTOR_BROKEN, "peer access",
                                 "deployments whose exchanges go by NCCL need none",
                                 "GPU %d cannot write to GPU %d: %s", from, to, text);
        }
    if (proved)
        lathe_doctor_say(d, LATHE_DOCTOR_OK, "peer access", NULL,
                         "%d directed pairs, each proved by a write and a read", proved);
}

void lathe_doctor_gpus(lathe_doctor *d, const char *nvrtc) {
    lathe_device *gpus[MOST] = {NULL};
    const int found = lathe_device_cuda_count(), count = found < MOST ? found : MOST;
    if (!count)
        lathe_doctor_say(d, LATHE_DOCTOR_ABSENT, "GPU",
                         "generate, build and run on the host device work without one",
                         "the driver shows none");
    for (int i = 0; i < count; ++i) {
        char text[1024] = "";
        if (lathe_device_cuda_create(i, &gpus[i], text, sizeof text) == LATHE_OK) {
            say_gpu(d, gpus[i], i, nvrtc);
        } else {
            char subject[32];
            snprintf(subject, sizeof subject, "GPU %d", i);
            lathe_doctor_say(d, LATHE_DOCTOR_BROKEN, subject,
                             "free it, or hide it by CUDA_VISIBLE_DEVICES", "%s", text);
        }
    }
    say_pairs(d, gpus, count);
    for (int i = 0; i < count; ++i)
        if (gpus[i])
            gpus[i]->ops->destroy(gpus[i]);
}
