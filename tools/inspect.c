/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "nvrtc.h"

#define LARGEST_LOG ((size_t)16 << 20)

double lathe_inspect_floor(const lathe_step_ceilings *c, int64_t bytes, int64_t operations,
                           bool *by_operations) {
    *by_operations = false;
    if (!c->read_gb_s)
        return NAN;
    const double read = (double)bytes / (double)c->read_gb_s * 1e-3;
    const double compute = (double)operations / (double)c->bf16_tflops * 1e-6;
    *by_operations = compute > read;
    return compute > read ? compute : read;
}

/* Per multiprocessor, by compute capability. Registers are given out in units of 256 a warp, shared
 * memory in units of 128 bytes with 1 KiB more for the system. */
static const struct {
    const char *arch;
    int64_t threads, blocks, shared;
} limits[] = {{"sm_90a", 2048, 32, 233472},
              {"sm_100a", 2048, 32, 233472},
              {"sm_103a", 2048, 32, 233472},
              {"sm_120a", 1536, 24, 102400}};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int lathe_inspect_resident(const char *arch, uint32_t block, int registers, int64_t shared) {
    for (size_t i = 0; i < sizeof limits / sizeof *limits; ++i) {
        if (strcmp(arch, limits[i].arch) != 0 || registers <= 0 || block == 0)
            continue;
        const int64_t warps = (block + 31) / 32;
        const int64_t of_warp = ((int64_t)registers * 32 + 255) / 256 * 256;
        int64_t blocks = least(limits[i].blocks, limits[i].threads / (warps * 32));
        blocks = least(blocks, 65536 / of_warp / warps);
        blocks = least(blocks, limits[i].shared / ((shared + 127) / 128 * 128 + 1024));
        return (int)blocks;
    }
    return 0;
}

/* The number in front of `what` in a compiler's log, or `otherwise`. */
static int number_before(const char *log, const char *what, int otherwise) {
    const char *at = strstr(log, what), *digit = at;
    while (digit && digit > log && digit[-1] >= '0' && digit[-1] <= '9')
        --digit;
    return at && digit < at ? atoi(digit) : otherwise;
}

/* What ptxas said when the artefact was built; its log stands beside it. */
static void read_log(lathe_inspect_kernel *k) {
    char path[4096], *log;
    size_t bytes;
    const char *slash = strrchr(k->artefact, '/');
    snprintf(path, sizeof path, "%.*s/build.log", (int)(slash - k->artefact), k->artefact);
    if (lathe_file_read(path, LARGEST_LOG, &log, &bytes) != 0)
        return;
    lathe_nvrtc_parse_log(log, &k->registers, &k->spill_bytes);
    if (k->registers >= 0)
        k->static_shared = number_before(log, " bytes smem", 0);
    free(log);
}

/* "// Tactic: NAME (REASON)" of the generated file. */
static char *read_origin(const char *directory, const lathe_step_tactic *t) {
    char path[4096], *text;
    size_t bytes;
    if (!lathe_path_join(path, sizeof path, directory, t->file) ||
        lathe_file_read(path, LARGEST_LOG, &text, &bytes) != 0)
        return NULL;
    const char *line = strstr(text, "\n// Tactic: ");
    const char *end = line ? strchr(line + 1, '\n') : NULL;
    const char *open = line ? strstr(line, " (") : NULL;
    char *origin = NULL;
    if (open && end && open < end && end[-1] == ')')
        origin = strndup(open + 2, (size_t)(end - open) - 3);
    free(text);
    return origin;
}

static void read_kernel(lathe_inspect *in, const char *directory, int number) {
    lathe_inspect_kernel *k = &in->kernels[number];
    char text[512];
    k->kernel = &in->table->kernels[number];
    k->tactic = &k->kernel->tactics[0];
    k->registers = k->spill_bytes = k->static_shared = -1;
    k->measured_us = k->touched_floor_us = k->predicted_us = NAN;
    for (int t = 0; t < k->kernel->tactic_count && !k->artefact; ++t) {
        lathe_compiled found;
        if (lathe_compiler_find(in->compiler, k->kernel, t, &found,
                                (lathe_message_buffer){text, sizeof text}) != LATHE_OK)
            continue;
        k->artefact = found.path;
        k->tactic = &k->kernel->tactics[t];
    }
    if (k->artefact)
        read_log(k);
    k->origin = read_origin(directory, k->tactic);
    k->floor_us = lathe_inspect_floor(&in->table->ceilings, k->kernel->bytes, k->kernel->operations,
                                      &k->by_operations);
    k->resident = lathe_inspect_resident(in->table->arch, k->tactic->block, k->registers,
                                         (int64_t)k->tactic->shared_bytes +
                                             (k->static_shared > 0 ? k->static_shared : 0));
}

