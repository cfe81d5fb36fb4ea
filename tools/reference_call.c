/* SPDX-License-Identifier: Apache-2.0
 * Implements reference.h for the checker. */
#include "reference_call.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compare.h"
#include "synthetic.h"

#define THREADS_MAX 64
#define SAMPLE_COLUMNS 256
#define SAMPLE_OPERATIONS (INT64_C(1) << 31) /* smaller launches are computed whole */

#define LATHE_REFERENCE(folder, name) void lathe_ref_##folder##_##name(lathe_ref *r);
#include "references.def"
#undef LATHE_REFERENCE

static const struct {
    const char *provider;
    lathe_ref_function *function;
} references[] = {
#define LATHE_REFERENCE(folder, name) {#folder "/" #name, lathe_ref_##folder##_##name},
#include "references.def"
#undef LATHE_REFERENCE
    {NULL, NULL},
};

lathe_ref_function *lathe_ref_find(const char *provider) {
    for (int i = 0; references[i].provider; ++i)
        if (strcmp(references[i].provider, provider) == 0)
            return references[i].function;
    return NULL;
}

void lathe_ref_begin(lathe_ref *r, const lathe_step_launch *launch, int ranks, uint64_t seed) {
    memset(r, 0, sizeof *r);
    r->launch = launch;
    r->ranks = ranks;
    r->seed = seed;
    r->block = 1;
}

void lathe_ref_sample(lathe_ref *r) {
    const lathe_step_kernel *k = r->launch->kernel;
    int64_t widest = 0;
    for (int i = 0; i < r->launch->value_count; ++i) {
        const lathe_step_value *v = &r->launch->values[i];
        if (v->arg->dir != LATHE_DIR_OUT || !v->address || v->shape.count == 0)
            continue;
        const int64_t last = v->shape.dim[v->shape.count - 1];
        widest = last > widest ? last : widest;
    }
    if (k->operations > SAMPLE_OPERATIONS && widest >= 2 * SAMPLE_COLUMNS)
        r->block = widest / SAMPLE_COLUMNS;
}

/* References are compiled into the program. */
static void fail_without(lathe_ref *r, const char *provider) {
    char text[256];
    snprintf(text, sizeof text,
             "this lathe was built without templates/%.100s.ref.c: build it again", provider);
    lathe_ref_fail(r, text);
}

bool lathe_ref_call(lathe_ref *r) {
    const char *provider = r->launch->kernel->provider;
    lathe_ref_function *function = lathe_ref_find(provider);
    if (function)
        function(r);
    else
        fail_without(r, provider);
    return !r->failed;
}

static const lathe_step_constant *find_constant(const lathe_ref *r, const char *name) {
    const lathe_step_constant *c =
        lathe_step_constant_find(r->launch->kernel, r->launch->tactic, name);
    if (!c) {
        char text[128];
        snprintf(text, sizeof text, "the kernel has no constant %.80s", name);
        /* The failure is the call's; the interface hands out a const pointer for reading. */
        lathe_ref_fail((lathe_ref *)(uintptr_t)r, text);
    }
    return c;
}

int64_t lathe_ref_int(const lathe_ref *r, const char *constant) {
    const lathe_step_constant *c = find_constant(r, constant);
    if (!c)
        return 0;
    return c->is_real ? (int64_t)c->real : c->integer;
}

double lathe_ref_real(const lathe_ref *r, const char *constant) {
    const lathe_step_constant *c = find_constant(r, constant);
    if (!c)
        return 0;
    return c->is_real ? c->real : (double)c->integer;
}

int lathe_ref_ranks(const lathe_ref *r) {
    return r->ranks;
}

/* Number of the argument, or -1 where there is none or it is unbound. */
static int find_value(const lathe_ref *r, const char *arg) {
    for (int i = 0; i < r->launch->value_count; ++i)
        if (strcmp(r->launch->values[i].arg->name, arg) == 0)
            return r->launch->values[i].buffer || r->launch->values[i].carried ? i : -1;
    return -1;
}

