/* SPDX-License-Identifier: Apache-2.0
 * Faults on purpose. */
#include "inject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scalar.h"
#include "seconds.h"

/* "1@20:5": digits with one separator before each but the first; none may be left out. */
static bool parse_numbers(const char *text, const char *separators, int64_t *numbers) {
    for (int i = 0;; ++i) {
        char *end;
        if (*text < '0' || *text > '9' || strspn(text, "0123456789") > 9)
            return false;
        numbers[i] = strtoll(text, &end, 10);
        if (separators[i] == '\0' || *end != separators[i])
            return separators[i] == *end;
        text = end + 1;
    }
}

bool lathe_inject_parse(const char *text, lathe_inject *inject) {
    static const struct {
        const char *word, *separators;
        lathe_inject_kind kind;
    } forms[] = {{"lost:", "@", LATHE_INJECT_LOST},
                 {"late:", "@:", LATHE_INJECT_LATE},
                 {"skew:", "", LATHE_INJECT_SKEW},
                 {"nan:", "@", LATHE_INJECT_NAN}};
    *inject = (lathe_inject){LATHE_INJECT_NOTHING, 0, 0, 0};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; ++i) {
        const size_t length = strlen(forms[i].word);
        int64_t numbers[3] = {0};
        if (strncmp(text, forms[i].word, length) != 0 ||
            !parse_numbers(text + length, forms[i].separators, numbers) ||
            numbers[2] > LATHE_INJECT_LATEST_MS)
            continue;
        *inject = (lathe_inject){forms[i].kind, (int)numbers[0], numbers[1],
                                 (uint64_t)numbers[2] * 1000000u};
        return true;
    }
    return false;
}

/* A buffer that is NaN for one step. */
typedef struct {
    const lathe_step_buffer *buffer;
    void *before;
    size_t bytes;
} spoilt;

static bool is_real(lathe_scalar dtype) {
    return dtype == LATHE_SCALAR_BF16 || dtype == LATHE_SCALAR_F32;
}

/* A real input where the step has one, else the first real weight. */
static const lathe_step_buffer *choose_victim(const lathe_step_table *t) {
    const lathe_step_buffer *weight = NULL;
    for (int b = 0; b < t->buffer_count; ++b) {
        const lathe_step_buffer *buffer = &t->buffers[b];
        if (!is_real(buffer->dtype))
            continue;
        if (buffer->lifetime == LATHE_LIFETIME_INPUT)
            return buffer;
        if (buffer->lifetime == LATHE_LIFETIME_WEIGHT && !weight)
            weight = buffer;
    }
    return weight;
}

static int layer_of(const lathe_step_buffer *b) {
    return b->per_layer ? b->layers[0] : -1;
}

static lathe_status spoil(lathe_engine *e, spoilt *s) {
    lathe_engine_memory m;
    s->buffer = choose_victim(lathe_engine_table(e));
    if (!s->buffer)
        return LATHE_UNSUPPORTED;
    lathe_status status = lathe_engine_find(e, s->buffer->name, layer_of(s->buffer), &m);
    if (status != LATHE_OK)
        return status;
    s->bytes = m.bytes;
    s->before = malloc(m.bytes);
    if (!s->before)
        return LATHE_NO_MEMORY;
    status = lathe_engine_read(e, s->buffer->name, m.layer, 0, s->before, s->bytes);
    /* All ones: NaN, and what an empty mailbox holds. */
    if (status == LATHE_OK)
        status =
            lathe_engine_device(e)->ops->fill(lathe_engine_device(e), m.address, 0xff, m.bytes);
    return status;
}

static lathe_status heal(lathe_engine *e, spoilt *s) {
    lathe_status status = LATHE_OK;
    if (s->before)
        status =
            lathe_engine_write(e, s->buffer->name, layer_of(s->buffer), 0, s->before, s->bytes);
    free(s->before);
    s->before = NULL;
    return status;
}

