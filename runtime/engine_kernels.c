/* SPDX-License-Identifier: Apache-2.0
 * Owns: an engine's kernels: compiled, loaded, and of every kernel the same tactic on all ranks.
 *
 * A rank takes of each kernel the first tactic that compiles and loads there. Then the ranks show
 * each other their choices and move to the latest, until none has to. Kernels are pinned one by
 * one: codegen keeps only those tactics of a kernel that give what it passes on the same shape. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static lathe_status compile_all(lathe_engine *e) {
    const lathe_status status = lathe_engine_open_compiler(e);
    if (status != LATHE_OK)
        return status;
    e->compiled = lathe_pool_alloc(e->pool, (size_t)e->table->kernel_count, sizeof *e->compiled);
    e->kernels = lathe_pool_alloc(e->pool, (size_t)e->table->kernel_count, sizeof *e->kernels);
    if (!e->compiled || !e->kernels)
        return lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory for kernels");
    return lathe_compiler_run(e->compiler, e->table, e->compiled, lathe_engine_message_buffer(e));
}

static lathe_status load(lathe_engine *e, int k) {
    const lathe_step_kernel *kernel = &e->table->kernels[k];
    const lathe_step_tactic *tactic = &kernel->tactics[e->compiled[k].tactic];
    const lathe_status status = e->device->ops->load(e->device, e->compiled[k].path, tactic->entry,
                                                     tactic->shared_bytes, &e->kernels[k]);
    return status == LATHE_OK ? status : lathe_engine_fail_device(e, status, kernel->name);
}

/* Whether a later tactic may still be had where this one failed. */
static bool tries_next(lathe_status status) {
    return status == LATHE_COMPILE || status == LATHE_UNSUPPORTED || status == LATHE_INVALID ||
           status == LATHE_DEVICE_FAULT;
}

static void warn_skipped(lathe_engine *e, int k, int tactic) {
    const lathe_step_kernel *kernel = &e->table->kernels[k];
    lathe_logger_write(&e->log, LATHE_LOG_WARNING, "%s: tactic %s is skipped: %s", kernel->name,
                       kernel->tactics[tactic].name, e->message);
}

/* The first tactic from `tactic` on that compiles and loads. */
static lathe_status take_from(lathe_engine *e, int k, int tactic) {
    const lathe_step_kernel *kernel = &e->table->kernels[k];
    lathe_status status = LATHE_COMPILE;
    if (e->kernels[k])
        e->device->ops->unload(e->device, e->kernels[k]);
    e->kernels[k] = NULL;
    for (int t = tactic; t < kernel->tactic_count; ++t) {
        status = lathe_compiler_take(e->compiler, kernel, t, &e->compiled[k],
                                     lathe_engine_message_buffer(e));
        if (status == LATHE_OK)
            status = load(e, k);
        if (!tries_next(status))
            return status;
        if (t + 1 < kernel->tactic_count)
            warn_skipped(e, k, t);
    }
    return status;
}

static lathe_status load_all(lathe_engine *e) {
    for (int k = 0; k < e->table->kernel_count; ++k) {
        const int tactic = e->compiled[k].tactic;
        lathe_status status = load(e, k);
        if (tries_next(status) && tactic + 1 < e->table->kernels[k].tactic_count) {
            warn_skipped(e, k, tactic);
            status = take_from(e, k, tactic + 1);
        }
        if (status != LATHE_OK)
            return status;
    }
    return LATHE_OK;
}

/* " 1 3": the ranks whose choice is `tactic`, which refused what comes before it. */
static const char *name_ranks(const int32_t *choices, int kernels, int world, int k, int tactic,
                              char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int r = 0; r < world && used < size; ++r)
        if (choices[r * kernels + k] == tactic)
            used += (size_t)snprintf(text + used, size - used, " %d", r);
    return text;
}

/* Moves kernel k to the latest choice of all ranks. */
static lathe_status follow(lathe_engine *e, const int32_t *choices, int k, bool *moves) {
    const int kernels = e->table->kernel_count, world = e->options.group->world;
    const lathe_step_kernel *kernel = &e->table->kernels[k];
    int latest = 0, first = INT32_MAX;
    for (int r = 0; r < world; ++r) {
        const int choice = choices[r * kernels + k];
        latest = choice > latest ? choice : latest;
        first = choice < first ? choice : first;
    }
    if (latest == first)
        return LATHE_OK;
    *moves = true;
    char ranks[64];
    if (e->options.rank == 0)
        lathe_logger_write(&e->log, LATHE_LOG_WARNING,
                           "%s: tactic %s for all ranks: rank%s refused %s", kernel->name,
                           kernel->tactics[latest].name,
                           name_ranks(choices, kernels, world, k, latest, ranks, sizeof ranks),
                           kernel->tactics[latest - 1].name);
    return e->compiled[k].tactic == latest ? LATHE_OK : take_from(e, k, latest);
}

/* One look at each other. A rank that can go no further says so by -1. */
static lathe_status pin_round(lathe_engine *e, lathe_status status, int32_t *mine, int32_t *choices,
                              bool *moves) {
    const int kernels = e->table->kernel_count;
    lathe_group *group = e->options.group;
    for (int k = 0; k < kernels; ++k)
        mine[k] = status == LATHE_OK ? e->compiled[k].tactic : -1;
    const lathe_status met =
        lathe_group_all_gather(group, mine, sizeof *mine * (size_t)kernels, choices);
    if (status != LATHE_OK)
        return status;
    if (met != LATHE_OK)
        return lathe_engine_fail(e, met, "tactics: %s", group->message);
    for (int r = 0; r < group->world; ++r)
        if (choices[r * kernels] < 0)
            return lathe_engine_fail(e, LATHE_DISAGREE, "rank %d could not build its kernels", r);
    *moves = false;
    for (int k = 0; k < kernels && status == LATHE_OK; ++k)
        status = follow(e, choices, k, moves);
    return status;
}

/* Choices only grow, so this ends. Who fails takes part in one more round, so that all hear it. */
static lathe_status pin(lathe_engine *e, lathe_status status) {
    const size_t kernels = (size_t)e->table->kernel_count;
    int32_t *mine = calloc(kernels * (size_t)(e->options.group->world + 1), sizeof *mine);
    bool moves = true;
    if (!mine)
        return lathe_engine_fail(e, LATHE_NO_MEMORY, "no memory for tactics");
    while (moves) {
        const bool last = status != LATHE_OK;
        status = pin_round(e, status, mine, mine + kernels, &moves);
        if (last || status == LATHE_DISAGREE || status == LATHE_PEER_LOST)
            break;
    }
    free(mine);
    return status;
}

lathe_status lathe_engine_build_kernels(lathe_engine *e) {
    lathe_status status = compile_all(e);
    if (status == LATHE_OK)
        status = load_all(e);
    return e->options.group && e->table->kernel_count ? pin(e, status) : status;
}
