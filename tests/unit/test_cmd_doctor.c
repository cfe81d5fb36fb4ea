/* SPDX-License-Identifier: Apache-2.0
 * lathe doctor on machines that have, lack and break each thing in turn. */
#include "fakes.h"

#include <criterion/redirect.h>

#include "commands.h"
#include "doctor.h"

static toy t;
static char *text;
static size_t text_size;
static lathe_doctor doctor;

static void set_up(void) {
    toy_create(&t);
    doctor = (lathe_doctor){.out = open_memstream(&text, &text_size)};
    cr_assert_not_null(doctor.out);
}

static void tear_down(void) {
    fclose(doctor.out);
    free(text);
    toy_remove(&t);
}

TestSuite(cmd_doctor, .init = set_up, .fini = tear_down, .timeout = 60);

static void expect(const char *wanted) {
    fflush(doctor.out);
    cr_assert(strstr(text, wanted), "wanted %s, got %s", wanted, text);
}

static void fill_cache(void) {
    char *argv[] = {(char *)"build", t.directory,       (char *)"--cache",
                    t.cache,         (char *)"--nvrtc", (char *)FAKE_NVRTC};
    cr_redirect_stdout();
    cr_assert_eq(lathe_cmd_build(6, argv), LATHE_EXIT_OK);
}

Test(cmd_doctor, says_where_nvrtc_is) {
    lathe_doctor_nvrtc(&doctor, FAKE_NVRTC);
    expect("NVRTC          ok      13.0, ");
    expect("/libnvrtc.so.13\n");
    cr_assert(doctor.compiles);
}

Test(cmd_doctor, a_missing_nvrtc_is_absent) {
    lathe_doctor_nvrtc(&doctor, "/nonexistent");
    expect("NVRTC          absent  NVRTC is missing: found none at /nonexistent");
    expect("-> install the CUDA toolkit");
    cr_assert_eq(doctor.broken, 0);
    cr_assert_not(doctor.compiles);
}

Test(cmd_doctor, an_old_nvrtc_is_broken) {
    setenv("FAKE_NVRTC_VERSION", "11.8", 1);
    lathe_doctor_nvrtc(&doctor, FAKE_NVRTC);
    expect("NVRTC          BROKEN  NVRTC is too old: found 11.8");
    cr_assert_eq(doctor.broken, 1);
}

Test(cmd_doctor, cubins_newer_than_the_driver_are_broken) {
    fake_cuda_open()->version = 12080;
    lathe_doctor_nvrtc(&doctor, FAKE_NVRTC);
    lathe_doctor_driver(&doctor);
    expect("cubins         BROKEN  those of NVRTC 13 do not run on a driver that knows CUDA 12.8");
}

Test(cmd_doctor, runs_a_cubin_on_every_gpu_and_proves_every_pair) {
    fake_cuda *cuda = fake_cuda_open();
    cuda->devices = 3;
    lathe_doctor_nvrtc(&doctor, FAKE_NVRTC);
    lathe_doctor_driver(&doctor);
    lathe_doctor_gpus(&doctor, FAKE_NVRTC);
    expect("cubins         ok      those of NVRTC 13 run on a driver that knows CUDA 13.0");
    expect("GPU 2          ok      a cubin of this NVRTC runs on it");
    expect("peer access    ok      6 directed pairs, each proved by a write and a read");
    cr_assert_eq(doctor.broken, 0);
    cr_assert_eq(doctor.gpus, 3);
    cr_assert_eq(cuda->launch_count, 3);
    cr_assert_eq(cuda->live, 0);
}

/* Whichever call of the driver fails: a report, nothing kept. */
Test(cmd_doctor, survives_any_failing_call) {
    fake_cuda *cuda = fake_cuda_open();
    cuda->devices = 2;
    lathe_doctor_nvrtc(&doctor, FAKE_NVRTC);
    lathe_doctor_gpus(&doctor, FAKE_NVRTC);
    const int calls = cuda->calls;
    cr_assert_gt(calls, 20);
    for (int n = 1; n <= calls; ++n) {
        cuda->calls = 0;
        cuda->fail_at = n;
        lathe_doctor_gpus(&doctor, FAKE_NVRTC);
        cr_assert_eq(cuda->live, 0, "%s", cuda->failed);
    }
    expect("a cubin of this NVRTC does not run on it");
    expect("peer access    BROKEN  GPU ");
}

Test(cmd_doctor, counts_a_whole_cache) {
    fill_cache();
    lathe_doctor_cache(&doctor, t.cache);
    expect("can be written\n");
    expect("cache entries  ok      13 kernels, 0.0 MB, all whole");
}

Test(cmd_doctor, names_a_damaged_entry) {
    char command[1024];
    fill_cache();
    snprintf(command, sizeof command, "for f in %s/add_1-*/kernel.cubin; do echo x >> $f; done",
             t.cache);
    cr_assert_eq(system(command), 0);
    lathe_doctor_cache(&doctor, t.cache);
    expect("of 13 are damaged, the first add_1-");
    expect(": kernel.cubin\n");
    cr_assert_eq(doctor.broken, 1);
}

Test(cmd_doctor, digests_without_a_file_are_damage) {
    char command[1024];
    fill_cache();
    snprintf(command, sizeof command, "for f in %s/*/digests.txt; do : > $f; done", t.cache);
    cr_assert_eq(system(command), 0);
    lathe_doctor_cache(&doctor, t.cache);
    expect("cache entries  BROKEN  13 of 13 are damaged");
}

Test(cmd_doctor, a_cache_that_is_no_folder_is_broken) {
    char path[400];
    snprintf(path, sizeof path, "%s/step.json", t.directory);
    lathe_doctor_cache(&doctor, path);
    expect("cache          BROKEN  ");
    expect("Not a directory");
}

Test(cmd_doctor, wrong_usage) {
    char *repeated[] = {(char *)"doctor", (char *)"--cache", (char *)"a", (char *)"--cache",
                        (char *)"b"};
    char *argument[] = {(char *)"doctor", (char *)"here"};
    cr_redirect_stderr();
    cr_assert_eq(lathe_cmd_doctor(5, repeated), LATHE_EXIT_USAGE);
    cr_assert_eq(lathe_cmd_doctor(2, argument), LATHE_EXIT_USAGE);
}
