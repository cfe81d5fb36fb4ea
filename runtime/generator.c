/* SPDX-License-Identifier: Apache-2.0
 * One launch a source, all reading one place of the device for what to do: the copy there waits for
 * the launch before. */
#include "generator.h"

#include <stdlib.h>

#include "synthetic.h"

#define THREADS 256
#define BLOCKS_PER_PROCESSOR 8
#define CHUNK_BYTES 16 /* that a thread makes at once */

struct lathe_generator {
    lathe_device *device;
    lathe_kernel *kernel;
    void *job; /* of the device */
};

/* As fill.cuh reads it: SyntheticJob. */
typedef struct {
    lathe_synthetic_tensor tensor;
    uint64_t encoding, item;
    uint64_t runs, run, from, to, dims;
    uint64_t size[LATHE_WEIGHT_RUN_DIMS];
    uint64_t from_step[LATHE_WEIGHT_RUN_DIMS];
    uint64_t to_step[LATHE_WEIGHT_RUN_DIMS];
} job;

static const lathe_step_tactic tactic = {.name = "256 threads",
                                         .file = "templates/synthetic/fill.cuh",
                                         .entry = "lathe_synthetic_fill",
                                         .block = THREADS};
static const lathe_step_kernel kernel = {
    .name = "synthetic_fill", .tactic_count = 1, .tactics = &tactic};

lathe_status lathe_generator_compile(lathe_compiler *compiler, lathe_compiled *compiled,
                                     lathe_message_buffer message) {
    return lathe_compiler_take(compiler, &kernel, 0, compiled, message);
}

lathe_status lathe_generator_open(lathe_device *device, lathe_compiler *compiler,
                                  lathe_generator **generator, lathe_message_buffer message) {
    lathe_compiled compiled;
    *generator = NULL;
    lathe_status status = lathe_generator_compile(compiler, &compiled, message);
    if (status != LATHE_OK)
        return status;
    lathe_generator *g = calloc(1, sizeof *g);
    if (!g)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for a generator");
    g->device = device;
    status = device->ops->load(device, compiled.path, tactic.entry, 0, &g->kernel);
    if (status == LATHE_OK)
        status = device->ops->alloc(device, sizeof(job), &g->job);
    if (status == LATHE_OK) {
        *generator = g;
        return LATHE_OK;
    }
    lathe_fail(message, status, "%s", device->message);
    lathe_generator_close(g);
    return status;
}

void lathe_generator_close(lathe_generator *g) {
    if (!g)
        return;
    if (g->job)
        g->device->ops->release(g->device, g->job);
    g->device->ops->unload(g->device, g->kernel);
    free(g);
}

/* As fill.cuh counts them: SyntheticEncoding. */
static uint64_t find_encoding(lathe_scalar dtype) {
    switch (dtype) {
    case LATHE_SCALAR_BF16:
        return 0;
    case LATHE_SCALAR_F32:
        return 1;
    case LATHE_SCALAR_E4M3:
        return 2;
    default:
        return 3; /* describe refuses all others but u8 */
    }
}

static void set_job(job *j, lathe_scalar dtype, const lathe_weight_runs *r) {
    j->encoding = find_encoding(dtype);
    j->item = lathe_scalar_bytes(dtype);
    j->runs = (uint64_t)r->count;
    j->run = (uint64_t)r->length;
    j->from = (uint64_t)r->from;
    j->to = (uint64_t)r->to;
    j->dims = (uint64_t)r->dims;
    for (int d = 0; d < r->dims; ++d) {
        j->size[d] = (uint64_t)r->size[d];
        j->from_step[d] = (uint64_t)r->from_step[d];
        j->to_step[d] = (uint64_t)r->to_step[d];
    }
}

static uint32_t count_blocks(const lathe_generator *g, const job *j) {
    const uint64_t width = CHUNK_BYTES / j->item;
    const uint64_t chunks = (j->run + width - 1) / width * j->runs;
    const uint64_t most = (uint64_t)g->device->info.multiprocessors * BLOCKS_PER_PROCESSOR;
    const uint64_t wanted = (chunks + THREADS - 1) / THREADS;
    return (uint32_t)(wanted < most ? wanted : most);
}

lathe_status lathe_generator_fill(lathe_generator *g, const lathe_synthetic_tensor *tensor,
                                  lathe_scalar dtype, const lathe_weight_runs *runs, void *memory,
                                  lathe_message_buffer message) {
    job j = {.tensor = *tensor};
    lathe_device *d = g->device;
    set_job(&j, dtype, runs);
    const lathe_geometry geometry = {.grid = {count_blocks(g, &j), 1, 1}, .block = THREADS};
    void *const arguments[] = {g->job, memory};
    if (geometry.grid[0] == 0)
        return LATHE_OK;
    lathe_status status = d->ops->copy_in(d, g->job, &j, sizeof j);
    if (status == LATHE_OK)
        status = d->ops->launch(d, 0, g->kernel, &geometry, arguments, 2);
    return status == LATHE_OK ? status : lathe_fail(message, status, "%s", d->message);
}
