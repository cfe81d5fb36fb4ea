/* SPDX-License-Identifier: Apache-2.0
 * From a directory to captured graphs, on the fakes: the order of things, what is refused, what a
 * step may not do. */
#include "fakes.h"
#include "weights.h"

static toy t;
static fake_cuda *gpu;
static char message[4096], log_text[8192];

static void set_up(void) {
    toy_create(&t);
    gpu = fake_cuda_open();
}

static void tear_down(void) {
    cr_assert_eq(gpu->live, 0, "%d handles were not given back", gpu->live);
    toy_remove(&t);
}

TestSuite(build, .init = set_up, .fini = tear_down, .timeout = 60);

static void keep_log(void *context, lathe_log_kind kind, const char *text, int done, int total) {
    (void)context, (void)kind, (void)done, (void)total;
    const size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%s\n", text);
}

static lathe_engine *create(lathe_options o) {
    lathe_engine *e;
    message[0] = log_text[0] = '\0';
    o.log = keep_log;
    cr_assert_eq(lathe_create(&o, &e, message, sizeof message), LATHE_OK, "%s", message);
    return e;
}

static lathe_engine *build(void) {
    lathe_engine *e = create(fake_options(&t));
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_OK, "%s", lathe_message(e));
    return e;
}

static const lathe_batch one = {sizeof(lathe_batch), 1, 1, 5, 1, 16};

static void expect_refused(lathe_options o, lathe_status status, const char *reason) {
    lathe_engine *e = create(o);
    const char *text = lathe_unsupported(e);
    cr_assert_not_null(text, "wanted: %s", reason);
    cr_assert(strstr(text, reason), "%s", text);
    cr_assert_eq(lathe_build(e, &toy_weights), status);
    cr_assert(strstr(lathe_message(e), reason), "%s", lathe_message(e));
    lathe_destroy(e);
}

Test(build, prepares_warms_up_and_captures) {
    lathe_engine *e = build();
    cr_assert_eq(gpu->modules_loaded, 13);
    cr_assert_str_eq(gpu->launches[0].name, "twice");
    cr_assert_str_eq(gpu->launches[1].name, "twice");
    cr_assert_str_eq(gpu->launches[2].name, "start_1");
    cr_assert_str_eq(gpu->launches[3].name, "shift_1");
    cr_assert_eq(gpu->launches[3].stream, 1);
    cr_assert_eq(gpu->launches[5].early, 0);
    cr_assert_str_eq(gpu->launches[6].name, "halve_1");
    cr_assert_eq(gpu->launches[6].early, 1);
    cr_assert_eq(gpu->launch_count, 2 + 3 * 10, "prepare, then each variant once");
    lathe_destroy(e);
}

Test(build, buffers_hold_what_they_should) {
    lathe_engine *e = build();
    float w[8];
    int64_t slots[4];
    int32_t rank[2];
    cr_assert_eq(lathe_engine_read(e, "w", 1, 0, w, sizeof w), LATHE_OK);
    cr_assert_eq(w[3], 2.5f);
    cr_assert_eq(lathe_engine_read(e, "slot_mapping.full", 0, 0, slots, sizeof slots), LATHE_OK);
    cr_assert_eq(slots[3], -1, "no warm-up writes a cache");
    cr_assert_eq(lathe_engine_read(e, "rank", 0, 0, rank, sizeof rank), LATHE_OK);
    cr_assert_eq(rank[0], 0);
    cr_assert_eq(rank[1], 1);
    lathe_engine_memory kv;
    cr_assert_eq(lathe_engine_find(e, "kv", 0, &kv), LATHE_OK);
    cr_assert_eq(kv.shape.dim[0], 16, "4 requests of 4 pages");
    cr_assert_eq(kv.bytes, 16 * 2 * 16 * 4);
    cr_assert_eq(lathe_engine_read(e, "w", 1, 28, w, 8), LATHE_INVALID);
    cr_assert(strstr(lathe_message(e), "found bytes 28 to 36, allowed: up to 32"));
    cr_assert_eq(lathe_engine_read(e, "w", 2, 0, w, 4), LATHE_INVALID);
    cr_assert_eq(lathe_engine_read(e, "zz", 0, 0, w, 4), LATHE_INVALID);
    lathe_destroy(e);
}

