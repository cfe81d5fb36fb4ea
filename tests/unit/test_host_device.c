/* SPDX-License-Identifier: Apache-2.0
 * The host device: compile, load, launch, streams, graphs, and what it says about faulty kernels.
 */
#include "device.h"
#include "host_compile.h"
#include "host_crash.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char source[] =
    "#include \"prims.cuh\"\n"
    "static u32 here() { return block_id() * block_threads() + thread_id(); }\n"
    "extern \"C\" __global__ void add(const u32 *x, u32 *y) {\n"
    "    grid_trigger();\n"
    "    grid_wait();\n"
    "    y[here()] = x[here()] + 1;\n"
    "}\n"
    "extern \"C\" __global__ void twice(const u32 *x, u32 *y) { y[here()] = 2 * x[here()]; }\n"
    "extern \"C\" __global__ void sum(const u32 *x, const u32 *z, u32 *y) {\n"
    "    y[here()] = 100 * x[here()] + z[here()];\n"
    "}\n"
    "extern \"C\" __global__ void hasty(const u32 *x, u32 *y) {\n"
    "    const u32 value = x[here()];\n"
    "    grid_wait();\n"
    "    y[here()] = value + 1;\n"
    "}\n"
    "extern \"C\" __global__ void stuck(u32 *y) {\n"
    "    if (thread_id() == 0) block_sync();\n"
    "    y[here()] = 1;\n"
    "}\n"
    "extern \"C\" __global__ void beyond(u32 *y) { y[4] = 1; }\n"
    "extern \"C\" __global__ void wild(u32 *y) { y[thread_id() == 3 ? 1ull << 44 : 0] = 1; }\n"
    "extern \"C\" __global__ void endless(u32 *y) {\n"
    "    while (*static_cast<volatile u32 *>(y) != 1) {}\n"
    "}\n";

static char folder[256], object[512], source_path[512];
static lathe_device *d;

static lathe_status compile(const char *text, char *log, size_t bytes) {
    FILE *f = fopen(source_path, "w");
    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
    const lathe_host_compile_job job = {.templates = LATHE_SOURCE_DIR "/templates",
                                        .source = source_path,
                                        .object = object,
                                        .sanitize = lathe_host_sanitized()};
    return lathe_host_compile(&job, log, bytes);
}

static void setup(void) {
    char log[4096], message[256];
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lathe-host-XXXXXX", root ? root : P_tmpdir);
    cr_assert_not_null(mkdtemp(folder));
    snprintf(object, sizeof object, "%s/kernels.so", folder);
    snprintf(source_path, sizeof source_path, "%s/kernels.cu", folder);
    cr_assert_eq(compile(source, log, sizeof log), LATHE_OK, "%s", log);
    cr_assert_eq(lathe_device_host_create(0, 7, &d, message, sizeof message), LATHE_OK);
}
static void teardown(void) {
    d->ops->destroy(d);
    unlink(object);
    unlink(source_path);
    rmdir(folder);
}

static lathe_kernel *load(const char *entry) {
    lathe_kernel *k;
    cr_assert_eq(d->ops->load(d, object, entry, 0, &k), LATHE_OK, "%s", d->message);
    return k;
}
static void *words(size_t count) {
    void *p;
    cr_assert_eq(d->ops->alloc(d, count * 4, &p), LATHE_OK);
    return p;
}
static uint32_t first_word(const void *p) {
    uint32_t word;
    cr_assert_eq(d->ops->copy_out(d, &word, p, 4), LATHE_OK, "%s", d->message);
    return word;
}
static lathe_status launch(int stream, lathe_kernel *k, bool early, int count, ...) {
    void *arguments[4];
    va_list list;
    va_start(list, count);
    for (int i = 0; i < count; i++)
        arguments[i] = va_arg(list, void *);
    va_end(list);
    const lathe_geometry g = {.grid = {2, 1, 1}, .block = 32, .early = early};
    return d->ops->launch(d, stream, k, &g, arguments, count);
}