static void sleep_ns(uint64_t ns) {
    const struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static lathe_status run_rank(lathe_engine *e, const lathe_step_plan *plan,
                             lathe_inject_cost *cost) {
    const lathe_device *d = lathe_engine_device(e);
    const uint64_t before = d->ops->synchronizations(d);
    const double began = lathe_seconds();
    const lathe_status status = lathe_run(e, plan);
    cost->enqueue_us = (lathe_seconds() - began) * 1e6;
    cost->waits += d->ops->synchronizations(d) - before;
    return status;
}

/* All ranks but a lost one; a late one last. */
static lathe_status enqueue(const lathe_inject *fault, lathe_engine *const *engines,
                            const lathe_step_plan *plans, int count, lathe_status *statuses,
                            lathe_inject_cost *cost) {
    const int late = fault->kind == LATHE_INJECT_LATE ? fault->rank : -1;
    const int lost = fault->kind == LATHE_INJECT_LOST ? fault->rank : -1;
    lathe_status status = LATHE_OK;
    for (int r = 0; status == LATHE_OK && r < count; ++r)
        if (r != late && r != lost)
            status = statuses[r] = run_rank(engines[r], &plans[r], cost);
    if (late < 0 || status != LATHE_OK)
        return status;
    lathe_device *device = lathe_engine_device(engines[late]);
    if (strcmp(device->info.name, "host") == 0)
        lathe_device_host_delay(device, fault->delay_ns);
    else
        sleep_ns(fault->delay_ns);
    return statuses[late] = run_rank(engines[late], &plans[late], cost);
}

static lathe_status finish(const lathe_inject *fault, lathe_engine *const *engines, int count,
                           lathe_status *statuses) {
    lathe_engine *alive[LATHE_GROUP_MAX];
    int live = 0, rank;
    for (int r = 0; r < count; ++r)
        if (fault->kind != LATHE_INJECT_LOST || fault->rank != r)
            alive[live++] = engines[r];
    lathe_status status = live ? lathe_ranks_synchronize(alive, live, &rank) : LATHE_OK;
    for (int r = 0; r < count; ++r)
        if (fault->kind != LATHE_INJECT_LOST || fault->rank != r)
            statuses[r] = lathe_finish(engines[r]);
    return status;
}

lathe_status lathe_inject_run(const lathe_inject *inject, int64_t step,
                              lathe_engine *const *engines, const lathe_step_plan *plans, int count,
                              lathe_status *statuses, int *rank, lathe_inject_cost *cost) {
    const lathe_inject nothing = {LATHE_INJECT_NOTHING, 0, 0, 0};
    const lathe_inject *fault = inject && inject->step == step ? inject : &nothing;
    spoilt s = {NULL, NULL, 0};
    for (int r = 0; r < count; ++r)
        statuses[r] = LATHE_OK;
    *rank = fault->rank;
    lathe_status status = LATHE_OK;
    if (fault->kind == LATHE_INJECT_SKEW)
        status = lathe_engine_skew(engines[fault->rank], 0);
    else if (fault->kind == LATHE_INJECT_NAN)
        status = spoil(engines[fault->rank], &s);
    if (status == LATHE_OK) {
        status = enqueue(fault, engines, plans, count, statuses, cost);
        if (status == LATHE_OK)
            status = finish(fault, engines, count, statuses);
    }
    for (int r = count; r-- > 0;)
        if (statuses[r] != LATHE_OK) {
            status = statuses[r];
            *rank = r;
        }
    const lathe_status healed = heal(engines[fault->rank], &s);
    return status == LATHE_OK ? healed : status;
}

static int64_t count_in(const void *data, lathe_scalar dtype, size_t bytes) {
    int64_t count = 0;
    for (size_t at = 0; at < bytes; at += lathe_scalar_bytes(dtype)) {
        uint32_t word = 0;
        memcpy(&word, (const char *)data + at, lathe_scalar_bytes(dtype));
        if (dtype == LATHE_SCALAR_BF16)
            word <<= 16;
        count += (word & 0x7fffffffu) > 0x7f800000u;
    }
    return count;
}

int64_t lathe_inject_count_nan(lathe_engine *engine) {
    const lathe_step_table *t = lathe_engine_table(engine);
    int64_t count = 0;
    for (int b = 0; b < t->buffer_count && count >= 0; ++b) {
        const lathe_step_buffer *buffer = &t->buffers[b];
        if (buffer->lifetime != LATHE_LIFETIME_OUTPUT || !is_real(buffer->dtype))
            continue;
        const size_t bytes = (size_t)buffer->fixed_bytes;
        void *data = malloc(bytes);
        if (data &&
            lathe_engine_read(engine, buffer->name, layer_of(buffer), 0, data, bytes) == LATHE_OK)
            count += count_in(data, buffer->dtype, bytes);
        else
            count = -1;
        free(data);
    }
    return count;
}
