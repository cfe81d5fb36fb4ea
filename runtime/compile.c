/* SPDX-License-Identifier: Apache-2.0
 * Owns: keys, the choice of a tactic by what compiles, and the threads that compile. */
#include "compile.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "cache.h"
#include "compile_backend.h"
#include "deadline.h"
#include "pool.h"

#define MOST_JOBS 64

struct lathe_compiler {
    lathe_compiler_options options;
    const char *directory;
    const char *arch;
    lathe_backend *backend;
    lathe_sources *sources;
    lathe_cache *cache;
    lathe_pool *pool;
    pthread_mutex_t lock; /* of sources and pool */
};

/* One call of lathe_compiler_run, shared by its threads. */
typedef struct {
    lathe_compiler *compiler;
    const lathe_step_table *table;
    lathe_compiled *compiled;
    atomic_int next, done;
    atomic_bool failed;
    pthread_mutex_t lock; /* of status and message */
    lathe_status status;
    lathe_message_buffer message;
} run;

typedef struct {
    const lathe_backend *backend;
    lathe_backend_job job;
} make_context;

static lathe_status open_parts(lathe_compiler *c, lathe_message_buffer message) {
    const lathe_compiler_options *o = &c->options;
    lathe_status status = o->host ? lathe_backend_host_create(o, &c->backend, message)
                                  : lathe_backend_nvrtc_create(o, &c->backend, message);
    if (status == LATHE_OK)
        status = lathe_sources_create(c->directory, c->backend->side, &c->sources, message);
    if (status == LATHE_OK)
        status = lathe_cache_create(o->cache, o->log, &c->cache, message);
    return status;
}

lathe_status lathe_compiler_create(const lathe_compiler_options *options, lathe_compiler **compiler,
                                   lathe_message_buffer message) {
    *compiler = NULL;
    lathe_pool *pool = lathe_pool_create();
    lathe_compiler *c = pool ? lathe_pool_alloc(pool, 1, sizeof *c) : NULL;
    if (c) {
        c->directory = lathe_pool_string(pool, options->directory);
        c->arch = lathe_pool_string(pool, options->arch ? options->arch : "");
    }
    if (!c || !c->directory || !c->arch) {
        lathe_pool_destroy(pool);
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for the compiler");
    }
    c->pool = pool;
    c->options = *options;
    pthread_mutex_init(&c->lock, NULL);
    const lathe_status status = open_parts(c, message);
    if (status == LATHE_OK)
        *compiler = c;
    else
        lathe_compiler_destroy(c);
    return status;
}

void lathe_compiler_destroy(lathe_compiler *c) {
    if (!c)
        return;
    lathe_cache_destroy(c->cache);
    lathe_sources_destroy(c->sources);
    if (c->backend)
        c->backend->destroy(c->backend);
    pthread_mutex_destroy(&c->lock);
    lathe_pool_destroy(c->pool);
}

int lathe_compiler_cuda_major(const lathe_compiler *c) {
    return c->backend->cuda_major;
}

/* All that the artefact follows from, as text; the caller frees *key. */
static bool write_key(const char *signature, const lathe_source *s, char **key, size_t *bytes) {
    FILE *out = open_memstream(key, bytes);
    if (!out)
        return false;
    fprintf(out, "lathe kernel 1\n%s", signature);
    fprintf(out, "source %s %zu\n", s->file, s->bytes);
    fwrite(s->text, 1, s->bytes, out);
    for (int i = 0; i < s->header_count; ++i) {
        fprintf(out, "\nheader %s %zu\n", s->headers[i].name, s->headers[i].bytes);
        fwrite(s->headers[i].text, 1, s->headers[i].bytes, out);
    }
    const bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed)
        return true;
    free(*key);
    return false;
}

static lathe_status make_artefact(void *context, const char *path, char **log,
                                  lathe_message_buffer message) {
    const make_context *m = context;
    return m->backend->compile(m->backend, &m->job, path, log, message);
}

