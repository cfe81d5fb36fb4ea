/* SPDX-License-Identifier: Apache-2.0
 * NVRTC: missing, too old, its log; and, where there is a real one, the template and line of an
 * error. */
#include "fakes.h"

#include "nvrtc.h"
#include "sources.h"

static char message[2048];
static const lathe_message_buffer out = {message, sizeof message};

static lathe_status compile_text(lathe_nvrtc *n, const char *text, lathe_nvrtc_result *result) {
    const lathe_source source = {"kernel.cu", text, strlen(text), 0, NULL};
    lathe_nvrtc_options options;
    lathe_nvrtc_options_get(13, 0, "sm_90a", &options);
    return lathe_nvrtc_compile(n, &source, &options, result, out);
}

static void free_result(lathe_nvrtc_result *r) {
    free(r->cubin);
    free(r->log);
}

Test(nvrtc, a_place_that_holds_none_is_named) {
    lathe_nvrtc *n = (lathe_nvrtc *)&n;
    cr_assert_eq(lathe_nvrtc_create("/nonexistent/nvrtc", &n, out), LATHE_NO_DEVICE);
    cr_assert_null(n);
    cr_assert(strstr(message, "NVRTC is missing: found none at /nonexistent/nvrtc"), "%s", message);
    setenv("LATHE_NVRTC", "/tmp", 1);
    cr_assert_eq(lathe_nvrtc_create(NULL, &n, out), LATHE_NO_DEVICE);
    cr_assert(strstr(message, "/tmp (LATHE_NVRTC)"), "%s", message);
}

Test(nvrtc, another_library_is_named) {
    lathe_nvrtc *n;
    setenv("LATHE_NVRTC", "libm.so.6", 1);
    cr_assert_eq(lathe_nvrtc_create(NULL, &n, out), LATHE_NO_DEVICE);
    cr_assert(strstr(message, "/libm.so.6 is no NVRTC: found a library without nvrtcVersion"), "%s",
              message);
}

Test(nvrtc, a_folder_is_searched) {
    lathe_nvrtc *n;
    setenv("LATHE_NVRTC", LATHE_FAKE_DIR, 1);
    cr_assert_eq(lathe_nvrtc_create(NULL, &n, out), LATHE_OK, "%s", message);
    cr_assert_eq(lathe_nvrtc_major(n), 13);
    lathe_nvrtc_destroy(n);
}

Test(nvrtc, the_folders_of_a_python_environment_are_searched) {
    char folder[] = "/tmp/lathe-test-XXXXXX", path[512];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/nvidia/cu13/lib", folder);
    cr_assert_eq(lathe_folder_make(path), 0);
    strcat(path, "/libnvrtc.so.13");
    cr_assert_eq(symlink(FAKE_NVRTC, path), 0);
    lathe_nvrtc *n;
    cr_assert_eq(lathe_nvrtc_create(folder, &n, out), LATHE_OK, "%s", message);
    lathe_nvrtc_destroy(n);
    lathe_folder_remove(folder);
}

/* Before whatever else the machine has; the version tells that it was this one. */
Test(nvrtc, what_was_fetched_beside_the_program_is_found) {
    toy t;
    char folder[] = "/tmp/lathe-test-XXXXXX", path[512];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/nvidia/nvidia/cu13/lib", folder);
    cr_assert_eq(lathe_folder_make(path), 0);
    strcat(path, "/libnvrtc.so.13");
    cr_assert_eq(symlink(FAKE_NVRTC, path), 0);
    toy_create(&t);
    toy_shell("cp %s %s/program", LATHE_BINARY, folder);
    unsetenv("LATHE_NVRTC");
    setenv("FAKE_NVRTC_VERSION", "11.8", 1);
    toy_shell("cd %s && ./program build %s 2>said; test $? = 2", folder, t.directory);
    toy_shell("grep 'too old: found 11.8' %s/said%s", folder, "");
    toy_remove(&t);
    lathe_folder_remove(folder);
}

Test(nvrtc, eleven_is_too_old) {
    lathe_nvrtc *n;
    setenv("FAKE_NVRTC_VERSION", "11.8", 1);
    cr_assert_eq(lathe_nvrtc_create(FAKE_NVRTC, &n, out), LATHE_NO_DEVICE);
    cr_assert(strstr(message, "too old: found 11.8, allowed: 12.0 or newer"), "%s", message);
}

