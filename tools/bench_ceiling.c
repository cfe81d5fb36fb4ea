/* SPDX-License-Identifier: Apache-2.0
 * Reads one gigabyte by a kernel that does nothing else. The kernel stands here in the driver's
 * portable form (PTX), so that it needs no compiler and no template. */
#include "bench_ceiling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_stats.h"
#include "files.h"

#define THREADS 512
#define BLOCKS_A_PROCESSOR 4
#define LOADS 8 /* of 16 bytes, under way together */
#define TURNS 32
#define REPLAYS 40
#define LEFT_OUT 4 /* the first ones warm up */

/* Parameters: memory, turns, where to write what never is. A thread reads `LOADS` vectors a turn, a
 * grid's width apart. */
#define LOAD(n)                                                                                    \
    "ld.global.nc.L1::no_allocate.v4.u32 {%a" #n ", %b" #n ", %c" #n ", %d" #n "}, [%at];\n"       \
    "add.u64 %at, %at, %wide;\n"
#define MIX(n)                                                                                     \
    "xor.b32 %a" #n ", %a" #n ", %b" #n ";\nxor.b32 %c" #n ", %c" #n ", %d" #n ";\n"               \
    "xor.b32 %sum, %sum, %a" #n ";\nxor.b32 %sum, %sum, %c" #n ";\n"
static const char text[] = ".version 7.4\n.target sm_80\n.address_size 64\n"
                           ".visible .entry lathe_read(.param .u64 memory, .param .u64 turns, "
                           ".param .u64 result) {\n"
                           ".reg .pred %p;\n.reg .b32 %a<8>, %b<8>, %c<8>, %d<8>;\n"
                           ".reg .b32 %block, %threads, %thread, %blocks, %sum, %n;\n"
                           ".reg .b64 %at, %wide, %turns, %to;\n"
                           "ld.param.u64 %at, [memory];\nld.param.u64 %turns, [turns];\n"
                           "ld.param.u64 %to, [result];\n"
                           "mov.u32 %block, %ctaid.x;\nmov.u32 %threads, %ntid.x;\n"
                           "mov.u32 %thread, %tid.x;\nmov.u32 %blocks, %nctaid.x;\n"
                           "mul.lo.u32 %n, %blocks, %threads;\nmul.wide.u32 %wide, %n, 16;\n"
                           "mad.lo.u32 %n, %block, %threads, %thread;\n"
                           "mad.wide.u32 %at, %n, 16, %at;\nmov.u32 %sum, 0;\n"
                           "TURN:\n" LOAD(0) LOAD(1) LOAD(2) LOAD(3) LOAD(4) LOAD(5) LOAD(6) LOAD(7)
                               MIX(0) MIX(1) MIX(2) MIX(3) MIX(4) MIX(5) MIX(6)
                                   MIX(7) "sub.u64 %turns, %turns, 1;\nsetp.ne.u64 %p, %turns, 0;\n"
                                          "@%p bra TURN;\n"
                                          "setp.ne.u32 %p, %sum, 0x5bd1e995;\n@%p ret;\n"
                                          "st.global.u32 [%to], %sum;\nret;\n}\n";

typedef struct {
    lathe_device *device;
    lathe_kernel *kernel;
    lathe_graph *graph;
    void *memory;
    uint32_t blocks;
    uint64_t turns;
    size_t bytes;
} reader;

static lathe_status load(reader *r) {
    char path[4096];
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/lathe-read-XXXXXX", base && *base ? base : "/tmp");
    const int file = mkstemp(path);
    if (file < 0)
        return LATHE_IO;
    close(file);
    lathe_status status = LATHE_IO;
    if (lathe_file_write(path, text, sizeof text - 1) == 0)
        status = r->device->ops->load(r->device, path, "lathe_read", 0, &r->kernel);
    unlink(path);
    return status;
}

/* A word that the checksum is never written to follows what is read. */
static lathe_status record(reader *r) {
    const lathe_device_ops *ops = r->device->ops;
    const lathe_geometry g = {.grid = {r->blocks, 1, 1}, .block = THREADS};
    void *arguments[] = {r->memory, (void *)(uintptr_t)r->turns, (char *)r->memory + r->bytes};
    lathe_status status = ops->record_begin(r->device);
    if (status != LATHE_OK)
        return status;
    status = ops->launch(r->device, 0, r->kernel, &g, arguments, 3);
    const lathe_status ended = ops->record_end(r->device, &r->graph);
    return status == LATHE_OK ? ended : status;
}

static lathe_status take_memory(reader *r) {
    const lathe_device_ops *ops = r->device->ops;
    const size_t turn = (size_t)r->blocks * THREADS * LOADS * 16;
    lathe_status status = LATHE_NO_MEMORY;
    for (r->turns = TURNS; r->turns >= 8 && status != LATHE_OK; r->turns /= 2) {
        r->bytes = turn * r->turns;
        status = ops->alloc(r->device, r->bytes + 16, &r->memory);
        if (status == LATHE_OK)
            break;
    }
    return status == LATHE_OK ? ops->fill(r->device, r->memory, 0x5a, r->bytes) : status;
}

static double measure(reader *r, lathe_status *status) {
    double times[REPLAYS];
    *status = load(r);
    if (*status == LATHE_OK)
        *status = take_memory(r);
    if (*status == LATHE_OK)
        *status = record(r);
    if (*status == LATHE_OK)
        *status = r->device->ops->time(r->device, r->graph, REPLAYS, times);
    if (*status != LATHE_OK)
        return 0;
    const double median = lathe_bench_stats_of(times + LEFT_OUT, REPLAYS - LEFT_OUT).median;
    return median > 0 ? (double)r->bytes * 1e6 / median : 0;
}

double lathe_bench_ceiling(lathe_device *device, char *message, size_t size) {
    reader r = {.device = device, .blocks = BLOCKS_A_PROCESSOR * device->info.multiprocessors};
    lathe_status status;
    const double rate = measure(&r, &status);
    if (status != LATHE_OK)
        snprintf(message, size, "%s",
                 device->message[0] ? device->message : lathe_status_name(status));
    if (r.graph)
        device->ops->graph_destroy(device, r.graph);
    if (r.memory)
        device->ops->release(device, r.memory);
    if (r.kernel)
        device->ops->unload(device, r.kernel);
    return rate;
}
