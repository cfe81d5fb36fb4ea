/* SPDX-License-Identifier: Apache-2.0
 * The host device's collectives: when a rank's queue comes to one, it meets the others in the
 * group. Sums run in ascending rank order in fp32 and are rounded once, so that every rank has the
 * same bits. */
#include "host_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group.h"

lathe_status lathe_host_open_collectives(lathe_device *d, lathe_group *group, uint64_t timeout_ns) {
    ((lathe_host_device *)d)->group = group;
    ((lathe_host_device *)d)->collective_ns = timeout_ns;
    ((lathe_host_device *)d)->lost[0] = '\0';
    return LATHE_OK;
}

static float widen(uint16_t bits) {
    const uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Nearest, ties to even. */
static uint16_t narrow(float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    if (value != value)
        return 0x7fff;
    return (uint16_t)((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

static void sum_bf16(const uint16_t *all, int world, size_t count, uint16_t *to) {
    for (size_t i = 0; i < count; i++) {
        float sum = widen(all[i]);
        for (int r = 1; r < world; r++)
            sum += widen(all[(size_t)r * count + i]);
        to[i] = narrow(sum);
    }
}

static void sum_f32(const float *all, int world, size_t count, float *to) {
    for (size_t i = 0; i < count; i++) {
        float sum = all[i];
        for (int r = 1; r < world; r++)
            sum += all[(size_t)r * count + i];
        to[i] = sum;
    }
}

static void sum_i32(const uint32_t *all, int world, size_t count, uint32_t *to) {
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < world; r++)
            sum += all[(size_t)r * count + i];
        to[i] = sum;
    }
}

static void sum(const lathe_host_collective *c, const void *all, int world) {
    if (c->dtype == LATHE_SCALAR_BF16)
        sum_bf16(all, world, c->count, c->to);
    else if (c->dtype == LATHE_SCALAR_F32)
        sum_f32(all, world, c->count, c->to);
    else
        sum_i32(all, world, c->count, c->to);
}

typedef struct {
    lathe_emulator *emulator;
    uint64_t since, bound_ns; /* virtual time */
} wait;

static bool is_patient(void *context, uint64_t ns) {
    wait *w = context;
    return lathe_emulator_wait(w->emulator, ns) - w->since <= w->bound_ns;
}

/* Bounded in virtual time like the waits in kernels: a rank that computes is not late. */
static lathe_status gather(lathe_host_device *h, const void *from, size_t bytes, void *all) {
    wait w = {h->emulator, lathe_emulator_wait(h->emulator, 0), h->collective_ns};
    h->group->patience = is_patient;
    h->group->patience_context = &w;
    const lathe_status status = lathe_group_all_gather(h->group, from, bytes, all);
    h->group->patience = NULL;
    lathe_emulator_waited(h->emulator);
    return status;
}

lathe_status lathe_host_meet(lathe_host_device *h, const lathe_host_collective *c) {
    lathe_group *group = h->group;
    const size_t bytes = c->count * lathe_scalar_bytes(c->dtype);
    const bool reduce = c->kind == LATHE_COLLECTIVE_ALL_REDUCE;
    void *all = malloc(bytes * (size_t)group->world + 1); /* `to` may be `from` */
    if (!all)
        return lathe_host_fail(&h->base, LATHE_NO_MEMORY, "no memory for a collective");
    const lathe_status status = gather(h, c->from, bytes, all);
    if (status != LATHE_OK) {
        h->lost_status = status;
        snprintf(h->lost, sizeof h->lost, "rank %d: %s: %s", group->rank,
                 reduce ? "all_reduce" : "all_gather", group->message);
        lathe_host_fail(&h->base, status, "%s", h->lost);
    } else if (reduce)
        sum(c, all, group->world);
    else
        memcpy(c->to, all, bytes * (size_t)group->world);
    free(all);
    return status;
}