Test(build, launches_are_resolved) {
    lathe_engine *e = build();
    int count;
    const lathe_step_launch *l = lathe_engine_launches(e, 1, &count);
    cr_assert_eq(count, 1 + 2 * 6 + 1);
    cr_assert_eq(l[0].section, LATHE_SECTION_PROLOGUE);
    cr_assert_eq(l[1].kind, LATHE_OP_FORK);
    cr_assert_eq(l[8].layer, 1);
    cr_assert_str_eq(l[8].kernel->name, "shift_4");
    lathe_engine_memory w;
    cr_assert_eq(lathe_engine_find(e, "w", 1, &w), LATHE_OK);
    cr_assert_eq(l[8].values[1].address, w.address);
    cr_assert_eq(l[8].addresses[1], w.address);
    cr_assert_eq(l[8].values[1].layer, 1);
    const lathe_step_launch *finish = &l[13];
    cr_assert_eq(finish->section, LATHE_SECTION_EPILOGUE);
    cr_assert_eq(finish->values[1].address, w.address, "-1 is the last layer there");
    cr_assert_null(finish->values[3].address);
    cr_assert_eq(finish->values[0].bytes, 4 * 8 * 4);
    cr_assert_not_null(lathe_engine_launches(e, LATHE_PREPARE, &count));
    cr_assert_eq(count, 2);
    cr_assert_null(lathe_engine_launches(e, 3, &count));
    lathe_destroy(e);
}

Test(build, graphs_equal_step_json) {
    lathe_engine *e = build();
    for (int v = 0; v < 3; ++v)
        cr_assert_eq(lathe_engine_compare_graph(e, v), LATHE_OK, "%s", lathe_message(e));
    lathe_destroy(e);
}

Test(build, an_edge_too_many_is_seen) {
    gpu->extra_edge = 1;
    lathe_engine *e = build();
    cr_assert_eq(lathe_engine_compare_graph(e, 0), LATHE_INVALID);
    cr_assert(strstr(lathe_message(e), "graph"), "%s", lathe_message(e));
    lathe_destroy(e);
}

Test(build, a_step_neither_allocates_nor_waits) {
    lathe_engine *e = build();
    lathe_device *d = lathe_engine_device(e);
    const uint64_t allocations = d->ops->allocations(d), waits = d->ops->synchronizations(d);
    const int calls = gpu->calls;
    lathe_step_plan plan;
    for (int i = 0; i < 100; ++i) {
        cr_assert_eq(lathe_plan(e, &one, &plan), LATHE_OK);
        cr_assert_eq(lathe_run(e, &plan), LATHE_OK);
    }
    cr_assert_eq(d->ops->allocations(d), allocations);
    cr_assert_eq(d->ops->synchronizations(d), waits);
    cr_assert_eq(gpu->graph_launches, 100);
    cr_assert_eq(gpu->calls, calls + 100, "one call of the driver a step");
    cr_assert_eq(lathe_finish(e), LATHE_OK);
    lathe_destroy(e);
}

Test(build, without_graphs_a_step_is_its_launches) {
    lathe_options o = fake_options(&t);
    o.no_graphs = true;
    lathe_engine *e = create(o);
    lathe_step_plan plan;
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_OK);
    const int before = gpu->launch_count;
    cr_assert_eq(lathe_plan(e, &one, &plan), LATHE_OK);
    cr_assert_eq(lathe_run(e, &plan), LATHE_OK);
    cr_assert_eq(gpu->launch_count - before, 10);
    cr_assert_eq(gpu->graph_launches, 0);
    cr_assert_eq(lathe_engine_compare_graph(e, 0), LATHE_INVALID);
    lathe_destroy(e);
}

Test(build, a_warm_cache_compiles_nothing) {
    fake_nvrtc *nvrtc = fake_nvrtc_open();
    lathe_destroy(build());
    cr_assert_eq(nvrtc->compiles, 13);
    lathe_destroy(build());
    cr_assert_eq(nvrtc->compiles, 13);
}

