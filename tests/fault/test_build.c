/* SPDX-License-Identifier: Apache-2.0
 * The Nth allocation, the Nth call of the driver, the Nth call of NVRTC fails, for N = 1, 2, ...
 * through create and build until all of it succeeds: each time a status, a message, and nothing
 * left over. */
#include "fakes.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void __wrap_free(void *memory);

#define TRACKED 65536

/* Counts while armed. What was allocated then must be given back, whenever. */
static struct {
    bool armed;
    long calls, fail_at;
    int live;
    void *pointers[TRACKED];
} heap;

static bool fails(void) {
    return heap.armed && ++heap.calls == heap.fail_at;
}

static void *track(void *memory) {
    for (int i = 0; heap.armed && memory && i < TRACKED; ++i) {
        if (heap.pointers[i])
            continue;
        heap.pointers[i] = memory;
        heap.live++;
        break;
    }
    return memory;
}

static void forget(void *memory) {
    for (int i = 0; memory && heap.live && i < TRACKED; ++i) {
        if (heap.pointers[i] != memory)
            continue;
        heap.pointers[i] = NULL;
        heap.live--;
        return;
    }
}

void *__wrap_malloc(size_t bytes) {
    return fails() ? NULL : track(__real_malloc(bytes));
}
void *__wrap_calloc(size_t count, size_t bytes) {
    return fails() ? NULL : track(__real_calloc(count, bytes));
}
void *__wrap_realloc(void *memory, size_t bytes) {
    if (fails())
        return NULL;
    forget(memory);
    return track(__real_realloc(memory, bytes));
}
void __wrap_free(void *memory) {
    forget(memory);
    __real_free(memory);
}

static toy t;
static fake_cuda *gpu;
static fake_nvrtc *nvrtc;

static void set_up(void) {
    toy_create(&t);
    if (access("/dev/shm", W_OK) == 0) /* hundreds of caches: a disk would be forced each time */
        snprintf(t.cache, sizeof t.cache, "/dev/shm/%s", strrchr(t.root, '/') + 1);
    gpu = fake_cuda_open();
    nvrtc = fake_nvrtc_open();
}

static void tear_down(void) {
    cr_assert_eq(lathe_folder_remove(t.cache), 0);
    toy_remove(&t);
}

TestSuite(fault, .init = set_up, .fini = tear_down, .timeout = 300);

/* Create, build, destroy. What failed is in `message`. */
static lathe_status attempt(char *message, size_t size) {
    lathe_engine *e = NULL;
    lathe_options o = fake_options(&t);
    o.jobs = 1; /* so that the Nth is always the same one */
    message[0] = '\0';
    lathe_status status = lathe_create(&o, &e, message, size);
    cr_assert_eq(status == LATHE_OK, e != NULL);
    if (status != LATHE_OK)
        return status;
    status = lathe_build(e, &toy_weights);
    snprintf(message, size, "%s", lathe_message(e));
    lathe_destroy(e);
    return status;
}

static void expect_clean(const char *what, long n, lathe_status status, const char *message) {
    cr_assert_gt(strlen(message), 10, "%s %ld: status %s without a message", what, n,
                 lathe_status_name(status));
    cr_assert_eq(gpu->live, 0, "%s %ld (%s): %d handles left", what, n, message, gpu->live);
    cr_assert_eq(nvrtc->live, 0, "%s %ld (%s): %d programs left", what, n, message, nvrtc->live);
}

Test(fault, each_call_of_the_driver_in_turn) {
    char message[4096];
    cr_assert_eq(attempt(message, sizeof message), LATHE_OK, "%s", message);
    long n = 1;
    for (;; ++n) {
        gpu->calls = 0;
        gpu->fail_at = (int)n;
        gpu->failed[0] = '\0';
        gpu->fail_result = n % 3 == 0 ? 2 : 0; /* out of memory now and then */
        const lathe_status status = attempt(message, sizeof message);
        if (!gpu->failed[0]) {
            cr_assert_eq(status, LATHE_OK, "%s", message);
            break;
        }
        cr_assert_neq(status, LATHE_OK, "call %ld (%s) failed unseen", n, gpu->failed);
        cr_assert(status == LATHE_NO_MEMORY || status == LATHE_DEVICE_FAULT ||
                      status == LATHE_NO_DEVICE,
                  "%s: %s", gpu->failed, lathe_status_name(status));
        expect_clean("call", n, status, message);
    }
    cr_log_info("%ld calls of the driver", n);
    cr_assert_gt(n, 200);
}

Test(fault, each_call_of_nvrtc_in_turn) {
    char message[4096];
    long n = 1;
    for (;; ++n) {
        nvrtc->calls = 0;
        nvrtc->fail_at = (int)n;
        nvrtc->failed[0] = '\0';
        lathe_folder_remove(t.cache);
        const lathe_status status = attempt(message, sizeof message);
        if (!nvrtc->failed[0]) {
            cr_assert_eq(status, LATHE_OK, "%s", message);
            break;
        }
        if (strncmp(nvrtc->failed, "nvrtcGetProgramLog", 18) != 0) /* a log is not vital */
            cr_assert_neq(status, LATHE_OK, "call %ld (%s) failed unseen", n, nvrtc->failed);
        if (status != LATHE_OK)
            expect_clean("call", n, status, message);
    }
    cr_log_info("%ld calls of NVRTC", n);
    cr_assert_gt(n, 60);
}

static void sweep_heap(bool warm) {
    char message[4096];
    long n = 1;
    cr_assert_eq(attempt(message, sizeof message), LATHE_OK, "%s", message);
    for (;; ++n) {
        if (!warm)
            lathe_folder_remove(t.cache);
        heap.calls = 0;
        heap.fail_at = n;
        heap.armed = true;
        const lathe_status status = attempt(message, sizeof message);
        heap.armed = false;
        cr_assert_eq(heap.live, 0, "allocation %ld (%s): %d left", n, message, heap.live);
        if (heap.calls < n) {
            cr_assert_eq(status, LATHE_OK, "%s", message);
            break;
        }
        if (status != LATHE_OK)
            expect_clean("allocation", n, status, message);
    }
    cr_log_info("%ld allocations", n);
    cr_assert_gt(n, 50);
}

Test(fault, each_allocation_in_turn_with_a_warm_cache) {
    sweep_heap(true);
}

Test(fault, each_allocation_in_turn_with_a_cold_cache) {
    sweep_heap(false);
}