static lathe_status check_shared(const lathe_compiler *c, const lathe_step_kernel *k,
                                 const lathe_step_tactic *t, lathe_message_buffer message) {
    const lathe_gpu *arch = lathe_gpu_find(c->arch);
    if (!arch || t->shared_bytes <= arch->shared_bytes)
        return LATHE_OK;
    return lathe_fail(message, LATHE_UNSUPPORTED,
                      "%s (%s): found %u bytes of shared memory, allowed: %u on %s", k->name,
                      t->name, t->shared_bytes, arch->shared_bytes, c->arch);
}

static lathe_status keep_path(lathe_compiler *c, const lathe_cache_entry *entry,
                              lathe_compiled *out, lathe_message_buffer message) {
    pthread_mutex_lock(&c->lock);
    out->path = lathe_pool_string(c->pool, entry->path);
    pthread_mutex_unlock(&c->lock);
    out->made = entry->made;
    return out->path ? LATHE_OK : lathe_fail(message, LATHE_NO_MEMORY, "no memory for a path");
}

/* Finds the artefact of one signature or, where it may and there is a compiler, makes it.
 * LATHE_NO_DEVICE: neither. */
static lathe_status compile_signed(lathe_compiler *c, int signature, bool may_make,
                                   const lathe_backend_job *job, lathe_cache_entry *entry,
                                   lathe_message_buffer message) {
    const lathe_source *source = job->source;
    char *key;
    size_t bytes;
    if (!write_key(c->backend->signatures[signature], source, &key, &bytes))
        return lathe_fail(message, LATHE_NO_MEMORY, "no memory for a key");
    make_context m = {c->backend, *job};
    const lathe_cache_request request = {
        job->kernel, c->backend->artefact, source->text, source->bytes, key, bytes};
    lathe_status status;
    if (may_make && !c->backend->missing[0])
        status = lathe_cache_get(c->cache, &request, make_artefact, &m, entry, message);
    else if (lathe_cache_find(c->cache, &request, entry))
        status = LATHE_OK;
    else
        status = lathe_fail(message, LATHE_NO_DEVICE, "the cache %s lacks it%s%s",
                            lathe_cache_folder(c->cache), may_make ? " and " : "",
                            may_make ? c->backend->missing : "");
    free(key);
    return status;
}

static lathe_status compile_tactic(lathe_compiler *c, const lathe_step_kernel *k,
                                   const lathe_step_tactic *t, bool may_make, lathe_compiled *out,
                                   lathe_message_buffer message) {
    lathe_backend_job job = {NULL, c->directory, k->name, t->name, k->spills != NULL};
    lathe_cache_entry entry;
    lathe_status status = check_shared(c, k, t, message);
    if (status != LATHE_OK)
        return status;
    pthread_mutex_lock(&c->lock);
    status = lathe_sources_read(c->sources, t->file, &job.source, message);
    pthread_mutex_unlock(&c->lock);
    if (status != LATHE_OK)
        return status;
    status = LATHE_NO_DEVICE;
    for (int i = 0; i < c->backend->signature_count && status == LATHE_NO_DEVICE; ++i)
        status = compile_signed(c, i, may_make, &job, &entry, message);
    return status == LATHE_OK ? keep_path(c, &entry, out, message) : status;
}

/* The next tactic is tried only where this one cannot be had on this machine. */
static bool tries_next(lathe_status status) {
    return status == LATHE_COMPILE || status == LATHE_UNSUPPORTED;
}

static lathe_status compile_kernel(lathe_compiler *c, const lathe_step_kernel *k,
                                   lathe_compiled *out, lathe_message_buffer message) {
    lathe_status status = LATHE_COMPILE;
    const bool may_find =
        c->backend->missing[0] != '\0'; /* a later tactic may be what was compiled */
    for (int i = 0; i < k->tactic_count; ++i) {
        out->tactic = i;
        status = compile_tactic(c, k, &k->tactics[i], true, out, message);
        if (!tries_next(status) && !(may_find && status == LATHE_NO_DEVICE))
            return status;
        if (i + 1 < k->tactic_count)
            lathe_logger_write(c->options.log, LATHE_LOG_WARNING, "%s: tactic %s is skipped: %s",
                               k->name, k->tactics[i].name, message.text);
    }
    return status;
}