Test(build, a_warm_cache_serves_without_nvrtc) {
    lathe_destroy(build());
    lathe_options o = fake_options(&t);
    o.nvrtc = "/nonexistent";
    lathe_engine *e = create(o);
    cr_assert_null(lathe_unsupported(e), "%s", lathe_unsupported(e));
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_OK, "%s", lathe_message(e));
    lathe_destroy(e);
    toy_shell("rm -r %s/halve_4-%s", t.cache, "*");
    expect_refused(o, LATHE_NO_DEVICE, "kernel halve_4: the cache ");
    expect_refused(o, LATHE_NO_DEVICE, "NVRTC is missing: found none at /nonexistent");
}

Test(build, faults_are_reported_once) {
    lathe_engine *e = build();
    const int32_t token = 1, peer = 2;
    cr_assert_eq(lathe_engine_write(e, "faults", 0, 0, &token, 4), LATHE_OK);
    cr_assert_eq(lathe_finish(e), LATHE_INVALID);
    cr_assert(strstr(lathe_message(e), "token id"), "%s", lathe_message(e));
    cr_assert_eq(lathe_finish(e), LATHE_OK);
    cr_assert_eq(lathe_engine_write(e, "faults", 0, 0, &peer, 4), LATHE_OK);
    cr_assert_eq(lathe_finish(e), LATHE_PEER_LOST);
    lathe_destroy(e);
}

Test(build, calls_out_of_order_return_a_status) {
    lathe_engine *e = create(fake_options(&t));
    lathe_step_plan plan = {0};
    lathe_engine_memory memory;
    cr_assert_eq(lathe_plan(e, &one, &plan), LATHE_INVALID);
    cr_assert(strstr(lathe_message(e), "not built"), "%s", lathe_message(e));
    cr_assert_eq(lathe_run(e, &plan), LATHE_INVALID);
    cr_assert_eq(lathe_finish(e), LATHE_INVALID);
    cr_assert_eq(lathe_engine_replay(e, 0), LATHE_INVALID);
    cr_assert_eq(lathe_engine_find(e, "w", 0, &memory), LATHE_INVALID);
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_OK, "%s", lathe_message(e));
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_INVALID);
    cr_assert(strstr(lathe_message(e), "a second call"), "%s", lathe_message(e));
    cr_assert_eq(lathe_run(NULL, &plan), LATHE_INVALID);
    lathe_destroy(e);
}

Test(build, a_failed_build_leaves_only_destroy) {
    lathe_engine *e = create(fake_options(&t));
    lathe_step_plan plan;
    cr_assert_eq(lathe_build(e, NULL), LATHE_INVALID);
    cr_assert(strstr(lathe_message(e), "no source to fill 1 weights"), "%s", lathe_message(e));
    cr_assert_eq(lathe_plan(e, &one, &plan), LATHE_INVALID);
    cr_assert(strstr(lathe_message(e), "the build failed"), "%s", lathe_message(e));
    lathe_destroy(e);
}

Test(build, says_why_a_machine_cannot_serve) {
    lathe_options o = fake_options(&t);
    gpu->major = 10;
    expect_refused(o, LATHE_UNSUPPORTED, "the directory is for sm_90a, the device (Fake GPU 0");
    gpu->major = 9;
    gpu->version = 12080;
    expect_refused(o, LATHE_NO_DEVICE, "cubins of CUDA 13 want a driver of CUDA 13 or newer (580");
    gpu->version = 13000;
    gpu->memory_free = 1000;
    expect_refused(o, LATHE_UNSUPPORTED, "memory: the step wants");
    gpu->memory_free = 1 << 30;
    o.kv_pages = INT32_MAX;
    expect_refused(o, LATHE_UNSUPPORTED, "2147483647 kv pages");
    o = fake_options(&t);
    o.nvrtc = "/nonexistent";
    expect_refused(o, LATHE_NO_DEVICE, "NVRTC is missing");
    o.nvrtc = FAKE_NVRTC;
    setenv("FAKE_NVRTC_VERSION", "11.8", 1);
    expect_refused(o, LATHE_NO_DEVICE, "too old: found 11.8");
}