Test(nvrtc, each_architecture_has_its_first_version) {
    static const struct {
        const char *version, *arch, *refused; /* NULL: taken */
    } cases[] = {
        {"12.0", "sm_90a", NULL},     {"12.7", "sm_100a", "found 12.7, allowed: 12.8 or newer"},
        {"12.8", "sm_100a", NULL},    {"12.7", "sm_120a", "allowed: 12.8 or newer"},
        {"12.8", "sm_103a", "12.9"},  {"12.9", "sm_103a", NULL},
        {"13.0", "sm_80", "sm_103a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        lathe_nvrtc *n;
        setenv("FAKE_NVRTC_VERSION", cases[i].version, 1);
        cr_assert_eq(lathe_nvrtc_create(FAKE_NVRTC, &n, out), LATHE_OK, "%s", message);
        const lathe_status status = lathe_nvrtc_check_arch(n, cases[i].arch, out);
        cr_expect_eq(status == LATHE_OK, cases[i].refused == NULL, "%s", cases[i].arch);
        cr_expect(!cases[i].refused || strstr(message, cases[i].refused), "%s", message);
        lathe_nvrtc_destroy(n);
    }
}

Test(nvrtc, options_say_architecture_and_that_its_cache_is_off) {
    fake_nvrtc *fake = fake_nvrtc_open();
    lathe_nvrtc *n;
    lathe_nvrtc_result r;
    cr_assert_eq(lathe_nvrtc_create(FAKE_NVRTC, &n, out), LATHE_OK);
    cr_assert_eq(compile_text(n, "void k();", &r), LATHE_OK, "%s", message);
    cr_assert(strstr(fake->options, "--gpu-architecture=sm_90a "), "%s", fake->options);
    cr_assert(strstr(fake->options, "--ptxas-options=-v "), "%s", fake->options);
    cr_assert(strstr(fake->options, "--no-cache "), "%s", fake->options);
    cr_assert_null(strstr(fake->options, "include"), "no path of the machine");
    cr_assert_eq(r.registers, 40);
    cr_assert_eq(r.spill_bytes, 0);
    free_result(&r);
    cr_assert_eq(compile_text(n, "FAKE_SPILL", &r), LATHE_OK);
    cr_assert_eq(r.spill_bytes, 48);
    free_result(&r);
    lathe_nvrtc_destroy(n);
    cr_assert_eq(fake->live, 0);
}

Test(nvrtc, logs_are_read) {
    int registers, spills;
    lathe_nvrtc_parse_log("ptxas info : Used 12 registers, used 0 barriers\n"
                          " 0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
                          "ptxas info : Used 200 registers\n"
                          " 0 bytes stack frame, 100 bytes spill stores, 0 bytes spill loads\n",
                          &registers, &spills);
    cr_assert_eq(registers, 200);
    cr_assert_eq(spills, 112);
    lathe_nvrtc_parse_log("", &registers, &spills);
    cr_assert_eq(registers, -1);
    cr_assert_eq(spills, 0);
}

static lathe_nvrtc *real_nvrtc(void) {
    lathe_nvrtc *n;
    const lathe_status status = lathe_nvrtc_create(NULL, &n, out);
    if (status != LATHE_OK)
        cr_skip_test("no NVRTC here");
    return n;
}

static const char spilling[] =
    "extern \"C\" __global__ void __launch_bounds__(1024, 2) k(float *x) {\n"
    "    float v[64];\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < 64; i++) v[i] = x[i * 1024 + threadIdx.x];\n"
    "    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < 64; i++) x[(i * 7 % 64) * 1024 + threadIdx.x] = v[i] * v[(i * 5 + 3) "
    "% 64];\n"
    "}\n";

Test(nvrtc, a_real_one_gives_the_same_bytes_twice_and_sees_spills) {
    lathe_nvrtc *n = real_nvrtc();
    lathe_nvrtc_result a, b;
    const char *text = "extern \"C\" __global__ void k(float *x) { x[threadIdx.x] = 1.0f; }";
    cr_assert_eq(compile_text(n, text, &a), LATHE_OK, "%s", message);
    cr_assert_eq(compile_text(n, text, &b), LATHE_OK, "%s", message);
    cr_assert_eq(a.bytes, b.bytes);
    cr_assert_eq(memcmp(a.cubin, b.cubin, a.bytes), 0);
    cr_assert_gt(a.registers, 0);
    cr_assert_eq(a.spill_bytes, 0);
    free_result(&a);
    free_result(&b);
    cr_assert_eq(compile_text(n, spilling, &a), LATHE_OK, "%s", message);
    cr_assert_gt(a.spill_bytes, 0, "%s", a.log);
    free_result(&a);
    lathe_nvrtc_destroy(n);
}

Test(nvrtc, a_real_one_names_template_and_line) {
    lathe_nvrtc *n = real_nvrtc();
    toy t;
    lathe_sources *sources;
    const lathe_source *source;
    lathe_nvrtc_options options;
    lathe_nvrtc_result r;
    toy_create(&t);
    toy_shell("sed -i 's/0.5f [*] s/0.5f * missing/' %s/templates/toy/%s", t.directory,
              "kernels.cuh");
    cr_assert_eq(lathe_sources_create(t.directory, "cuda", &sources, out), LATHE_OK);
    cr_assert_eq(lathe_sources_read(sources, "halve_4.cu", &source, out), LATHE_OK, "%s", message);
    lathe_nvrtc_options_get(13, 0, "sm_90a", &options);
    cr_assert_eq(lathe_nvrtc_compile(n, source, &options, &r, out), LATHE_COMPILE);
    cr_assert(strstr(message, "halve_4.cu does not compile: toy/kernels.cuh("), "%s", message);
    cr_assert(strstr(message, "\"missing\" is undefined"), "%s", message);
    cr_assert_null(r.cubin);
    free_result(&r);
    lathe_sources_destroy(sources);
    lathe_nvrtc_destroy(n);
    toy_remove(&t);
}

Test(nvrtc, sources_follow_includes) {
    toy t;
    lathe_sources *sources;
    const lathe_source *source;
    toy_create(&t);
    cr_assert_eq(lathe_sources_create(t.directory, "host", &sources, out), LATHE_OK);
    cr_assert_eq(lathe_sources_read(sources, "add_4.cu", &source, out), LATHE_OK, "%s", message);
    cr_assert_str_eq(source->headers[0].name, "toy/kernels.cuh");
    cr_assert_str_eq(source->headers[1].name, "toy/row.cuh");
    cr_assert_str_eq(source->headers[2].name, "prims.cuh");
    cr_assert_gt(source->header_count, 8);
    bool host = false;
    for (int i = 0; i < source->header_count; ++i)
        host = host || strcmp(source->headers[i].name, "emulator.h") == 0;
    cr_assert(host, "the host's prims, not the GPU's");
    cr_assert_eq(lathe_sources_read(sources, "nothing.cu", &source, out), LATHE_IO);
    cr_assert(strstr(message, "nothing.cu: No such file"), "%s", message);
    lathe_sources_destroy(sources);
    toy_remove(&t);
}