TestSuite(host_device, .init = setup, .fini = teardown);

Test(host_device, says_what_it_is) {
    cr_assert_str_eq(d->info.name, "host");
    cr_assert_str_eq(d->info.arch, "host");
    cr_assert_eq(d->info.multiprocessors, 2);
    cr_assert_gt(d->info.memory_free, 1u << 20);
    cr_assert_lt(d->info.memory_free, 1ull << 50);
}

Test(host_device, fresh_memory_is_poison) {
    cr_assert_eq(first_word(words(3)), 0xffffffffu);
    cr_assert_eq(d->ops->allocations(d), 1);
}

Test(host_device, copies_stay_inside) {
    uint32_t word = 0;
    unsigned char *p = words(2);
    cr_assert_eq(d->ops->copy_in(d, p + 4, &word, 4), LATHE_OK);
    cr_assert_eq(d->ops->copy_in(d, p + 8 - 2, &word, 4), LATHE_INVALID);
    cr_assert_not_null(strstr(d->message, "4 bytes at byte 6 of an allocation of 8"));
}

/* side: b = 2 a; main: c = a + 1; then e = 100 b + c. */
static void enqueue_diamond(lathe_kernel *const k[3], void *const m[4]) {
    cr_assert_eq(launch(0, k[0], false, 2, m[0], m[0]), LATHE_OK);
    cr_assert_eq(d->ops->fork(d, 1), LATHE_OK);
    cr_assert_eq(launch(1, k[1], false, 2, m[0], m[1]), LATHE_OK);
    cr_assert_eq(launch(0, k[0], false, 2, m[0], m[2]), LATHE_OK);
    cr_assert_eq(d->ops->join(d, 1), LATHE_OK);
    cr_assert_eq(launch(0, k[2], false, 3, m[1], m[2], m[3]), LATHE_OK);
}

Test(host_device, streams_and_graphs_keep_order) {
    lathe_kernel *k[3] = {load("add"), load("twice"), load("sum")};
    void *m[4] = {words(64), words(64), words(64), words(64)};
    cr_assert_eq(d->ops->fill(d, m[0], 0, 256), LATHE_OK);
    enqueue_diamond(k, m);
    cr_assert_eq(d->ops->synchronize(d), LATHE_OK, "%s", d->message);
    cr_assert_eq(d->ops->synchronizations(d), 1);
    cr_assert_eq(first_word(m[3]), 202);
    lathe_graph *graph;
    cr_assert_eq(d->ops->record_begin(d), LATHE_OK);
    enqueue_diamond(k, m);
    cr_assert_eq(d->ops->record_end(d, &graph), LATHE_OK, "%s", d->message);
    cr_assert_eq(first_word(m[3]), 202, "recording runs nothing");
    for (int i = 0; i < 50; i++)
        cr_assert_eq(d->ops->replay(d, graph), LATHE_OK);
    cr_assert_eq(first_word(m[3]), 100 * 2 * 51 + 52);
    d->ops->graph_destroy(d, graph);
    for (int i = 0; i < 3; i++)
        d->ops->unload(d, k[i]);
}

Test(host_device, early_launches) {
    lathe_kernel *add = load("add"), *twice = load("twice");
    void *a = words(64), *b = words(64);
    cr_assert_eq(d->ops->fill(d, a, 0, 256), LATHE_OK);
    for (int i = 0; i < 20; i++)
        cr_assert_eq(launch(0, add, true, 2, i % 2 ? b : a, i % 2 ? a : b), LATHE_OK);
    cr_assert_eq(first_word(a), 20);
    cr_assert_eq(launch(0, add, false, 2, a, b), LATHE_OK);
    cr_assert_eq(launch(0, twice, true, 2, b, a), LATHE_OK);
    cr_assert_eq(d->ops->synchronize(d), LATHE_DEVICE_FAULT);
    cr_assert_not_null(strstr(d->message, "kernel twice"), "%s", d->message);
    cr_assert_not_null(strstr(d->message, "without grid_wait()"), "%s", d->message);
    cr_assert_eq(d->ops->fork(d, 1), LATHE_OK);
    cr_assert_eq(launch(1, add, true, 2, a, b), LATHE_INVALID);
    d->ops->unload(d, add);
    d->ops->unload(d, twice);
}

