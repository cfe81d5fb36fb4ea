/* SPDX-License-Identifier: Apache-2.0
 * Tests on the fakes: their states, held open so that they outlive an engine, and an engine of the
 * toy directory. */
#ifndef LATHE_TESTS_FAKES_H
#define LATHE_TESTS_FAKES_H

#include <dlfcn.h>

#include "fake.h"
#include "lathe.h"
#include "step.h"
#include "toy.h"

#define FAKE_NVRTC LATHE_FAKE_DIR "/libnvrtc.so.13"

static inline void *fake_open(const char *library, const char *symbol) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(handle, "%s", dlerror());
    void *address = dlsym(handle, symbol);
    cr_assert_not_null(address, "%s is not the fake", library);
    return address;
}

/* The driver's library is found by the name that this one has, whatever the loader's path. */
static inline fake_cuda *fake_cuda_open(void) {
    fake_cuda *(*state)(void);
    void *address = fake_open(FAKE_CUDA, "fake_cuda_state");
    memcpy(&state, &address, sizeof state);
    return state();
}

static inline fake_nvrtc *fake_nvrtc_open(void) {
    fake_nvrtc *(*state)(void);
    void *address = fake_open(FAKE_NVRTC, "fake_nvrtc_state");
    memcpy(&state, &address, sizeof state);
    return state();
}

static inline fake_nccl *fake_nccl_open(void) {
    fake_nccl *(*state)(void);
    void *address = fake_open(FAKE_NCCL, "fake_nccl_state");
    memcpy(&state, &address, sizeof state);
    return state();
}

static inline lathe_options fake_options(const toy *t) {
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = t->directory;
    o.device = LATHE_DEVICE_CUDA;
    o.cache = t->cache;
    o.nvrtc = FAKE_NVRTC;
    o.jobs = 2;
    return o;
}

/* Weights of the toy: w[c] = layer + c / 2. */
static inline lathe_status toy_fill(void *context, int weight, int layer, void *host, size_t bytes,
                                    char *message, size_t size) {
    (void)context, (void)message, (void)size;
    float *w = host;
    if (weight != 0 || bytes != 8 * sizeof *w)
        return LATHE_INVALID;
    for (int c = 0; c < 8; ++c)
        w[c] = (float)layer + 0.5f * (float)c;
    return LATHE_OK;
}

static const lathe_weight_source toy_weights = {.size = sizeof(lathe_weight_source),
                                                .fill = toy_fill};

#endif