static void record_failure(run *r, lathe_status status, const lathe_step_kernel *k,
                           const char *text) {
    pthread_mutex_lock(&r->lock);
    if (!atomic_exchange(&r->failed, true)) {
        r->status = status;
        lathe_fail(r->message, status, "kernel %s: %s", k->name, text);
    }
    pthread_mutex_unlock(&r->lock);
}

static void *work(void *context) {
    run *r = context;
    for (;;) {
        const int i = atomic_fetch_add(&r->next, 1);
        if (i >= r->table->kernel_count || atomic_load(&r->failed))
            return NULL;
        char text[1024] = "";
        const lathe_step_kernel *k = &r->table->kernels[i];
        const uint64_t start = lathe_clock_ns();
        const lathe_status status = compile_kernel(r->compiler, k, &r->compiled[i],
                                                   (lathe_message_buffer){text, sizeof text});
        if (status != LATHE_OK) {
            record_failure(r, status, k, text);
            return NULL;
        }
        const int done = atomic_fetch_add(&r->done, 1) + 1;
        if (r->compiled[i].made)
            lathe_logger_progress(r->compiler->options.log, done, r->table->kernel_count,
                                  "compiled %s in %.1f s", k->name,
                                  (double)(lathe_clock_ns() - start) * 1e-9);
        else
            lathe_logger_progress(r->compiler->options.log, done, r->table->kernel_count,
                                  "found %s", k->name);
    }
}

static int processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* The calling thread works too; a thread that cannot be had leaves more to the others. */
static void work_in_threads(run *r, int jobs) {
    pthread_t threads[MOST_JOBS];
    int started = 0;
    while (started < jobs - 1 && pthread_create(&threads[started], NULL, work, r) == 0)
        ++started;
    work(r);
    for (int i = 0; i < started; ++i)
        pthread_join(threads[i], NULL);
}

lathe_status lathe_compiler_run(lathe_compiler *c, const lathe_step_table *table,
                                lathe_compiled *compiled, lathe_message_buffer message) {
    int jobs = c->options.jobs > 0 ? c->options.jobs : processors();
    if (jobs > MOST_JOBS)
        jobs = MOST_JOBS;
    if (jobs > table->kernel_count)
        jobs = table->kernel_count;
    run r = {.compiler = c, .table = table, .compiled = compiled, .message = message};
    pthread_mutex_init(&r.lock, NULL);
    work_in_threads(&r, jobs);
    pthread_mutex_destroy(&r.lock);
    return r.status;
}

lathe_status lathe_compiler_check(lathe_compiler *c, const lathe_step_table *table,
                                  lathe_message_buffer message) {
    char text[1024] = "";
    lathe_compiled found;
    if (!c->backend->missing[0])
        return LATHE_OK;
    for (int k = 0; k < table->kernel_count; ++k) {
        const lathe_status status = compile_kernel(c, &table->kernels[k], &found,
                                                   (lathe_message_buffer){text, sizeof text});
        if (status != LATHE_OK)
            return lathe_fail(message, status, "kernel %s: %s", table->kernels[k].name, text);
    }
    return LATHE_OK;
}

lathe_status lathe_compiler_take(lathe_compiler *c, const lathe_step_kernel *kernel, int tactic,
                                 lathe_compiled *compiled, lathe_message_buffer message) {
    compiled->tactic = tactic;
    return compile_tactic(c, kernel, &kernel->tactics[tactic], true, compiled, message);
}

lathe_status lathe_compiler_find(lathe_compiler *c, const lathe_step_kernel *kernel, int tactic,
                                 lathe_compiled *compiled, lathe_message_buffer message) {
    compiled->tactic = tactic;
    return compile_tactic(c, kernel, &kernel->tactics[tactic], false, compiled, message);
}