/* The toy's directory is for a GPU: the host device says so where that is not all. */
Test(build, the_host_device_has_what_the_machine_has) {
    lathe_options o = fake_options(&t);
    o.device = LATHE_DEVICE_HOST;
    lathe_engine *e = create(o);
    cr_assert_null(lathe_unsupported(e), "%s", lathe_unsupported(e));
    lathe_destroy(e);
    o.kv_pages = INT32_MAX;
    expect_refused(o, LATHE_UNSUPPORTED, "the directory is for sm_90a, here it would be emulated");
    expect_refused(o, LATHE_UNSUPPORTED, " bytes, 2147483647 kv pages), the machine has");
}

Test(build, a_larger_tensor_parallel_size_needs_a_group) {
    json_t *root = toy_json();
    json_object_set_new(root, "tp", json_integer(2));
    toy_write_json(&t, root);
    expect_refused(fake_options(&t), LATHE_UNSUPPORTED, "for 2 ranks");
}

Test(build, options_are_checked) {
    lathe_options o = fake_options(&t);
    lathe_engine *e = (lathe_engine *)&e;
    o.size = 3;
    cr_assert_eq(lathe_create(&o, &e, message, sizeof message), LATHE_INVALID);
    cr_assert_null(e);
    o = fake_options(&t);
    o.rank = 1;
    cr_assert_eq(lathe_create(&o, &e, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "found rank 1, allowed: 0 to 0"), "%s", message);
    o.rank = 0;
    o.directory = "/nonexistent";
    cr_assert_eq(lathe_create(&o, &e, message, sizeof message), LATHE_IO);
    cr_assert_eq(lathe_create(NULL, &e, message, sizeof message), LATHE_INVALID);
}

static void append(const char *file, const char *text) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", t.directory, file);
    FILE *out = fopen(path, "a");
    cr_assert_not_null(out);
    fputs(text, out);
    fclose(out);
}

Test(build, a_source_that_does_not_compile_is_named) {
    append("shift_4.cu", "#error\n");
    lathe_engine *e = create(fake_options(&t));
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_COMPILE);
    cr_assert(strstr(lathe_message(e), "kernel shift_4: shift_4.cu does not compile: shift_4.cu("),
              "%s", lathe_message(e));
    lathe_destroy(e);
}

Test(build, a_kernel_whose_spec_says_why_may_spill) {
    append("shift_4.cu", "// FAKE_SPILL\n");
    json_t *root = toy_json();
    size_t i;
    json_t *kernel;
    json_array_foreach(json_object_get(root, "kernels"), i, kernel) {
        if (strcmp(json_string_value(json_object_get(kernel, "name")), "shift_4") == 0)
            json_object_set_new(kernel, "spills", json_string("rarely run"));
    }
    toy_write_json(&t, json_incref(root));
    lathe_engine *e = create(fake_options(&t));
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_OK, "%s", lathe_message(e));
    lathe_destroy(e);
    append("shift_1.cu", "// FAKE_SPILL\n");
    e = create(fake_options(&t));
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_COMPILE, "the reason is of one kernel");
    lathe_destroy(e);
    json_array_foreach(json_object_get(root, "kernels"), i, kernel)
        json_object_set_new(kernel, "spills", json_true());
    toy_write_json(&t, root);
    lathe_options o = fake_options(&t);
    cr_assert_eq(lathe_create(&o, &e, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "spills: allowed: why it may spill"), "%s", message);
}

Test(build, spills_are_refused_unless_allowed) {
    append("shift_4.cu", "// FAKE_SPILL\n");
    lathe_engine *e = create(fake_options(&t));
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_COMPILE);
    cr_assert(strstr(lathe_message(e), "spills 48 bytes of registers at 40 registers"), "%s",
              lathe_message(e));
    lathe_destroy(e);
    lathe_options o = fake_options(&t);
    o.allow_spills = true;
    e = create(o);
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_OK, "%s", lathe_message(e));
    lathe_destroy(e);
}