bool lathe_ref_has(const lathe_ref *r, const char *arg) {
    return find_value(r, arg) >= 0;
}

const void *lathe_ref_data(const lathe_ref *r, int rank, const char *arg) {
    const int i = find_value(r, arg);
    return i < 0 ? NULL : r->values[rank][i].before;
}

int64_t lathe_ref_dim(const lathe_ref *r, const char *arg, int d) {
    const int i = find_value(r, arg);
    if (i < 0)
        return 0;
    const lathe_step_shape *s = &r->launch->values[i].shape;
    return d < s->count ? s->dim[d] : 1;
}

double *lathe_ref_out(lathe_ref *r, int rank, const char *arg) {
    const int i = find_value(r, arg);
    return i < 0 ? NULL : r->values[rank][i].out;
}

const void *lathe_ref_observed(const lathe_ref *r, int rank, const char *arg) {
    const int i = find_value(r, arg);
    return i < 0 ? NULL : r->values[rank][i].after;
}

bool lathe_ref_flip(lathe_ref *r, int rank, int64_t row, double ulps) {
    if (r->flip_count < LATHE_REF_FLIPS)
        r->flips[r->flip_count] = (lathe_ref_flip_record){rank, row, ulps};
    ++r->flip_count;
    return r->follow || ulps <= LATHE_MARGIN_ULPS;
}

bool lathe_ref_column(const lathe_ref *r, int64_t column) {
    if (r->block == 1)
        return true;
    const uint64_t pick =
        lathe_synthetic_bits(r->seed, (uint64_t)(column / r->block)) % (uint64_t)r->block;
    return (uint64_t)(column % r->block) == pick;
}

double *lathe_ref_new_output(int64_t count) {
    double *out = malloc((size_t)(count ? count : 1) * sizeof *out);
    for (int64_t e = 0; out && e < count; ++e)
        out[e] = LATHE_REF_UNSET;
    return out;
}

double lathe_ref_jitter(const lathe_ref *r, double product, uint64_t index) {
    if (r->jitter == 0)
        return product;
    const double u = lathe_synthetic_uniform(lathe_synthetic_bits(r->seed, index));
    return product * (1 + r->jitter * (2 * u - 1));
}

double lathe_ref_round(const lathe_ref *r, double value) {
    const double nearest = lathe_bf16_round(value);
    if (r->draw == 0)
        return nearest;
    const double above = lathe_bf16_round(value * (1 + LATHE_REF_NOISE));
    const double other = above != nearest ? above : lathe_bf16_round(value * (1 - LATHE_REF_NOISE));
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return r->draw == 1 || lathe_synthetic_bits(r->draw, bits) & 1 ? other : nearest;
}

typedef struct {
    atomic_llong next;
    int64_t count;
    void (*body)(void *context, int64_t i);
    void *context;
} loop;

static void *run_loop(void *context) {
    loop *l = context;
    for (;;) {
        const int64_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->count)
            return NULL;
        l->body(l->context, i);
    }
}

void lathe_ref_parallel(lathe_ref *r, int64_t n, void (*body)(void *context, int64_t i),
                        void *context) {
    (void)r;
    pthread_t threads[THREADS_MAX];
    loop l = {.count = n, .body = body, .context = context};
    long wanted = sysconf(_SC_NPROCESSORS_ONLN);
    if (wanted > THREADS_MAX)
        wanted = THREADS_MAX;
    if (wanted > n)
        wanted = (long)n;
    int started = 0;
    while (started < wanted - 1 && pthread_create(&threads[started], NULL, run_loop, &l) == 0)
        ++started;
    run_loop(&l);
    for (int i = 0; i < started; ++i)
        pthread_join(threads[i], NULL);
}

void lathe_ref_fail(lathe_ref *r, const char *message) {
    if (!r->failed)
        snprintf(r->message, sizeof r->message, "%s", message);
    r->failed = true;
}