/* The producer triggers by ending, so only what it wrote being held back can show the mistake. */
static int wrong_results(const char *consumer) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        char message[256];
        d->ops->destroy(d);
        cr_assert_eq(lathe_device_host_create(0, seed, &d, message, sizeof message), LATHE_OK);
        lathe_kernel *twice = load("twice"), *k = load(consumer);
        void *a = words(64), *b = words(64), *c = words(64);
        const uint32_t one = 1;
        cr_assert_eq(d->ops->fill(d, a, 0, 256), LATHE_OK);
        cr_assert_eq(d->ops->copy_in(d, a, &one, 4), LATHE_OK);
        cr_assert_eq(launch(0, twice, false, 2, a, b), LATHE_OK);
        cr_assert_eq(launch(0, k, true, 2, b, c), LATHE_OK);
        wrong += first_word(c) != 3;
        cr_assert_eq(first_word(b), 2);
        d->ops->unload(d, twice);
        d->ops->unload(d, k);
    }
    return wrong;
}

Test(host_device, shows_reads_before_the_wait) {
    cr_assert_eq(wrong_results("add"), 0);
    cr_assert_gt(wrong_results("hasty"), 0);
}

Test(host_device, refuses_calls_out_of_order) {
    lathe_kernel *add = load("add");
    void *a = words(64);
    lathe_graph *graph;
    cr_assert_eq(d->ops->record_end(d, &graph), LATHE_INVALID);
    cr_assert_eq(d->ops->record_begin(d), LATHE_OK);
    cr_assert_eq(d->ops->record_begin(d), LATHE_INVALID);
    cr_assert_eq(d->ops->synchronize(d), LATHE_INVALID);
    cr_assert_eq(d->ops->fill(d, a, 0, 4), LATHE_INVALID);
    cr_assert_eq(d->ops->fork(d, 1), LATHE_OK);
    cr_assert_eq(launch(1, add, false, 2, a, a), LATHE_OK);
    cr_assert_eq(d->ops->record_end(d, &graph), LATHE_INVALID);
    cr_assert_not_null(strstr(d->message, "not joined"));
    cr_assert_null(graph);
    cr_assert_eq(launch(2, add, false, 2, a, a), LATHE_INVALID);
    const lathe_geometry g = {.grid = {1, 1, 1}, .block = 32, .shared_bytes = 64};
    cr_assert_eq(d->ops->launch(d, 0, add, &g, &a, 1), LATHE_INVALID);
    d->ops->unload(d, add);
}

Test(host_device, names_who_is_stuck) {
    lathe_kernel *stuck = load("stuck");
    void *a = words(64);
    cr_assert_eq(launch(0, stuck, false, 1, a), LATHE_OK);
    cr_assert_eq(d->ops->synchronize(d), LATHE_DEVICE_FAULT);
    cr_assert_not_null(strstr(d->message, "kernel stuck, block (0, 0, 0): thread 0 in block_sync"),
                       "%s", d->message);
    cr_assert_eq(d->ops->synchronize(d), LATHE_OK, "a fault drops what was enqueued");
    d->ops->unload(d, stuck);
}

Test(host_device, sees_writes_beyond_an_allocation) {
    if (lathe_host_sanitized())
        cr_skip_test("the sanitizer ends the program at the write");
    lathe_kernel *beyond = load("beyond");
    void *a = words(4);
    cr_assert_eq(launch(0, beyond, false, 1, a), LATHE_OK);
    cr_assert_eq(d->ops->synchronize(d), LATHE_DEVICE_FAULT);
    cr_assert_not_null(strstr(d->message, "beyond an allocation of 16 bytes"), "%s", d->message);
    d->ops->unload(d, beyond);
}