Test(build, the_next_tactic_is_taken_where_one_fails) {
    json_t *root = toy_json(), *tactics = toy_at(root, "kernels.2.tactics");
    json_t *bad = json_deep_copy(json_array_get(tactics, 0));
    json_object_set_new(bad, "name", json_string("kBad=1"));
    json_object_set_new(bad, "file", json_string("bad.cu"));
    json_array_insert_new(tactics, 0, bad);
    json_t *wide = json_deep_copy(bad);
    json_object_set_new(wide, "name", json_string("kWide=1"));
    json_object_set_new(wide, "shared", json_integer(232449));
    json_array_insert_new(tactics, 0, wide);
    toy_write_json(&t, root);
    append("bad.cu", "#error\n");
    lathe_engine *e = build();
    cr_assert(strstr(log_text,
                     "scale_1: tactic kWide=1 is skipped: scale_1 (kWide=1): found 232449 "
                     "bytes of shared memory, allowed: 232448"),
              "%s", log_text);
    cr_assert(strstr(log_text, "scale_1: tactic kBad=1 is skipped: bad.cu does not compile"), "%s",
              log_text);
    int count;
    const lathe_step_launch *l = lathe_engine_launches(e, 0, &count);
    cr_assert_str_eq(l[3].kernel->name, "scale_1");
    cr_assert_str_eq(l[3].tactic->name, "");
    lathe_destroy(e);
}

Test(build, a_missing_source_is_io) {
    char path[400];
    snprintf(path, sizeof path, "%s/add_1.cu", t.directory);
    cr_assert_eq(unlink(path), 0);
    lathe_engine *e = create(fake_options(&t));
    cr_assert_eq(lathe_build(e, &toy_weights), LATHE_IO);
    cr_assert(strstr(lathe_message(e), "add_1.cu: No such file"), "%s", lathe_message(e));
    lathe_destroy(e);
}

static int generated, filled;

static lathe_status count_generated(void *context, lathe_generator *generator,
                                    const lathe_step_source *source, const char *name,
                                    const lathe_weight_runs *runs, void *memory, char *text,
                                    size_t size) {
    (void)context, (void)source, (void)name, (void)runs, (void)text, (void)size;
    cr_assert_not_null(generator);
    cr_assert_not_null(memory);
    ++generated;
    return LATHE_OK;
}

static lathe_status count_filled(void *context, const lathe_step_source *source, const char *name,
                                 int64_t offset, int64_t count, void *to, char *text, size_t size) {
    (void)context, (void)name, (void)offset, (void)text, (void)size;
    memset(to, 0, (size_t)count * lathe_scalar_bytes(source->dtype));
    ++filled;
    return LATHE_OK;
}

static lathe_engine *build_synthetic(void) {
    lathe_engine *e = create(fake_options(&t));
    lathe_weights weights = {lathe_engine_table(e), 0, {count_filled, NULL, count_generated}};
    const lathe_weight_source source = lathe_weights_source(&weights);
    generated = filled = 0;
    cr_assert_eq(lathe_build(e, &source), LATHE_OK, "%s", lathe_message(e));
    return e;
}

static void add_generator(const char *text) {
    char path[400];
    toy_shell("mkdir %s/templates/synthetic%s", t.directory, "");
    snprintf(path, sizeof path, "%s/templates/synthetic/fill.cuh", t.directory);
    cr_assert_eq(lathe_file_write(path, text, strlen(text)), 0);
}

Test(build, synthetic_weights_are_made_on_the_device) {
    add_generator("void lathe_synthetic_fill();\n");
    lathe_engine *e = build_synthetic();
    cr_assert_eq(generated, 2, "a weight of two layers");
    cr_assert_eq(filled, 0);
    cr_assert_eq(gpu->modules_loaded, 14);
    cr_assert_null(strstr(log_text, "synthetic"));
    lathe_destroy(e);
}

Test(build, synthetic_weights_are_made_on_the_host_where_the_kernel_is_not_to_be_had) {
    for (int bad = 0; bad < 2; ++bad) {
        if (bad)
            add_generator("#error\n");
        lathe_engine *e = build_synthetic();
        cr_assert_eq(generated, 0);
        cr_assert_eq(filled, 2);
        cr_assert(strstr(log_text, "synthetic weights are made on the host, slowly: "), "%s",
                  log_text);
        cr_assert(strstr(log_text, "templates/synthetic/fill.cuh"), "%s", log_text);
        lathe_destroy(e);
    }
}