bool lathe_inspect_receives(const lathe_step_table *t, const lathe_step_op *op) {
    if (op->kind == LATHE_OP_COLLECTIVE)
        return true;
    const lathe_step_kernel *k = &t->kernels[op->kernel];
    for (int a = 0; a < k->arg_count; ++a)
        if (k->args[a].dir == LATHE_DIR_MAILBOX && op->bindings[a].mailbox >= 0 &&
            !k->args[a].publishes)
            return true;
    return false;
}

/* Follows a list of operations: `depth` is the longest chain that each stream ends. */
static lathe_inspect_part read_part(const lathe_inspect *in, const char *name, int layers,
                                    const lathe_step_ops *ops) {
    lathe_inspect_part part = {.name = name, .layers = layers, .measured_us = NAN};
    int depth[8] = {0};
    for (int i = 0; i < ops->count; ++i) {
        const lathe_step_op *op = &ops->ops[i];
        const int s = op->stream & 7;
        if (op->kind == LATHE_OP_FORK) {
            depth[s] = depth[0];
        } else if (op->kind == LATHE_OP_JOIN) {
            depth[0] = depth[s] > depth[0] ? depth[s] : depth[0];
        } else {
            part.nodes++;
            depth[s]++;
            part.exchanges += lathe_inspect_receives(in->table, op);
            if (op->kind == LATHE_OP_LAUNCH)
                part.floor_us += in->kernels[op->kernel].floor_us;
        }
    }
    part.critical = depth[0];
    return part;
}

static int layers_of(const lathe_step_table *t, int kind) {
    int count = 0;
    for (int l = 0; l < t->layer_count; ++l)
        count += t->layer_kinds[l] == kind;
    return count;
}

static bool read_variant(lathe_inspect *in, int number) {
    const lathe_step_table *t = in->table;
    lathe_inspect_variant *v = &in->variants[number];
    v->variant = &t->variants[number];
    v->part_count = t->kind_count + 2;
    v->parts = calloc((size_t)v->part_count, sizeof *v->parts);
    if (!v->parts)
        return false;
    v->parts[0] = read_part(in, "prologue", 1, &v->variant->prologue);
    for (int k = 0; k < t->kind_count; ++k)
        v->parts[1 + k] = read_part(in, t->kind_names[k], layers_of(t, k), &v->variant->kinds[k]);
    v->parts[1 + t->kind_count] = read_part(in, "epilogue", 1, &v->variant->epilogue);
    v->whole = (lathe_inspect_part){.name = "step", .layers = 1, .measured_us = NAN};
    for (int p = 0; p < v->part_count; ++p) {
        const lathe_inspect_part *part = &v->parts[p];
        v->whole.nodes += part->layers * part->nodes;
        v->whole.critical += part->layers * part->critical;
        v->whole.exchanges += part->layers * part->exchanges;
        v->whole.floor_us += part->layers * part->floor_us;
    }
    return true;
}

static lathe_status read_all(lathe_inspect *in, const char *directory,
                             lathe_message_buffer message) {
    const lathe_step_table *t = in->table;
    in->kernels = calloc((size_t)t->kernel_count + 1, sizeof *in->kernels);
    in->variants = calloc((size_t)t->variant_count + 1, sizeof *in->variants);
    if (!in->kernels || !in->variants)
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory");
    for (int k = 0; k < t->kernel_count; ++k)
        read_kernel(in, directory, k);
    for (int v = 0; v < t->variant_count; ++v)
        if (!read_variant(in, v))
            return lathe_fail(message, LATHE_NO_MEMORY, "no memory");
    return LATHE_OK;
}

lathe_status lathe_inspect_open(const char *directory, const char *cache, const char *nvrtc,
                                lathe_inspect *in, lathe_message_buffer message) {
    *in = (lathe_inspect){0};
    lathe_status status = lathe_step_table_read(directory, &in->table, message.text, message.size);
    if (status == LATHE_OK) {
        const lathe_compiler_options options = {.directory = directory,
                                                .arch = in->table->arch,
                                                .host = strcmp(in->table->arch, "host") == 0,
                                                .cache = cache,
                                                .nvrtc = nvrtc};
        status = lathe_compiler_create(&options, &in->compiler, message);
    }
    if (status == LATHE_OK)
        status = read_all(in, directory, message);
    if (status != LATHE_OK)
        lathe_inspect_close(in);
    return status;
}

bool lathe_inspect_shows(const lathe_inspect *in, const lathe_inspect_kernel *k) {
    return !in->pattern || fnmatch(in->pattern, k->kernel->name, 0) == 0;
}

void lathe_inspect_close(lathe_inspect *in) {
    for (int k = 0; in->kernels && k < in->table->kernel_count; ++k)
        free(in->kernels[k].origin);
    for (int v = 0; in->variants && v < in->table->variant_count; ++v)
        free(in->variants[v].parts);
    free(in->kernels);
    free(in->variants);
    lathe_compiler_destroy(in->compiler);
    lathe_step_table_destroy(in->table);
    *in = (lathe_inspect){0};
}