/* Whatever else the process would do about the signal, the kernel is named first. */
Test(host_device, a_wild_access_is_named) {
    char text[1024];
    int ends[2], status;
    if (lathe_host_sanitized())
        cr_skip_test("the sanitizer ends the program at the write");
    cr_assert_eq(pipe(ends), 0);
    lathe_kernel *wild = load("wild");
    void *a = words(64);
    const pid_t child = fork();
    if (child == 0) { /* asserts nothing: Criterion waits for ever where a child's child does */
        dup2(ends[1], STDERR_FILENO);
        signal(SIGSEGV, SIG_DFL);
        (void)!launch(0, wild, false, 1, a);
        (void)!d->ops->synchronize(d);
        _exit(0);
    }
    close(ends[1]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %d", status);
    const ssize_t n = read(ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    cr_assert(strstr(text, "kernel wild, block ("), "%s", text);
    cr_assert(strstr(text, "thread 3: SIGSEGV"), "%s", text);
}

static void *synchronize(void *device) {
    lathe_device *of = device;
    return of->ops->synchronize(of) == LATHE_OK ? device : NULL;
}

Test(host_device, an_endless_loop_is_named, .timeout = 60) {
    char text[512];
    pthread_t thread;
    void *a = words(64), *result;
    lathe_kernel *endless = load("endless");
    cr_assert_eq(launch(0, endless, false, 1, a), LATHE_OK);
    cr_assert_eq(pthread_create(&thread, NULL, synchronize, d), 0);
    for (uint64_t now = 1; !lathe_host_stuck(now, 5, text, sizeof text); now++)
        usleep(20000);
    cr_assert(strstr(text, "kernel endless, block ("), "%s", text);
    *(volatile uint32_t *)a = 1; /* memory of the host device is the process's */
    cr_assert_eq(pthread_join(thread, &result), 0);
    cr_assert_not_null(result, "%s", d->message);
    cr_assert_not(lathe_host_stuck(1000, 5, text, sizeof text), "nothing runs any more");
    d->ops->unload(d, endless);
}

Test(host_device, load_names_what_is_missing) {
    lathe_kernel *k;
    cr_assert_eq(d->ops->load(d, object, "nothing", 0, &k), LATHE_INVALID);
    cr_assert_not_null(strstr(d->message, "nothing"));
    cr_assert_null(k);
    cr_assert_eq(d->ops->load(d, "/nowhere/k.so", "add", 0, &k), LATHE_IO);
    cr_assert_not_null(strstr(d->message, "/nowhere/k.so"));
}

Test(host_device, compile_errors_name_the_line) {
    char log[4096], brief[32];
    cr_assert_eq(compile("#include \"prims.cuh\"\nint broken(\n", log, sizeof log), LATHE_COMPILE);
    cr_assert_not_null(strstr(log, "kernels.cu:2"), "%s", log);
    cr_assert_neq(access(object, F_OK), 0);
    cr_assert_eq(compile("int broken(\n", brief, sizeof brief), LATHE_COMPILE);
    cr_assert_eq(strlen(brief), 31);
    cr_assert_str_eq(brief + 28, "...");
}

Test(host_device, says_that_no_compiler_is_there) {
    char log[256];
    setenv("CXX", "no-such-compiler", 1);
    cr_assert_eq(compile("", log, sizeof log), LATHE_NO_DEVICE);
    cr_assert_not_null(strstr(log, "no-such-compiler"), "%s", log);
    cr_assert_eq(lathe_host_compiler_version(log, sizeof log), LATHE_NO_DEVICE);
    unsetenv("CXX");
    cr_assert_eq(lathe_host_compiler_version(log, sizeof log), LATHE_OK);
    cr_assert_null(strchr(log, '\n'));
}
